import fc from 'fast-check';
import t from 'tap';
import type { EntryHeader } from '../../../../lib/agent/containers/layers/archive.ts';
import { LayerError } from '../../../../lib/agent/containers/layers/layer-error.ts';
import { type LayerRules, type LayerStep, LayerTree } from '../../../../lib/agent/containers/layers/layer-tree.ts';

const RULES: LayerRules = {
  limits: { maxBytes: 1000, maxEntries: 20, maxNameBytes: 10_000 },
  ids: 65_536,
};

type Given = Partial<EntryHeader> & { path: string };

const entryOf = ({ path, ...given }: Given): EntryHeader => ({
  kind: path.endsWith('/') ? 'directory' : 'file',
  path,
  target: '',
  mode: 0o644,
  uid: 0,
  gid: 0,
  mtime: 0,
  size: 0,
  ...given,
});

/** The step of the last entry. */
function stepOf(entries: readonly Given[], rules = RULES): LayerStep {
  const tree = new LayerTree(rules);
  const steps = entries.map((entry) => tree.add(entryOf(entry)));
  return steps.at(-1) as LayerStep;
}

const link = (path: string, target: string): Given => ({ path, target, kind: 'symbolic-link' });
const hardLink = (path: string, target: string): Given => ({ path, target, kind: 'hard-link' });
const long = (bytes: number) => 'x'.repeat(bytes);

const accepted: [string, Given[], LayerStep][] = [
  ['the root itself', [{ path: './' }], { parents: [], action: { do: 'directory', path: '' } }],
  ['a name is normalized', [{ path: './a//./b/' }], { parents: ['a'], action: { do: 'directory', path: 'a/b' } }],
  [
    'directories that are not named are made',
    [{ path: 'a/' }, { path: 'a/b/c/d' }],
    { parents: ['a/b', 'a/b/c'], action: { do: 'file', path: 'a/b/c/d', isReplaced: false } },
  ],
  [
    'a directory can be named again',
    [{ path: 'a/b' }, { path: 'a/' }],
    { parents: [], action: { do: 'directory', path: 'a' } },
  ],
  [
    'a file can replace a link',
    [link('a', 'b'), { path: 'a' }],
    { parents: [], action: { do: 'file', path: 'a', isReplaced: true } },
  ],
  [
    'the target of a link can be absolute',
    [link('bin/sh', '/bin/busybox')],
    {
      parents: ['bin'],
      action: { do: 'symbolic-link', path: 'bin/sh', target: '/bin/busybox', isReplaced: false },
    },
  ],
  [
    'the target of a link can climb to the root',
    [link('a/b/c', '../../d')],
    { parents: ['a', 'a/b'], action: { do: 'symbolic-link', path: 'a/b/c', target: '../../d', isReplaced: false } },
  ],
  [
    'a hard link to a file before it',
    [{ path: 'a/b' }, hardLink('c', './a/b')],
    { parents: [], action: { do: 'hard-link', path: 'c', target: 'a/b', isReplaced: false } },
  ],
  ['a whiteout', [{ path: 'a/.wh.b' }], { parents: ['a'], action: { do: 'white-out', path: 'a/b' } }],
  ['an opaque directory', [{ path: 'a/.wh..wh..opq' }], { parents: ['a'], action: { do: 'make-opaque', path: 'a' } }],
  ['an opaque root', [{ path: '.wh..wh..opq' }], { parents: [], action: { do: 'make-opaque', path: '' } }],
  ['bookkeeping of AUFS', [{ path: '.wh..wh.aufs' }], { parents: [], action: { do: 'skip' } }],
  [
    'a name of 255 bytes',
    [{ path: long(255) }],
    { parents: [], action: { do: 'file', path: long(255), isReplaced: false } },
  ],
  [
    'the highest id',
    [{ path: 'a', uid: 65_535, gid: 65_535 }],
    { parents: [], action: { do: 'file', path: 'a', isReplaced: false } },
  ],
];

for (const [name, entries, step] of accepted)
  t.test(`accepted: ${name}`, async (t) => void t.same(stepOf(entries), step));

