/** Votes that arrive while many others wait for the database, on a real Postgres. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { closeVoting } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { AgentMessenger, type PushSession } from '../../../../lib/control/push/messenger/agent-messenger.ts';
import { MAX_ANSWERS_PER_SERVER, MAX_WAITING } from '../../../../lib/control/push/messenger/answer-queue.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { PUSH_CAPABILITY } from '../../../../lib/protocol/push.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';
import { claimedJob, nodeStates, seatedDatabase } from '../job-rows.ts';

/**
 * A job that one agent is asked for, while the database stores no votes until `store` is called.
 */
async function heldVotes(t: Test) {
  const { database, run, seats, first } = await seatedDatabase(t, 1);
  const duty = await claimedJob(database, run, { seats });
  const hold = Promise.withResolvers<void>();
  let begun = 0;
  const held: Queryable = {
    ...database,
    async query(text, values, options) {
      if (text.includes('cnapi_store_push_votes')) {
        begun += 1;
        await hold.promise;
      }
      return database.query(text, values, options);
    },
  };
  const agent = { prepares: 0, aborts: 0 };
  const session: PushSession = {
    ...first,
    capabilities: new Set([PUSH_CAPABILITY]),
    socket: {
      isBackedUp: false,
      send(frame) {
        if (frame.type === 'push_abort') agent.aborts += 1;
        if (frame.type !== 'push_prepare') return true;
        agent.prepares += 1;
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
  t.teardown(() => {
    hold.resolve();
    return messenger.stop();
  });
  return {
    ...{ database, duty, messenger, session, agent, store: hold.resolve },
    kept: () => messenger.stats().votes,
    /** Statements that store votes. */
    begun: () => begun,
    other: (): PushSession => ({ ...session, serverUuid: randomUUID() }),
    /** Fills the queue of votes. */
    fill() {
      while (messenger.stats().votes < MAX_WAITING) {
        const other: PushSession = { ...session, serverUuid: randomUUID() };
        for (let votes = 0; votes < MAX_ANSWERS_PER_SERVER; votes += 1)
          messenger.onVote(other, { type: 'push_vote', job: randomUUID(), ready: false, reason: 'paused' });
      }
    },
  };
}

t.test('an agent that votes for ever more jobs does not keep out the votes of others', async (t) => {
  const { database, duty, messenger, session, other, kept, store } = await heldVotes(t);
  const flooding = other();
  for (let votes = 0; votes < MAX_WAITING; votes += 1)
    messenger.onVote(flooding, { type: 'push_vote', job: randomUUID(), ready: true });
  const before = kept();
  messenger.onVote(session, { type: 'push_vote', job: duty.id, ready: true });
  t.equal(kept(), before + 1);
  store();
  await until(async () => (await nodeStates(database)).ready === 1);
  messenger.onVote(flooding, { type: 'push_vote', job: randomUUID(), ready: true });
  t.equal(kept(), before + 2, 'its former votes were stored, so it has room again');
});

t.test('of the votes of one agent for one job that wait, the last one is stored', async (t) => {
  const { database, duty, messenger, session, begun, store } = await heldVotes(t);
  messenger.onVote(session, { type: 'push_vote', job: duty.id, ready: true });
  await until(() => begun() === 1);
  for (let votes = 0; votes < 1_000; votes += 1)
    messenger.onVote(session, { type: 'push_vote', job: duty.id, ready: true });
  messenger.onVote(session, { type: 'push_vote', job: duty.id, ready: false, reason: 'stopping' });
  store();
  await until(async () => (await nodeStates(database)).unavailable === 1);
  t.equal(begun(), 2);
});

t.test('an agent whose vote was dropped is asked again, and its next vote counts', async (t) => {
  const { database, messenger, agent, fill, kept, store } = await heldVotes(t);
  fill();
  messenger.start();
  await until(() => agent.prepares > 0);
  t.equal(kept(), MAX_WAITING, 'its vote was dropped');
  store();
  await until(async () => (await nodeStates(database)).ready === 1);
  t.ok(agent.prepares > 1);
});

t.test('an agent whose vote was dropped is told to forget the job when the voting is over', async (t) => {
  const { database, duty, messenger, agent, fill, kept } = await heldVotes(t);
  fill();
  messenger.start();
  await until(() => agent.prepares > 0);
  t.equal(kept(), MAX_WAITING, 'its vote was dropped');
  t.equal(agent.aborts, 0);
  await closeVoting(database, duty, 60_000);
  t.same(await nodeStates(database), { unavailable: 1 });
  await until(() => agent.aborts > 0);
});
