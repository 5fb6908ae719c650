/** Votes that arrive while too many others wait for the database, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { AgentMessenger, type PushSession } from '../../../../lib/control/push/messenger/agent-messenger.ts';
import { systemClock } from '../../../../lib/platform/clock.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { PUSH_CAPABILITY } from '../../../../lib/protocol/push.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';
import { claimedJob, nodeStates, seatedDatabase } from '../job-rows.ts';

const MAX_WAITING = 50_000;

t.test('an agent whose vote was dropped is asked again, and its next vote counts', async (t) => {
  const { database, run, seats, first } = await seatedDatabase(t, 1);
  await claimedJob(database, run, { seats });
  const hold = Promise.withResolvers<void>();
  const held: Queryable = {
    ...database,
    async query(text, values, options) {
      if (text.includes('cnapi_store_push_votes')) await hold.promise;
      return database.query(text, values, options);
    },
  };
  let prepares = 0;
  const capabilities = new Set([PUSH_CAPABILITY]);
  const session: PushSession = {
    ...first,
    capabilities,
    socket: {
      isBackedUp: false,
      send(frame) {
        if (frame.type !== 'push_prepare') return true;
        prepares += 1;
        messenger.onVote(session, { type: 'push_vote', job: frame.job, ready: true });
        return true;
      },
    },
  };
  const messenger = new AgentMessenger({
    database: held,
    bus: createMemoryBus({ clock: systemClock, log: silentLogger, random: systemRandom, hub: new MemoryHub() }),
    clock: systemClock,
    log: silentLogger,
    config: { slowPollMs: 50, slowPollNoBusMs: 50 },
    session: (serverUuid) => (serverUuid === first.serverUuid ? session : undefined),
    unsent: { isHalfFull: false },
  });
  t.teardown(() => messenger.stop());
  const other: PushSession = { ...session, serverUuid: randomUUID() };
  for (let votes = 0; votes < MAX_WAITING; votes += 1)
    messenger.onVote(other, { type: 'push_vote', job: randomUUID(), ready: true });
  t.equal(messenger.stats().votes, MAX_WAITING);
  messenger.start();
  await until(() => prepares > 0);
  t.equal(messenger.stats().votes, MAX_WAITING, 'its vote was dropped');
  hold.resolve();
  await until(async () => (await nodeStates(database)).ready === 1);
  t.ok(prepares > 1);
});
