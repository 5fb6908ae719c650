import t from 'tap';
import { failureText, parseList, parseProperties } from '../../../lib/agent/zfs/zfs-output.ts';

const narrower = 'name a dataset';
const fields = ['name', 'used'] as const;

t.test('a list: a line for each, with tabs', async (t) => {
  t.same(parseList('', fields, { narrower }), []);
  t.same(parseList('tank\t1.5G\ntank/two words\t-\n', fields, { narrower }), [
    { name: 'tank', used: '1.5G' },
    { name: 'tank/two words', used: '-' },
  ]);
  t.throws(() => parseList('tank\t1\t2\n', fields, { narrower }), { code: 'ZfsFailed' });
});

t.test('properties by dataset, also with a value of two lines', async (t) => {
  const text = 'tank\tquota\t0\ntank\torg:note\tone\ttwo\nthree\ntank@a\tquota\t-\n';
  const found = { tank: { quota: '0', 'org:note': 'one\ttwo\nthree' }, 'tank@a': { quota: '-' } };
  t.same(parseProperties(text, { narrower }), found);
  t.same(parseProperties('', { narrower }), {});
  t.same(parseProperties('__proto__\tquota\t0\n', { narrower }).tank, undefined);
});

t.test('more than the result of a task can hold is refused as a whole', async (t) => {
  const error = { code: 'ZfsOutputTooLarge', message: /name a dataset/ };
  t.equal(parseList('tank\t1\n'.repeat(3980), fields, { narrower }).length, 3980);
  t.throws(() => parseList('tank\t1\n'.repeat(3981), fields, { narrower }), error);
  const properties = Array.from({ length: 9950 }, (_, index) => `tank\tp${index}\t1\n`).join('');
  t.throws(() => parseProperties(properties, { narrower }), error);
});

t.test('a failure is what the program said, without its usage', async (t) => {
  const end = { exitCode: 1 };
  t.equal(
    failureText("bad property list: invalid property 'x'\nusage:\n\tget …\n", end),
    "bad property list: invalid property 'x'",
  );
  t.equal(failureText('cannot destroy:\n  has children\n', end), 'cannot destroy:; has children');
  t.equal(failureText('', end), 'ZFS ended with exit code 1');
  t.equal(failureText('x'.repeat(5000), end).length, 1000);
});
