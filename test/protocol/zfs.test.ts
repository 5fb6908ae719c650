import t from 'tap';
import {
  datasetOf,
  reasonNotDataset,
  reasonNotDatasetOrSnapshot,
  reasonNotProperty,
  reasonNotPropertyValue,
  reasonNotSnapshot,
} from '../../lib/protocol/zfs.ts';

const LONG = `zones/${'x'.repeat(250)}`;
const DEEP = `zones${'/a'.repeat(50)}`;

const datasets: [string, string, boolean][] = [
  ['a pool', 'zones', true],
  ['a dataset below others', 'zones/a.b/c-d_e:f', true],
  ['a space inside', 'zones/two words', true],
  ['a part that begins with a dash', 'zones/-r', true],
  ['as deep as may be', DEEP.slice(0, -2), true],
  ['one level too many', DEEP, false],
  ['too long', LONG, false],
  ['empty', '', false],
  ['an option', '-r', false],
  ['a pool that begins with a digit', '1zones', false],
  ['an empty part', 'zones//a', false],
  ['a slash at the end', 'zones/', false],
  ['an absolute path', '/zones', false],
  ['this folder', 'zones/.', false],
  ['the folder above', 'zones/../a', false],
  ['a space at the end', 'zones/a ', false],
  ['a percent sign', 'zones/%recv', false],
  ['a snapshot', 'zones/a@b', false],
  ['a bookmark', 'zones/a#b', false],
  ['a second line', 'zones/a\nb', false],
  ['another alphabet', 'zones/ä', false],
];

for (const [what, name, isDataset] of datasets)
  t.test(`as a dataset: ${what}`, async (t) => t.equal(reasonNotDataset(name) === undefined, isDataset));

const snapshots: [string, string, boolean][] = [
  ['a snapshot', 'zones/a@one', true],
  ['one that begins with a dash', 'zones/a@-r', true],
  ['a dataset', 'zones/a', false],
  ['without a name', 'zones/a@', false],
  ['a list', 'zones/a@b,c', false],
  ['a range', 'zones/a@b%c', false],
  ['two names', 'zones/a@b@c', false],
  ['a path', 'zones/a@b/c', false],
  ['too long', `zones@${'x'.repeat(250)}`, false],
];

for (const [what, name, isSnapshot] of snapshots)
  t.test(`as a snapshot: ${what}`, async (t) => t.equal(reasonNotSnapshot(name) === undefined, isSnapshot));

t.test('properties and their values', async (t) => {
  for (const name of ['quota', 'org.example:owner', 'userquota@alice', 'written@one'])
    t.equal(reasonNotProperty(name), undefined, name);
  for (const name of ['', '-p', 'Quota', 'a,b', 'a b', 'a=b', '1a', 'x'.repeat(256)])
    t.ok(reasonNotProperty(name), name);
  for (const value of ['', '10G', 'a = b', '-x', 'x'.repeat(8191)]) t.equal(reasonNotPropertyValue(value), undefined);
  for (const value of ['a\nb', 'a\tb', 'a\0b', 'ä'.repeat(4096)]) t.ok(reasonNotPropertyValue(value));
});

t.test('what has an @ is a snapshot of the dataset before it', async (t) => {
  t.equal(datasetOf('zones/a@one'), 'zones/a');
  t.equal(datasetOf('zones/a'), 'zones/a');
  t.equal(reasonNotDatasetOrSnapshot('zones/a@one'), undefined);
  t.ok(reasonNotDatasetOrSnapshot('zones/a@'));
});
