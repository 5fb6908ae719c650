import { randomUUID } from 'node:crypto';
import t from 'tap';
import { Reconciler } from '../../../../lib/control/tasks/dispatch/reconciler.ts';
import type { TaskSession } from '../../../../lib/control/tasks/sessions.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { type Clock, systemClock } from '../../../../lib/platform/time/clock.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { until } from '../../../support/until.ts';

/**
 * A reconciler over a database in which `serverUuid` has one inherited task. Statements wait while
 * `gate` is set.
 */
function setUp(t: { teardown(work: () => unknown): void }, clock: Clock = systemClock) {
  const serverUuid = randomUUID();
  const task = {
    id: randomUUID(),
    serverUuid,
    attempt: 1,
    journalId: randomUUID(),
    idempotent: true,
    uncertain: false,
    wasAccepted: false,
  };
  const state = {
    isSettled: false,
    gate: undefined as Promise<unknown> | undefined,
    current: undefined as unknown,
    refused: 0,
  };
  const epochs: number[] = [];
  const settled: string[] = [];
  const database: Queryable = {
    async query<Row>(text: string, values?: readonly unknown[]) {
      const rows: unknown[] = [];
      if (text.includes('cnapi_settle_inventories')) {
        if (state.isSettled) rows.push({ id: task.id, what: 'changed' });
      } else {
        epochs.push(...((values?.[1] ?? []) as number[]));
        await state.gate;
        if (epochs.at(-1) === state.refused) throw new Error('refused');
        if (settled.length === 0) rows.push({ ...task, cancelRequested: false });
      }
      return { rows: rows as Row[], rowCount: rows.length };
    },
  };
  const reconciler = new Reconciler({
    database,
    sessions: { run: randomUUID, isFull: false, get: () => state.current as TaskSession },
    clock,
    log: silentLogger,
    onChanged: () => {},
    onSettled: (server) => settled.push(server),
  });
  t.teardown(() => reconciler.stop());
  const come = (epoch: number) => {
    const session = {
      serverUuid,
      epoch,
      journalId: randomUUID(),
      capabilities: new Set<string>(),
      isBackedUp: false,
      unsentBytes: 0,
      send: () => true,
    };
    state.current = session;
    reconciler.add(session, { type: 'inventory', epoch, tasks: [] });
  };
  return { reconciler, state, epochs, settled, come, serverUuid };
}

t.test('an inventory that could not be settled is retried until it is', async (t) => {
  const { reconciler, state, epochs, settled, come, serverUuid } = setUp(t);
  come(1);
  await until(() => epochs.length > 5, 'all rounds and another one after them');
  t.same([settled, reconciler.size], [[], 1]);
  state.isSettled = true;
  await until(() => settled.length > 0, 'it to be settled');
  t.same(settled, [serverUuid]);
});

t.test("an earlier session's inventory does not replace a later one's", async (t) => {
  const { state, epochs, settled, come } = setUp(t);
  const gate = Promise.withResolvers<void>();
  state.gate = gate.promise;
  come(1);
  await until(() => epochs.length === 1, 'the first to be in progress');
  come(2);
  state.isSettled = true;
  gate.resolve();
  await until(() => settled.length === 2, 'both to be settled');
  t.same(epochs, [1, 2]);
});

t.test('an inventory that the database refuses is tried ever more rarely, and the next one at once', async (t) => {
  const clock = new ManualClock();
  const { reconciler, state, epochs, settled, come, serverUuid } = setUp(t, clock);
  state.refused = 1;
  state.isSettled = true;
  come(1);
  for (let second = 0; second < 120; second += 1) await clock.advance(1_000);
  t.ok(epochs.length > 5 && epochs.length < 20, `tried ${epochs.length} times in two minutes`);
  t.same([settled, reconciler.size], [[], 1]);
  come(2);
  await clock.advance(100);
  t.same([settled, reconciler.size], [[serverUuid], 0]);
});

