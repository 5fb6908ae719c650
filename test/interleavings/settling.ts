/**
 * The faults are over: agents are connected, all clients do their work, and everything accepted
 * comes to its end.
 */
import { randomUUID } from 'node:crypto';
import { claimDuties, readHeldDuties, settleDuties } from '../../lib/control/duty/duty-store.ts';
import { endPosts, readDeadPostingRuns } from '../../lib/control/legacy/post-store.ts';
import { insertRun } from '../../lib/control/roster/membership/instance-store.ts';
import { acceptSessions, recordInventories } from '../../lib/control/roster/status/roster-store.ts';
import { claimTasks, readInheritedTasks, settleInventory } from '../../lib/control/tasks/dispatch/claim-store.ts';
import { recordReports } from '../../lib/control/tasks/reports/report-store.ts';
import { decideAtInventory } from '../../lib/control/tasks/store/task.ts';
import { releaseTicket, repairQueues } from '../../lib/control/waitlist/ticket-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { KIND } from './duty-statements.ts';
import { recordIntents } from './lab-schema.ts';
import type { Seat, Session } from './statement.ts';

const PATIENCE_MS = 3_600_000;
const MOST_ROUNDS = 500;

/** @throws if it does not end */
export async function settle(
  database: Queryable,
  seats: readonly Seat[],
): Promise<{ rounds: number; repaired: number }> {
  const sessions = await connectAll(database, seats);
  const { queues } = await repairQueues(database, 1_000);
  for (let rounds = 1; rounds <= MOST_ROUNDS; rounds++) {
    await workOnce(database, sessions);
    await releaseActive(database);
    await endDuties(database, (sessions[0] as Session).run);
    if (!(await isAnythingLeft(database))) return { rounds, repaired: queues.length };
  }
  throw new Error(`after ${MOST_ROUNDS} rounds there are still tasks, tickets or duties that have not ended`);
}

/** New agents on all machines, at one new instance. */
async function connectAll(database: Queryable, seats: readonly Seat[]): Promise<Session[]> {
  const writer = { cnapiUuid: randomUUID(), run: randomUUID() };
  const identity = { cnapiUuid: writer.cnapiUuid, url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
  await insertRun(database, writer.run, identity, null);
  const sessions: Session[] = [];
  for (const seat of seats) {
    const hello = { ...seat, incarnation: randomUUID(), conn: 1, journalId: randomUUID() };
    await recordIntents(database, [{ kind: 'probe', subject: seat.serverUuid, run: seat.incarnation }]);
    const accepted = (await acceptSessions(database, writer, [hello], seat.incarnation)).get(seat.serverUuid);
    if (accepted === undefined) throw new Error(`${seat.serverUuid} is not accepted`);
    sessions.push({ ...hello, run: writer.run, epoch: accepted.epoch, isRunning: true });
  }
  await recordInventories(database, sessions);
  return sessions;
}

async function workOnce(database: Queryable, sessions: readonly Session[]): Promise<void> {
  const run = (sessions[0] as Session).run;
  const settlements = (await readInheritedTasks(database, sessions, 1_000)).flatMap((task) => {
    const session = sessions.find(({ serverUuid }) => serverUuid === task.serverUuid);
    if (session === undefined) return [];
    return [{ task, session, decision: decideAtInventory(task, { journalId: session.journalId, known: undefined }) }];
  });
  await settleInventory(database, run, settlements);
  await claimTasks(database, run, { sessions, resendMs: PATIENCE_MS });
  const { rows } = await database.query<{ id: string; serverUuid: string; attempt: number }>(
    `select id, server_uuid as "serverUuid", attempt from cnapi_tasks
     where state = 'claimed' and (posted_by is not null or epoch = any ($1::bigint[])) limit 1000`,
    [sessions.map(({ epoch }) => epoch)],
  );
  const report = { name: 'complete' as const, reportedAt: '2030-01-01', resultJson: undefined };
  await recordReports(
    database,
    rows.map((subject) => ({ subject, report })),
  );
  await endPosts(
    database,
    (await readDeadPostingRuns(database)).map(({ run }) => run),
  );
}

async function releaseActive(database: Queryable): Promise<void> {
  const { rows } = await database.query<{ uuid: string }>(
    `select uuid from cnapi_waitlist_tickets where status = 'active'`,
  );
  for (const { uuid } of rows) await releaseTicket(database, uuid);
}

/** Ends the duties of live runs too: their instances have gone. */
async function endDuties(database: Queryable, run: string): Promise<void> {
  await database.query(
    `update cnapi_instances set state = 'dead', ended_at = cnapi_now(), end_reason = 'stopped'
       where state = 'live' and run <> $1::uuid`,
    [run],
  );
  await claimDuties(database, run, { kinds: [KIND], limit: 1_000 });
  const held = await readHeldDuties(database, run);
  await recordIntents(
    database,
    held.map(({ id, generation }) => ({ kind: 'settlement', subject: id, run, number: generation })),
  );
  const settlement = { kind: 'end', outcome: 'complete' } as const;
  await settleDuties(
    database,
    run,
    held.map((duty) => ({ ...duty, settlement, pauseMs: 0 })),
  );
}

async function isAnythingLeft(database: Queryable): Promise<boolean> {
  const { rows } = await database.query<{ left: boolean }>(
    `select exists (select 1 from cnapi_tasks where state <> 'ended')
       or exists (select 1 from cnapi_waitlist_tickets where status in ('queued', 'active'))
       or exists (select 1 from cnapi_waitlist_queues)
       or exists (select 1 from cnapi_duties where state <> 'ended') as left`,
  );
  return rows[0]?.left ?? true;
}
