import { spawnSync } from 'node:child_process';
import { gzipSync } from 'node:zlib';
import t from 'tap';
import { DockerArchive } from '../../../../lib/control/vms/docker/docker-archive.ts';
import { CHANNELS, streamMessage, streamMessages } from '../../../../lib/protocol/streams/stream.ts';
import { archiveOf, type TestEntry } from '../../../support/layer-archive.ts';

const END_OF_INPUT = Buffer.from([CHANNELS.close, CHANNELS.stdin]);
const stdout = (content: string | Buffer) => streamMessage(CHANNELS.stdout, content);
const status = (value: object) => streamMessage(CHANNELS.status, JSON.stringify(value));

t.test('the head is for the answer, and the rest for the caller, wherever a message is cut', async (t) => {
  const all = Buffer.from('41ed 4096 1\nto\0archive\0with NUL');
  for (const cut of [1, 14, 15, 16]) {
    const codec = new DockerArchive();
    const taken = [all.subarray(0, cut), all.subarray(cut)].map((bytes) => codec.write(stdout(bytes)));
    t.equal(Buffer.concat(taken).toString(), 'archive\0with NUL');
    t.equal(await codec.head, '41ed 4096 1\nto');
    t.equal(codec.write(streamMessage(CHANNELS.stderr, 'said')).length, 0);
  }
});

t.test('a program that ends without a head, or whose stream breaks, is told', async (t) => {
  const ended = new DockerArchive();
  ended.write(status({ exit_code: 3 }));
  await t.rejects(ended.head, { code: 'CopyFailed', message: /ended with 3/ });
  const lost = new DockerArchive();
  lost.write(status({ error: { code: 'NoSuchProgram', message: 'no sh' } }));
  await t.rejects(lost.head, { code: 'NoSuchProgram', message: 'no sh' });
  const long = new DockerArchive();
  for (let number = 0; number < 3; number += 1) long.write(stdout(Buffer.alloc(60_000, 'x')));
  t.equal(await long.head, '', 'a head has a maximum');
  t.equal(new DockerArchive().isWhole, false);
});

t.test('an archive is passed on as it is, in pieces of any size', (t) => {
  const link = { path: 'dir/l', type: 'SymbolicLink', target: '/etc/passwd' } as const;
  const hard = { path: 'dir/h', type: 'Link', target: 'dir/f' } as const;
  const long = { path: `./${'d/'.repeat(100)}f`, contents: 'x'.repeat(70_000) };
  const archive = archiveOf([{ path: './dir/' }, { path: 'dir/f', contents: 'a file' }, link, hard, long]);
  for (const size of [archive.length, 1000, 512, 7]) {
    const codec = new DockerArchive();
    const messages: Buffer[] = [];
    for (let start = 0; start < archive.length; start += size) {
      const read = codec.read(archive.subarray(start, start + size));
      if ('refused' in read) t.fail(read.refused);
      else messages.push(...read);
    }
    t.same(Buffer.concat(messages.map((message) => message.subarray(1))), archive, `pieces of ${size}`);
    t.same(codec.end(), [END_OF_INPUT]);
  }
  t.same(new DockerArchive().read(archive), [...streamMessages(CHANNELS.stdin, archive)]);
  t.end();
});

t.test('an archive that could leave its directory is refused before that part is passed on', (t) => {
  const rows: [name: string, entries: TestEntry[], words: RegExp][] = [
    ['an absolute path', [{ path: '/etc/passwd', contents: 'x' }], /outside/],
    ['a path upwards', [{ path: 'a/../../x', contents: 'x' }], /outside/],
    ['a hard link upwards', [{ path: 'a', type: 'Link', target: '../../etc/shadow' }], /a link a to .*outside/],
    ['an absolute hard link', [{ path: 'a', type: 'Link', target: '/etc/shadow' }], /outside/],
    [
      'a file below a link',
      [
        { path: './a', type: 'SymbolicLink', target: 'b' },
        { path: 'a/f', contents: 'x' },
      ],
      /below a link/,
    ],
    ['a device', [{ path: 'disk', type: 'BlockDevice' }], /BlockDevice/],
    ['a pipe', [{ path: 'pipe', type: 'FIFO' }], /FIFO/],
    [
      'links without end',
      Array.from({ length: 300 }, (_, number) => ({
        path: `${number}${'x'.repeat(4000)}`,
        type: 'SymbolicLink' as const,
        target: 'x',
      })),
      /too many links/,
    ],
  ];
  for (const [name, entries, words] of rows) {
    const codec = new DockerArchive();
    t.match(codec.read(archiveOf(entries)), { refused: words }, name);
    t.match(codec.end(), { refused: words }, name);
  }
  t.match(new DockerArchive().read(gzipSync(archiveOf([{ path: 'a' }]))), { refused: /compressed/ });
  t.match(new DockerArchive().read(Buffer.alloc(1024, 'x')), { refused: /cannot be read/ });
  t.end();
});

t.test('an archive that is cut is not whole, also between two entries', (t) => {
  const archive = archiveOf([{ path: 'a', contents: 'x'.repeat(600) }, { path: 'b' }]);
  for (const bytes of [0, 100, 512, 1800, archive.length - 1024, archive.length - 512]) {
    const codec = new DockerArchive();
    codec.read(archive.subarray(0, bytes));
    t.match(codec.end(), { refused: /only a part of it arrived/ }, `${bytes} bytes`);
  }
  t.end();
});

t.test('no program tar takes what is passed on of a part for a whole archive', (t) => {
  const archive = archiveOf([{ path: 'a', contents: 'x'.repeat(1024) }, { path: 'b/' }, { path: 'c', contents: 'x' }]);
  const passed = (input: ReturnType<DockerArchive['read']>) => {
    const messages = 'refused' in input ? (input.lastMessages ?? []) : input;
    return Buffer.concat(messages.filter((one) => one[0] === CHANNELS.stdin).map((one) => one.subarray(1)));
  };
  const tars = ['tar', 'busybox'].filter((program) => spawnSync(program, ['--help']).error === undefined);
  const cuts = Array.from({ length: (archive.length - 1024) / 256 + 1 }, (_, number) => number * 256);
  for (const program of tars) {
    const list = (input: Buffer) =>
      spawnSync(program, [...(program === 'tar' ? [] : ['tar']), '-tf', '-'], { input }).status;
    t.equal(list(archive), 0, program);
    for (const cut of cuts) {
      const codec = new DockerArchive();
      const input = Buffer.concat([passed(codec.read(archive.subarray(0, cut))), passed(codec.end())]);
      t.not(list(input), 0, `${program}, ${cut} bytes`);
    }
    const hostile = new DockerArchive();
    const pieces = [archive.subarray(0, -1024), archiveOf([{ path: '../x', contents: 'x' }])];
    t.not(list(Buffer.concat(pieces.map((piece) => passed(hostile.read(piece))))), 0, `${program}, a hostile entry`);
  }
  t.end();
});
