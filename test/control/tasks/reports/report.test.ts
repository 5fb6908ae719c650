import t from 'tap';
import { sizeOf, toEnd, withoutResult } from '../../../../lib/control/tasks/reports/report.ts';
import type { TaskEndFrame } from '../../../../lib/protocol/link/frames.ts';

const end = (fields: Partial<TaskEndFrame>): TaskEndFrame => ({
  type: 'task_end',
  id: 'x',
  attempt: 1,
  outcome: 'complete',
  reportedAt: 'then',
  ...fields,
});
const nested = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels));
const error = { code: 'Mine', message: 'broken' };

t.test('an end keeps what the agent reported', async (t) => {
  t.same(toEnd(end({ result: { exit: 0, deep: nested(99) } })), {
    name: 'complete',
    reportedAt: 'then',
    resultJson: JSON.stringify({ exit: 0, deep: nested(99) }),
  });
  t.same(toEnd(end({})), { name: 'complete', reportedAt: 'then', resultJson: undefined });
  t.match(toEnd(end({ outcome: 'failure', error })), { name: 'failure', error });
  t.match(toEnd(end({ outcome: 'failure' })), { error: { code: 'Failed' } });
});

t.test('an error is kept as text that the database can store', async (t) => {
  const unstorable = { code: 'a\0', message: 'a\0b and half of a pair \ud83d' };
  t.match(toEnd(end({ outcome: 'failure', error: unstorable })), {
    error: { code: 'a\uFFFD', message: 'a\uFFFDb and half of a pair \uFFFD' },
  });
});

t.test('a result that cannot be kept is replaced, and the outcome stands', async (t) => {
  const table: [string, Record<string, unknown>, RegExp][] = [
    ['a little too deep', { x: nested(100) }, /nested more than 100 levels/],
    ['deep enough to overflow a stack', { x: nested(200_000) }, /nested more than 100 levels/],
    ['deep, after many flat values', { x: [...Array(1000).fill({ a: [1] }), nested(200_000)] }, /nested/],
    ['larger when printed than any frame', { x: Array(600_000).fill(1e20) }, /characters long/],
  ];
  for (const [name, result, why] of table) {
    const { resultJson, ...rest } = toEnd(end({ outcome: 'failure', error, result }));
    t.match(JSON.parse(resultJson ?? ''), { truncated: true, message: why }, name);
    t.same(rest, { name: 'failure', reportedAt: 'then', error }, name);
  }
  const bare = withoutResult(toEnd(end({ result: { x: 1 } })), 'no room');
  t.match(bare, { name: 'complete', resultJson: /no room/ });
});

t.test('the size of a report is that of its texts and a constant', async (t) => {
  const message = 'm'.repeat(4000);
  const constant = sizeOf({ name: 'started', reportedAt: '' });
  t.ok(constant > 0);
  const four = { code: 'x', message: 'four' };
  t.equal(sizeOf({ name: 'progress', reportedAt: '', value: 1, message: undefined }), constant);
  t.equal(sizeOf(toEnd(end({}))), constant);
  t.equal(sizeOf(toEnd(end({ outcome: 'failure', error: four }))), constant + 4);
  const both = end({ outcome: 'failure', error: four, result: { x: 1 } });
  t.equal(sizeOf(toEnd(both)), constant + JSON.stringify({ x: 1 }).length + 4);
  t.ok(sizeOf({ name: 'progress', reportedAt: '', value: 1, message }) > 4000);
  t.ok(sizeOf({ name: 'output', reportedAt: '', stream: 'stdout', offset: 0, text: message, bytes: 4000 }) > 4000);
  t.ok(sizeOf(toEnd(end({ result: { message } }))) > 4000);
  t.ok(sizeOf(toEnd(end({ outcome: 'failure', error: { code: 'x', message } }))) > 4000);
});
