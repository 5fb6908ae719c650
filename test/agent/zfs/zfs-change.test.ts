import t from 'tap';
import {
  dependsOnUse,
  reasonInUse,
  reasonNotSettable,
  reasonNotToChange,
  type ZfsAction,
  type ZfsUse,
} from '../../../lib/agent/zfs/zfs-change.ts';

const VM = 'c1a7e9f0-0000-4000-8000-000000000001';
const use: ZfsUse = { allowed: ['zones/data', 'tank'], vmUuids: [VM], directories: ['/var/lib/agent', '/srv/vm'] };

const names: [string, ZfsAction, string, RegExp | undefined][] = [
  ['below what is named', 'create', 'zones/data/a', undefined],
  ['a name that only begins like it', 'create', 'zones/database', /only datasets within zones\/data, tank/],
  ['above what is named', 'snapshot', 'zones@a', /only datasets/],
  ['another pool', 'destroy', 'rpool/a', /only datasets/],
  ['what is named itself, destroyed', 'destroy', 'zones/data', /named by --zfs/],
  ['what is named itself, renamed', 'rename', 'zones/data', /named by --zfs/],
  ['what is named itself, set', 'set', 'zones/data', undefined],
  ['its snapshot, destroyed', 'destroy', 'zones/data@a', undefined],
  ['the root of a pool, destroyed', 'destroy', 'tank', /root dataset of a pool/],
  ['the snapshot of a root, destroyed', 'destroy', 'tank@a', undefined],
  ['the dataset of a VM, destroyed', 'destroy', `tank/${VM}/disk`, /belongs to VM/],
  ['the dataset of a VM, rolled back', 'rollback', `tank/${VM}@a`, /belongs to VM/],
  ['the dataset of a VM, with a snapshot', 'snapshot', `tank/${VM}@a`, undefined],
];

for (const [what, action, name, reason] of names)
  t.test(`a name: ${what}`, async (t) => {
    const refusal = reasonNotToChange(action, name, use);
    if (reason === undefined) t.equal(refusal, undefined);
    else t.match(refusal, reason);
  });

t.test('without --zfs nothing is changed', async (t) => {
  t.match(reasonNotToChange('set', 'tank', { ...use, allowed: [] }), /without --zfs/);
});

const mounts: [string, string, boolean][] = [
  ['where a used directory is', '/var/lib', true],
  ['a used directory itself', '/srv/vm', true],
  ['in a used directory', '/srv/vm/below', true],
  ['at the root', '/', true],
  ['beside it', '/srv/vms', false],
  ['nowhere', 'none', false],
];

for (const [what, mountpoint, isUsed] of mounts)
  t.test(`mounted ${what}`, async (t) => t.equal(reasonInUse('tank/a', mountpoint, use) !== undefined, isUsed));

t.test('where it is mounted counts for what loses files or the mount', async (t) => {
  const rows: [ZfsAction, string, boolean][] = [
    ['destroy', 'tank/a', true],
    ['destroy', 'tank/a@b', false],
    ['rename', 'tank/a', true],
    ['rollback', 'tank/a@b', true],
    ['snapshot', 'tank/a@b', false],
    ['set', 'tank/a', false],
  ];
  for (const [action, name, depends] of rows) t.equal(dependsOnUse(action, name), depends, `${action} ${name}`);
});

t.test('properties that decide over the server are not set', async (t) => {
  t.equal(reasonNotSettable(['quota', 'org:mountpoint']), undefined);
  for (const name of ['mountpoint', 'sharenfs', 'sharesmb', 'keylocation'])
    t.match(reasonNotSettable(['quota', name]), name);
});
