import { randomUUID } from 'node:crypto';
import t from 'tap';
import { Recorder } from '../../../../lib/control/tasks/reports/recorder.ts';
import type { TaskSession } from '../../../../lib/control/tasks/sessions.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import type { TaskEndFrame, TaskEventFrame } from '../../../../lib/protocol/link/frames.ts';
import { until } from '../../../support/until.ts';

/** A recorder over a database that answers as `answer` says, and the statements that reached it. */
function setUp(
  t: { teardown(work: () => unknown): void },
  answer: (names: string[], ids: string[]) => void = () => {},
) {
  const statements: string[][] = [];
  /** Whether the reports of each statement may already be stored, and the reports. */
  const repeated: unknown[] = [];
  const acknowledged: string[] = [];
  const database: Queryable = {
    async query(_text, values) {
      const all = values as unknown[];
      const [ids, , , names] = all as [string[], unknown, unknown, string[]];
      const isRepeated = all[12];
      await new Promise((resolve) => setImmediate(resolve));
      answer(names, ids);
      statements.push(names);
      repeated.push(isRepeated);
      return { rows: [], rowCount: 0 };
    },
  };
  const recorder = new Recorder({
    database,
    clock: systemClock,
    log: silentLogger,
    onChanged: () => {},
    onStored: () => {},
  });
  t.teardown(() => recorder.stop());
  const session: TaskSession = {
    serverUuid: randomUUID(),
    epoch: 1,
    journalId: randomUUID(),
    capabilities: new Set(),
    isBackedUp: false,
    unsentBytes: 0,
    send: (frame) => frame.type !== 'task_ack' || acknowledged.push(frame.id) > 0,
  };
  return { recorder, session, statements, repeated, acknowledged };
}

const output = (id: string, offset: number, text: string, stream: 'stdout' | 'stderr' = 'stdout'): TaskEventFrame => ({
  type: 'task_event',
  id,
  attempt: 1,
  event: { name: 'output', reportedAt: '', stream, offset, text },
});
const started = (id: string): TaskEventFrame => ({
  type: 'task_event',
  id,
  attempt: 1,
  event: { name: 'started', reportedAt: '' },
});
const end = (id: string): TaskEndFrame => ({ type: 'task_end', id, attempt: 1, outcome: 'complete', reportedAt: '' });

t.test('reports gathered meanwhile are one statement, an end last, and are acknowledged once recorded', async (t) => {
  const { recorder, session, statements, acknowledged } = setUp(t);
  recorder.event(session, started('x'));
  recorder.event(session, output('x', 0, 'one'));
  recorder.event(session, output('x', 3, 'two'));
  recorder.event(session, output('x', 6, 'other', 'stderr'));
  recorder.end(session, end('x'));
  t.same(acknowledged, []);
  await until(() => acknowledged.length > 0, 'the acknowledgement');
  t.same(statements, [['started', 'output', 'output', 'output', 'complete']]);
  t.same(acknowledged, ['x']);
  t.equal(recorder.size, 0);
});

t.test('while the database is away an end waits unacknowledged, with later reports behind it', async (t) => {
  let isAway = true;
  const { recorder, session, statements, acknowledged } = setUp(t, () => {
    if (isAway) throw new DatabaseUnavailableError();
  });
  recorder.event(session, started('x'));
  await new Promise((resolve) => setTimeout(resolve, 60));
  recorder.event(session, output('x', 0, 'text'));
  recorder.end(session, end('x'));
  recorder.end(session, end('x'));
  await new Promise((resolve) => setTimeout(resolve, 60));
  t.same([acknowledged, statements], [[], []]);
  isAway = false;
  await until(() => acknowledged.length > 0, 'the acknowledgement');
  t.same(statements, [['started', 'output', 'complete']]);
});

