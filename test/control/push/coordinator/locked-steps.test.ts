/**
 * A coordinator at work on a real Postgres while somebody holds a row of one node: it takes the
 * next step that applies for the others, and returns to the node when its row is free (law 9).
 */
import t from 'tap';
import type { HeldDuty } from '../../../../lib/control/duty/duty.ts';
import { requestAbortOfNodes } from '../../../../lib/control/push/change-store.ts';
import { Coordinator } from '../../../../lib/control/push/coordinator/coordinator.ts';
import { startNodes } from '../../../../lib/control/push/coordinator/coordinator-store.ts';
import { storeVotes } from '../../../../lib/control/push/messenger/messenger-store.ts';
import { type NewPushJob, readPushJob, requestAbort } from '../../../../lib/control/push/push-store.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../../lib/platform/time/clock.ts';
import { votesOf } from '../../../interleavings/push-statements.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { until } from '../../../support/until.ts';
import { claimedJob, endCommands, lockOf, nodeStates, seatedDatabase } from '../job-rows.ts';

const NODES = 4;

interface Case {
  fields: Partial<NewPushJob>;
  /** How many servers vote: the last ones. */
  voters: number;
  /** Before the coordinator begins. */
  before?: (database: Queryable, duty: HeldDuty, servers: readonly string[]) => Promise<unknown>;
  /** The row that is held: of the first node, or of the last one. */
  holds: { table: Parameters<typeof lockOf>[0]; of: 'first' | 'last' };
  /** Commands that start succeed at once. */
  isEnding: boolean;
  /** The nodes while the row is held, and when the job has ended. */
  meanwhile: Record<string, number>;
  atTheEnd: Record<string, number>;
  outcome: string;
}

const one = { quorum: 1, quorumPercent: undefined, concurrency: 1 } as const;

const cases: Record<string, Case> = {
  'nodes start while one that has not voted in time is held': {
    fields: { ...one, votingTimeoutMs: 1 },
    voters: NODES - 1,
    holds: { table: 'cnapi_push_nodes', of: 'first' },
    isEnding: true,
    meanwhile: { new: 1, succeeded: NODES - 1 },
    atTheEnd: { succeeded: NODES - 1, unavailable: 1 },
    outcome: 'complete',
  },
  'nodes start while one that is to be aborted is held': {
    fields: one,
    voters: NODES,
    before: (database, { id }, servers) => requestAbortOfNodes(database, id, { nodes: servers.slice(-1), how: 'hard' }),
    holds: { table: 'cnapi_push_busy', of: 'last' },
    isEnding: true,
    meanwhile: { ready: 1, succeeded: NODES - 1 },
    atTheEnd: { succeeded: NODES - 1, was_ready: 1 },
    outcome: 'complete',
  },
  'an aborted job ends its other nodes while the task of one is held': {
    fields: {},
    voters: NODES,
    async before(database, duty, servers) {
      await startNodes(database, duty, { ids: servers.map(() => random.uuid()), runMs: 0 });
      await requestAbort(database, duty.id, { how: 'hard', actor: undefined });
    },
    holds: { table: 'cnapi_tasks', of: 'first' },
    isEnding: false,
    meanwhile: { ready: 1, was_ready: NODES - 1 },
    atTheEnd: { was_ready: NODES },
    outcome: 'aborted',
  },
};

for (const [name, { fields, voters, before, holds, isEnding, meanwhile, atTheEnd, outcome }] of Object.entries(cases))
  t.test(name, async (t) => {
    const { database, open, run, seats, first } = await seatedDatabase(t, NODES);
    const duty = await claimedJob(database, run, { seats, fields });
    const servers = seats.map(({ serverUuid }) => serverUuid);
    await storeVotes(database, votesOf(duty.id, { seats: seats.slice(-voters) }, true));
    await before?.(database, duty, servers);

    const coordinator = new Coordinator({
      // Fails at once if it has to wait for a row.
      database: open({ maxConnections: 1, lockTimeoutMs: 100 }),
      bus: createMemoryBus({ hub: new MemoryHub(), random, clock, log, beatMs: 50 }),
      ...{ clock, random, log, config: { slowPollMs: 60_000 }, waitlist: undefined as never },
      ...{ tasks: { notifyAuthorities: () => {} }, sendOrders: () => {} },
    });
    const over = new AbortController();
    t.teardown(() => over.abort());
    const carriedOut = await database.transaction(async (holder) => {
      await holder.query(lockOf(holds.table, holds.of === 'first' ? first.serverUuid : (servers.at(-1) ?? '')));
      const work = coordinator.carryOut(duty, over.signal);
      const others = until(
        async () => {
          if (isEnding) await endCommands(database, duty.id);
          coordinator.changed([duty.id]);
          return JSON.stringify(await nodeStates(database)) === JSON.stringify(meanwhile);
        },
        `the nodes to be ${JSON.stringify(meanwhile)}`,
      );
      await Promise.race([others, work.then(() => Promise.reject(new Error('the job ended while a row was held')))]);
      // Not awaited: the row is free first.
      return { work };
    });
    await carriedOut.work;
    t.same(await nodeStates(database), atTheEnd);
    t.match(await readPushJob(database, duty.id), { state: 'ended', outcome });
  });
