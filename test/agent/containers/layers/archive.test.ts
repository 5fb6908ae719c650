import fc from 'fast-check';
import t from 'tap';
import { readArchive } from '../../../../lib/agent/containers/layers/archive.ts';
import { LayerError } from '../../../../lib/agent/containers/layers/layer-error.ts';
import { archiveOf, entryOf, paxHeader, type TestEntry } from '../../../support/layer-archive.ts';

/** The archive in chunks of that size. */
async function* chunksOf(archive: Buffer, bytes: number): AsyncGenerator<Buffer> {
  for (let at = 0; at < archive.length; at += bytes) yield archive.subarray(at, at + bytes);
}

async function read(archive: Buffer, chunkBytes = 64 * 1024) {
  const entries = [];
  for await (const { body, ...header } of readArchive(chunksOf(archive, chunkBytes))) {
    entries.push({ ...header, contents: Buffer.concat(await Array.fromAsync(body)).toString() });
  }
  return entries;
}

const END = Buffer.alloc(1024);
const changed = (archive: Buffer, at: number): Buffer => {
  const copy = Buffer.from(archive);
  copy[at] = (copy[at] ?? 0) ^ 0xff;
  return copy;
};

t.test('an entry has what its headers say', async (t) => {
  const pax = { mtime: '12.5', uid: '70000', 'SCHILY.xattr.security.capability': Buffer.from([1, 0, 10, 61, 255]) };
  const archive = archiveOf([
    { path: 'a/b', contents: 'text', mode: 0o4755, gid: 7, pax },
    { path: 'd/' },
    { path: 'l', type: 'SymbolicLink', target: 'x\ny' },
  ]);
  const usual = { mtime: 1_600_000_000, uid: 0, gid: 0, size: 0, target: '', contents: '' };
  const [first, ...others] = await read(archive);
  const owner = { uid: 70_000, gid: 7 };
  t.same(first, {
    kind: 'file',
    path: 'a/b',
    target: '',
    mode: 0o4755,
    ...owner,
    mtime: 12.5,
    size: 4,
    contents: 'text',
  });
  t.same(others, [
    { ...usual, kind: 'directory', path: 'd/', mode: 0o755 },
    { ...usual, kind: 'symbolic-link', path: 'l', mode: 0o644, target: 'x\ny' },
  ]);
});

t.test('the sizes of chunks change nothing', async (t) => {
  const archive = archiveOf([
    { path: `${'ü€𝄞/'.repeat(60)}end`, contents: 'x'.repeat(1500) },
    { path: 'after', contents: 'y' },
  ]);
  const whole = await read(archive);
  t.equal(whole[0]?.path, `${'ü€𝄞/'.repeat(60)}end`);
  for (const bytes of [1, 7, 511, 512, 513, 1024, 4000]) t.same(await read(archive, bytes), whole, `${bytes} bytes`);
});

t.test('a body that nobody reads is skipped', async (t) => {
  const archive = archiveOf([{ path: 'a', contents: 'x'.repeat(3000) }, { path: 'b' }]);
  const paths = [];
  for await (const { path, body } of readArchive(chunksOf(archive, 100))) {
    paths.push(path);
    await body[Symbol.asyncIterator]().next();
  }
  t.same(paths, ['a', 'b']);
});

const file = (pax: TestEntry['pax'] = {}) => archiveOf([{ path: 'file', contents: 'text', pax }]);
const typed = (type: string): Buffer => {
  const block = entryOf({ path: 'file' }).subarray(-512);
  block[156] = type.charCodeAt(0);
  block.write('        ', 148, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  return Buffer.concat([block, END]);
};

const wrong: [string, Buffer, RegExp][] = [
  ['nothing', Buffer.alloc(0), /cut off/],
  ['no end', file().subarray(0, -1024), /cut off/],
  ['half a header', file().subarray(0, 700), /cut off/],
  ['half a body', file().subarray(0, -1100), /cut off/],
  ['something else', Buffer.alloc(2048, 'text'), /not a tar archive/],
  ['a damaged header', changed(file(), 1024 + 3), /damaged/],
  ['data after the end', Buffer.concat([file(), file()]), /follows the end/],
  ['a sparse file of GNU', typed('S'), /sparse/],
  ['a sparse file of pax', file({ 'GNU.sparse.major': '1' }), /sparse/],
  ['a sparse file of older pax', file({ 'GNU.sparse.map': '0,4' }), /sparse/],
  ['a part of a volume', typed('M'), /unknown type/],
  ['a type nobody knows', typed('Q'), /unknown type/],
  ['a name that is not UTF-8', file({ path: Buffer.from([0x61, 0xff]) }), /not UTF-8/],
  ['a name with a NUL', file({ path: 'a\0b' }), /NUL/],
  ['a target that is not UTF-8', file({ linkpath: Buffer.from([0xc3]) }), /not UTF-8/],
  ['a size below zero', file({ size: '-1' }), /an invalid size/],
  ['a size that is not a number', file({ size: '0x10' }), /not a valid size/],
  ['a size beyond all', file({ size: '9'.repeat(16) }), /not a valid size/],
  ['a global name', Buffer.concat([paxHeader({ path: 'x' }, 'g'), file()]), /global header/],
  ['a large extended header', file({ comment: 'x'.repeat(1024 * 1024) }), /extended header has more/],
  ['a damaged extended header', changed(file(), 512), /extended header is damaged/],
];

for (const [name, archive, message] of wrong)
  t.test(`refused: ${name}`, async (t) => void (await t.rejects(read(archive), { name: 'LayerError', message })));

t.test('names of the old headers must be UTF-8', async (t) => {
  const block = entryOf({ path: 'file' }).subarray(-512);
  block[0] = 0xff;
  block.write('        ', 148, 'latin1');
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  await t.rejects(read(Buffer.concat([block, END])), { message: /not UTF-8/ });
});

t.test('long names in the form of GNU', async (t) => {
  const name = `${'d'.repeat(120)}/é`;
  const body = Buffer.from(`${name}\0`);
  const long = typed('L').subarray(0, 512);
  long.write(`${body.length.toString(8).padStart(11, '0')}\0`, 124, 'latin1');
  long.write('        ', 148, 'latin1');
  const sum = long.reduce((total, byte) => total + byte, 0);
  long.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
  const padding = Buffer.alloc(512 - body.length);
  const [entry] = await read(Buffer.concat([long, body, padding, typed('0')]));
  t.equal(entry?.path, name);
});

t.test('a global header with comments is ignored', async (t) => {
  const archive = Buffer.concat([paxHeader({ comment: 'commit 123' }, 'g'), file()]);
  t.equal((await read(archive))[0]?.path, 'file');
});

t.test('any bytes are an archive or are refused', async () => {
  const good = archiveOf([
    { path: 'a/b', contents: 'text' },
    { path: 'l', type: 'Link', target: 'a/b' },
  ]);
  const change = fc.tuple(fc.nat(good.length - 1), fc.nat(255));
  await fc.assert(
    fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), fc.nat(good.length), async (changes, end) => {
      const bytes = Buffer.from(good);
      for (const [at, value] of changes) bytes[at] = value;
      try {
        await read(bytes.subarray(0, Math.max(end, 1024)));
      } catch (error) {
        return error instanceof LayerError;
      }
      return true;
    }),
    { numRuns: 1000 },
  );
});