t.test('a statement whose answer was lost is sent again unchanged, and marked', async (t) => {
  let failures = 0;
  const { recorder, session, statements, repeated, acknowledged } = setUp(t, () => {
    if (failures++ === 0) throw new DatabaseUnavailableError();
  });
  recorder.event(session, output('x', 0, 'one'));
  await until(() => failures === 1, 'the statement whose answer is lost');
  await new Promise((resolve) => setImmediate(resolve));
  recorder.event(session, output('x', 3, 'two'));
  recorder.event(session, output('x', 6, 'three'));
  recorder.end(session, end('x'));
  await until(() => acknowledged.length === 1, 'the acknowledgement');
  recorder.end(session, end('y'));
  await until(() => acknowledged.length === 2, 'the next statement');
  t.same(statements, [['output', 'output', 'output', 'complete'], ['complete']]);
  t.same(repeated, [[true, true, true, true], null]);
});

t.test('a report that the database refuses does not delay the others', async (t) => {
  const { recorder, session, acknowledged } = setUp(t, (_names, ids) => {
    if (ids.includes('bad')) throw new Error('no such thing');
  });
  for (const id of ['first', 'bad', 'last']) recorder.end(session, end(id));
  recorder.end(session, end('more'));
  await until(() => acknowledged.length === 3, 'the others');
  t.same(acknowledged.toSorted(), ['first', 'last', 'more']);
  t.equal(recorder.size, 0);
});

t.test('excess reports are dropped and counted, and ends are accepted longer than events', async (t) => {
  const { recorder, session } = setUp(t, () => {
    throw new DatabaseUnavailableError();
  });
  const text = 'x'.repeat(16 * 1024);
  for (let n = 0; n < 4_000; n++) recorder.event(session, output(`chatty ${n % 40}`, n, text));
  t.ok(recorder.droppedEvents > 1_000);
  t.ok(recorder.size < 33 * 1024 * 1024);
  recorder.end(session, end('x'));
  t.equal(recorder.refusedEnds, 0);
  const result = { text: 'x'.repeat(8_000_000) };
  for (let n = 0; n < 12; n++) recorder.end(session, { ...end(`big ${n}`), result });
  t.ok(recorder.refusedEnds > 0);
  t.ok(recorder.size < 73 * 1024 * 1024);
});

t.test('a task with much output takes no room from others or from its own start', async (t) => {
  const { recorder, session } = setUp(t, () => {
    throw new DatabaseUnavailableError();
  });
  const text = 'x'.repeat(16 * 1024);
  for (let n = 0; n < 4_000; n++) recorder.event(session, output('loud', n, text));
  t.ok(recorder.droppedEvents > 3_000);
  t.ok(recorder.size < 3 * 1024 * 1024, 'its waiting output fits into one statement');
  const dropped = recorder.droppedEvents;
  recorder.event(session, started('loud'));
  for (let n = 0; n < 20; n++) recorder.event(session, output(`quiet ${n}`, 0, text));
  t.equal(recorder.droppedEvents, dropped);
});

t.test('the progress of many tasks is bounded including its messages', async (t) => {
  const { recorder, session } = setUp(t, () => {
    throw new DatabaseUnavailableError();
  });
  const event = { name: 'progress', reportedAt: '', value: 1, message: 'x'.repeat(4000) } as const;
  for (let n = 0; n < 10_000; n++) recorder.event(session, { type: 'task_event', id: String(n), attempt: 1, event });
  t.ok(recorder.droppedEvents > 1_000);
});

t.test('a result that the database refuses is left out, and the end is still recorded', async (t) => {
  const { recorder, session, statements, acknowledged } = setUp(t, (names) => {
    if (names.includes('started') || names.length > 1)
      throw Object.assign(new Error('stack depth limit exceeded'), { code: '54001' });
  });
  recorder.event(session, started('bad'));
  recorder.end(session, end('bad'));
  await until(() => acknowledged.length === 1, 'the acknowledgement');
  t.same(statements, [['complete']]);
  t.equal(recorder.size, 0);
});

t.test('a stop stores what can be stored', async (t) => {
  const { recorder, session, statements, acknowledged } = setUp(t);
  recorder.event(session, started('x'));
  await recorder.stop();
  t.same(statements, [['started']]);
  recorder.end(session, end('y'));
  t.same(acknowledged, [], 'later reports are not accepted');
});