t.test('the inherited tasks of a fleet are settled in parts', async (t) => {
  const serverUuids = Array.from({ length: 50 }, () => randomUUID());
  const open = new Map<string, object>(
    serverUuids.flatMap((serverUuid) =>
      Array.from({ length: 100 }, () => {
        const id = randomUUID();
        const task = {
          id,
          serverUuid,
          attempt: 1,
          journalId: randomUUID(),
          idempotent: true,
          uncertain: false,
          wasAccepted: false,
        };
        return [id, { ...task, cancelRequested: false }] as const;
      }),
    ),
  );
  const parts: number[] = [];
  const sessions = new Map<string, TaskSession>();
  const settled = new Set<string>();
  const database: Queryable = {
    async query<Row>(text: string, values?: readonly unknown[]) {
      if (!text.includes('cnapi_settle_inventories')) {
        const rows = [...open.values()].slice(0, values?.[2] as number);
        return { rows: rows as Row[], rowCount: rows.length };
      }
      const ids = values?.[1] as string[];
      parts.push(ids.length);
      for (const id of ids) open.delete(id);
      return { rows: ids.map((id) => ({ id, what: 'changed' })) as Row[], rowCount: ids.length };
    },
  };
  const reconciler = new Reconciler({
    database,
    sessions: { run: randomUUID, isFull: false, get: (serverUuid) => sessions.get(serverUuid) },
    clock: systemClock,
    log: silentLogger,
    onChanged: () => {},
    onSettled: (serverUuid) => settled.add(serverUuid),
  });
  t.teardown(() => reconciler.stop());
  for (const serverUuid of serverUuids) {
    const session: TaskSession = {
      serverUuid,
      epoch: 2,
      journalId: randomUUID(),
      capabilities: new Set<string>(),
      isBackedUp: false,
      unsentBytes: 0,
      send: () => true,
    };
    sessions.set(serverUuid, session);
    reconciler.add(session, { type: 'inventory', epoch: 2, tasks: [] });
  }
  await until(() => settled.size === 50, 'all to be settled');
  t.equal(open.size, 0);
  t.ok(parts.every((part) => part <= 2_000));
});

t.test('an inventory whose session is over is forgotten', async (t) => {
  const { reconciler, state, epochs, come } = setUp(t);
  come(1);
  await until(() => epochs.length > 0, 'it to be in progress');
  state.current = undefined;
  await until(() => reconciler.size === 0, 'it to be forgotten');
});

t.test(
  'what ended or has no record is cancelled, and the other held tasks continue, but for a locked one',
  async (t) => {
    const [open, ended, deleted, locked] = [randomUUID(), randomUUID(), randomUUID(), randomUUID()];
    const recorded = new Map<string, string>([
      [open, 'open'],
      [ended, 'ended'],
      [locked, 'unsettled'],
    ]);
    const serverUuid = randomUUID();
    const inherited = { id: locked, serverUuid, attempt: 1, journalId: '', idempotent: true, cancelRequested: false };
    const database: Queryable = {
      async query<Row>(text: string, [ids]: readonly unknown[] = []) {
        const isLocked = recorded.get(locked) === 'unsettled';
        const rows: unknown[] = text.includes('as recorded')
          ? (ids as string[]).flatMap((id) =>
              recorded.has(id) ? [{ serverUuid, id, recorded: recorded.get(id) }] : [],
            )
          : text.includes('cnapi_settle_inventories')
            ? [{ id: locked, what: 'locked' }]
            : isLocked
              ? [inherited]
              : [];
        return { rows: rows as Row[], rowCount: rows.length };
      },
    };
    const sent: unknown[] = [];
    const session: TaskSession = {
      ...{ serverUuid, epoch: 3, journalId: randomUUID(), capabilities: new Set<string>() },
      ...{ isBackedUp: false, unsentBytes: 0 },
      send: (frame) => sent.push(frame.type === 'task_cancel' ? frame.id : frame) > 0,
    };
    const sessions = { run: randomUUID, isFull: false, get: () => session };
    const parts = { database, sessions, clock: systemClock, log: silentLogger, onChanged: () => {} };
    const settled: unknown[] = [];
    const reconciler = new Reconciler({ ...parts, onSettled: () => settled.push(sent.length) });
    t.teardown(() => reconciler.stop());
    const taskOf = (id: string) => ({ id, attempt: 1, state: 'accepted' as const });
    const held = [open, ended, deleted, locked].map((id) => ({ ...taskOf(id), held: true as const }));
    reconciler.add(session, { type: 'inventory', epoch: 3, tasks: held });
    await until(() => sent.length === 3, 'the answer');
    t.same(sent, [ended, deleted, { type: 'inventory_settled', epoch: 3, tasks: [open] }]);
    t.same(settled, [], 'tasks are claimed for it later');
    recorded.set(locked, 'open');
    await until(() => settled.length === 1, 'the rest to be settled');
    t.same(sent.slice(3), [{ type: 'inventory_settled', epoch: 3, tasks: [locked] }]);
    t.same(settled, [4], 'and the claim follows the answer');
    reconciler.add(session, { type: 'inventory', epoch: 3, tasks: [taskOf(deleted)] });
    await until(() => settled.length === 2, 'an inventory without held tasks to be settled');
    t.equal(sent.length, 4, 'needs no answer, and work that goes on is left alone');
  },
);