const refused: [string, Given[], RegExp][] = [
  ['an absolute path', [{ path: '/a' }], /absolute/],
  ['a path with ..', [{ path: 'a/../b' }], /"\.\."/],
  ['a path that is ..', [{ path: '..' }], /"\.\."/],
  ['no name', [{ path: '' }], /no name/],
  ['a root that is not a directory', [{ path: './', kind: 'file' }], /root is a directory/],
  ['a root that is a link', [link('.', 'a')], /root is a directory/],
  ['a name of 256 bytes', [{ path: long(256) }], /255/],
  ['a name of fewer characters with more bytes', [{ path: 'ü'.repeat(128) }], /255/],
  ['a path of 4,097 bytes', [{ path: `${'ab/'.repeat(1365)}ab` }], /4096/],
  ['a name with a NUL', [{ path: 'a\0b' }], /NUL/],
  ['an entry below a link', [link('a', '/etc'), { path: 'a/passwd' }], /a, which is not a directory/],
  ['an entry below a link to a directory', [{ path: 'b/' }, link('a', 'b'), { path: 'a/c/d' }], /not a directory/],
  ['a directory in the place of a link', [link('a', 'b'), { path: 'a/' }], /something else/],
  ['a link in the place of a directory', [{ path: 'a/' }, link('a', 'b')], /something else/],
  ['a whiteout below a link', [link('a', '/etc'), { path: 'a/.wh.passwd' }], /not a directory/],
  ['an opaque link', [link('a', '/etc'), { path: 'a/.wh..wh..opq' }], /not a directory/],
  ['a whiteout of ..', [{ path: 'a/.wh...' }], /whiteout/],
  ['a whiteout of .', [{ path: 'a/.wh..' }], /whiteout/],
  ['a whiteout of nothing', [{ path: 'a/.wh.' }], /whiteout/],
  ['a directory named like a whiteout', [{ path: '.wh.a/b' }], /not a valid directory name/],
  ['a link that leaves the root', [link('a/b', '../../c')], /leaves the root/],
  ['a link that leaves the root and returns', [link('a', 'b/../../c')], /leaves the root/],
  ['a link without a target', [link('a', '')], /target/],
  ['a link with a long target', [link('a', long(4096))], /target/],
  ['a hard link to something outside', [hardLink('a', '../b')], /"\.\."/],
  ['a hard link to an absolute path', [hardLink('a', '/etc/passwd')], /absolute/],
  ['a hard link to a directory', [{ path: 'b/' }, hardLink('a', 'b')], /not an earlier file of this archive/],
  ['a hard link to the root', [hardLink('a', './')], /not an earlier file of this archive/],
  ['a hard link to nothing', [hardLink('a', 'b')], /not an earlier file of this archive/],
  ['a hard link to itself', [{ path: 'a' }, hardLink('a', './a')], /not an earlier file of this archive/],
  [
    'a hard link through a link',
    [{ path: 'd/a' }, link('e', 'd'), hardLink('b', 'e/a')],
    /not an earlier file of this archive/,
  ],
  ['a device', [{ path: 'null', kind: 'device' }], /device/],
  ['a FIFO', [{ path: 'pipe', kind: 'fifo' }], /FIFO/],
  ['an id outside of the range', [{ path: 'a', uid: 65_536 }], /less than 65536/],
  ['a negative id', [{ path: 'a', gid: -1 }], /less than 65536/],
  ['an id that is not an integer', [{ path: 'a', gid: 0.5 }], /less than 65536/],
  ['more entries than the limit', Array.from({ length: 21 }, (_, n) => ({ path: `f${n}` })), /20 entries/],
  ['more unnamed directories than the limit', [{ path: 'a/'.repeat(21) }], /20 entries/],
  [
    'more bytes of names than the limit',
    Array.from({ length: 3 }, (_, n) => ({ path: `${n}/${`${long(200)}/`.repeat(6)}` })),
    /10000 bytes/,
  ],
];

for (const [name, entries, message] of refused)
  t.test(`refused: ${name}`, async (t) => {
    const before = entries.slice(0, -1);
    if (before.length > 0) t.doesNotThrow(() => stepOf(before), 'because of its last entry');
    t.throws(() => stepOf(entries), { name: 'LayerError', code: 'InvalidLayer', message });
  });

t.test('nothing that is accepted leaves the root or lies below anything but directories', async () => {
  const name = fc.constantFrom('a', 'b', '..', '.', '', '.wh.a', '.wh..', '.wh...', '.wh..wh..opq');
  const path = fc
    .tuple(fc.constantFrom('', '', '/', './'), fc.array(name, { maxLength: 4 }))
    .map(([start, names]) => start + names.join('/'));
  const kind = fc.constantFrom('file', 'directory', 'hard-link', 'symbolic-link', 'device', 'fifo');
  const entry = fc.record({ path, kind, target: path }) as fc.Arbitrary<Given>;
  fc.assert(
    fc.property(fc.array(entry, { maxLength: 12 }), (entries) => {
      const tree = new LayerTree(RULES);
      const made = new Map<string, string>([['', 'directory']]);
      for (const one of entries) {
        let step: LayerStep;
        try {
          step = tree.add(entryOf(one));
        } catch (error) {
          return error instanceof LayerError;
        }
        for (const parent of step.parents) made.set(parent, 'directory');
        const { action } = step;
        if (action.do === 'skip') continue;
        const names = action.path.split('/');
        if (action.path !== '' && names.some((part) => ['', '.', '..'].includes(part))) return false;
        const above = names.slice(0, -1).map((_, index) => names.slice(0, index + 1).join('/'));
        if (above.some((parent) => made.get(parent) !== 'directory')) return false;
        if (action.do !== 'white-out' && action.do !== 'make-opaque') made.set(action.path, action.do);
        if (action.do === 'hard-link' && ['directory', undefined].includes(made.get(action.target))) return false;
      }
      return true;
    }),
    { numRuns: 5000 },
  );
});
