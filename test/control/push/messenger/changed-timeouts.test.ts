/** What an instance reads of changed limits of commands, on a real Postgres. */
import t, { type Test } from 'tap';
import { changePushJob } from '../../../../lib/control/push/change-store.ts';
import { changeTimeouts } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { AgentMessenger, type PushSession } from '../../../../lib/control/push/messenger/agent-messenger.ts';
import type { PushOrder } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import type { PushOrderFrame } from '../../../../lib/protocol/link/frames.ts';
import { PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY } from '../../../../lib/protocol/push.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';
import { claimedJob, seatedDatabase, startAll } from '../job-rows.ts';

const NODES = 50;

function startMessenger(t: Test, { database, slowPollMs }: { database: Queryable; slowPollMs: number }) {
  const sent: { serverUuid: string; frame: PushOrderFrame }[] = [];
  const sessions = new Map<string, PushSession>();
  const connect = (serverUuid: string) =>
    sessions.set(serverUuid, {
      serverUuid,
      incarnation: serverUuid,
      capabilities: new Set([PUSH_CAPABILITY, PUSH_TIMEOUT_CAPABILITY]),
      socket: { isBackedUp: false, send: (frame) => sent.push({ serverUuid, frame }) > 0 },
    });
  const messenger = new AgentMessenger({
    database,
    bus: createMemoryBus({ clock: systemClock, log: silentLogger, random: systemRandom, hub: new MemoryHub() }),
    clock: systemClock,
    log: silentLogger,
    config: { slowPollMs, slowPollNoBusMs: slowPollMs },
    session: (serverUuid) => sessions.get(serverUuid),
    unsent: { isHalfFull: false },
  });
  messenger.start();
  t.teardown(() => messenger.stop());
  return { messenger, sent, connect };
}

t.test('an instance reads each changed limit once, whoever polls, and again for a session that begins', async (t) => {
  const { database, run, seats, first } = await seatedDatabase(t, NODES);
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);

  const read = { orders: 0, timeouts: 0 };
  const counted: Queryable = {
    ...database,
    async query(text, values, options) {
      const answer = await database.query(text, values, options);
      if (text.includes('as e\n')) {
        read.orders += 1;
        read.timeouts += (answer.rows as unknown as PushOrder[]).filter(({ what }) => what === 'timeout').length;
      }
      return answer as never;
    },
  };
  const { messenger, sent, connect } = startMessenger(t, { database: counted, slowPollMs: 5 });
  for (const { serverUuid } of seats) connect(serverUuid);
  const afterPolls = async () => {
    const { orders } = read;
    await until(() => read.orders >= orders + 5);
  };

  await changePushJob(database, duty.id, { changes: { run_timeout_ms: 90_000 } });
  await changeTimeouts(database, duty, NODES - 10);
  await until(() => sent.length === NODES - 10);
  await afterPolls();
  await changeTimeouts(database, duty, NODES);
  await until(() => sent.length === NODES);
  await afterPolls();
  t.equal(read.timeouts, NODES, 'those of the first step once, although a second step followed');

  await changePushJob(database, duty.id, { changes: { run_timeout_ms: 120_000 } });
  await changeTimeouts(database, duty, NODES);
  await until(() => sent.length === 2 * NODES);
  await afterPolls();
  t.equal(read.timeouts, 2 * NODES);

  connect(first.serverUuid);
  messenger.sessionBegan(first.serverUuid);
  await until(() => sent.length > 2 * NODES);
  t.same(sent.at(-1), {
    serverUuid: first.serverUuid,
    frame: { type: 'push_timeout', job: duty.id, timeoutMs: 120_000 },
  });
  await afterPolls();
  t.equal(read.timeouts, 2 * NODES + 1);
  t.equal(sent.length, 2 * NODES + 1);
});

t.test('an agent is told a limit that has the number of one that the database has lost', async (t) => {
  const { database, run, seats, first } = await seatedDatabase(t, 1);
  const duty = await claimedJob(database, run, { seats });
  await startAll(database, duty, seats);
  const { messenger, sent, connect } = startMessenger(t, { database, slowPollMs: 600_000 });
  connect(first.serverUuid);
  for (const ms of [90_000, 120_000]) {
    await changePushJob(database, duty.id, { changes: { run_timeout_ms: ms } });
    await changeTimeouts(database, duty, 1);
  }
  messenger.sendOrdersFor([duty.id]);
  await until(() => sent.length === 1);
  await database.query('update cnapi_push_jobs set timeout_changes = 1');
  await database.query('update cnapi_push_nodes set timeout_change = 1, timeout_ms = 90000');
  messenger.sendOrdersFor([duty.id]);
  await until(() => sent.length === 2);
  t.same(
    sent.map(({ frame }) => 'timeoutMs' in frame && frame.timeoutMs),
    [120_000, 90_000],
  );
});
