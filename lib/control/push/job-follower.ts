/**
 * What happens to one push job, as one stream: for callers that follow many commands together. It
 * reads in rounds, each a few statements however many nodes write: the nodes that changed, then the
 * events of their tasks. So a fleet that writes at full rate costs its follower's instance no more
 * than a bounded number of reads. A slow reader is not read ahead for. Called by
 * routes/push-event-routes.ts.
 *
 * The position after a round is the time of the database at its start. A reader that continues from
 * a position is sent all nodes that had not ended a while before it, with all their events again.
 */
import type { Clock } from '../../platform/clock.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import { PUSH_STREAM_END } from '../../protocol/api/push-events.ts';
import { type EventOfTask, readEventsOfMany, readLastEvents } from '../tasks/record/task-store.ts';
import { type ChangedNodes, readChangedNodes, readMoment } from './follow-store.ts';
import { PushJobNotFoundError } from './push-errors.ts';
import { type PushJobRow, type PushNodeRow, readPushJob } from './push-store.ts';

/** `position`: where to resume; without more, only that changed. */
export type JobNews =
  | { position: string }
  | { position: string; job: PushJobRow }
  | { position: string; node: PushNodeRow }
  | ({ position: string; serverUuid: string } & EventOfTask);

export interface FollowOptions {
  /** A position of an earlier stream. */
  since: Date | undefined;
  signal: AbortSignal;
  /** This instance leaves: the stream ends, and its reader continues elsewhere. */
  endSignal: AbortSignal;
}

const NODES_A_PAGE = 1_000;
/** Ends carry results of up to 2 MiB. */
const TASKS_A_READ = 8;
const EVENTS_A_TASK = 10;
/** A change may become visible this long after the time that it carries. */
const LATE_MS = 10_000;
/** A step of the database's clock may hide changes from a round, but not from these. */
const WHOLE_EVERY = 60;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;

interface Followed {
  serverUuid: string;
  seq: number;
}

/** @throws PushJobNotFoundError, DatabaseUnavailableError */
export async function* followJob(
  { database, clock }: { database: Queryable; clock: Clock },
  id: string,
  { since: given, signal, endSignal }: FollowOptions,
): AsyncGenerator<JobNews, void, undefined> {
  const ending = AbortSignal.any([signal, endSignal]);
  /** What was sent last about each node. */
  const states = new Map<string, string>();
  const tasks = new Map<string, Followed>();
  let position = given?.toISOString() ?? '';
  let since = before(given);
  let status = '';
  let pauseMs = FIRST_PAUSE_MS;
  for (let round = 1; !ending.aborted; round++) {
    const moment = await readMoment(database);
    position ||= moment.toISOString();
    const job = await readPushJob(database, id);
    if (job === undefined) throw new PushJobNotFoundError(id);
    const isWhole = round % WHOLE_EVERY === 0;
    let isNews = false;
    for await (const news of newsOfNodes(database, job, {
      since: isWhole ? undefined : since,
      withOpen: round === 1,
      ...{ states, tasks },
    })) {
      isNews = true;
      yield { position, ...news };
      if (ending.aborted) return;
    }
    const isEnded = job.state === 'ended';
    position = isEnded ? PUSH_STREAM_END : moment.toISOString();
    if (job.state !== status) yield { position, job };
    else if (isNews) yield { position };
    if (isEnded) return;
    isNews ||= job.state !== status;
    status = job.state;
    since = before(moment);
    pauseMs = isNews ? FIRST_PAUSE_MS : Math.min(LONGEST_PAUSE_MS, pauseMs * 1.5);
    await clock.sleep(pauseMs, ending);
  }
}

const before = (moment: Date | undefined): Date | undefined =>
  moment === undefined ? undefined : new Date(moment.getTime() - LATE_MS);

type NewsOfNode = { node: PushNodeRow } | ({ serverUuid: string } & EventOfTask);

interface Round extends Pick<ChangedNodes, 'since' | 'withOpen'> {
  states: Map<string, string>;
  tasks: Map<string, Followed>;
}

/** One round. The end of a node comes after its output. */
async function* newsOfNodes(
  database: Queryable,
  job: PushJobRow,
  { since, withOpen, states, tasks }: Round,
): AsyncGenerator<NewsOfNode, void, undefined> {
  const ended: PushNodeRow[] = [];
  for (let after: string | undefined; ; ) {
    const page = await readChangedNodes(database, job.id, { since, withOpen, after, limit: NODES_A_PAGE });
    for (const node of page) {
      const sent = `${node.state} ${node.task}`;
      if (states.get(node.server_uuid) === sent) continue;
      states.set(node.server_uuid, sent);
      if (node.task !== null && !tasks.has(node.task)) tasks.set(node.task, { serverUuid: node.server_uuid, seq: 0 });
      if (isEnd(node)) ended.push(node);
      else yield { node };
    }
    if (page.length < NODES_A_PAGE) break;
    after = page.at(-1)?.server_uuid;
  }
  yield* newsOfTasks(database, tasks);
  for (const node of ended) {
    if (node.task !== null) tasks.delete(node.task);
    yield { node };
  }
}

const isEnd = ({ state }: PushNodeRow): boolean => state !== 'new' && state !== 'ready' && state !== 'running';

/** All events up to those that exist at the start of the round. */
async function* newsOfTasks(
  database: Queryable,
  tasks: Map<string, Followed>,
): AsyncGenerator<NewsOfNode, void, undefined> {
  const ids = [...tasks.keys()];
  for (let start = 0; start < ids.length; start += NODES_A_PAGE) {
    const last = await readLastEvents(database, ids.slice(start, start + NODES_A_PAGE));
    let behind = [...last];
    while (behind.length > 0) {
      behind = behind.filter(([id, seq]) => (tasks.get(id)?.seq ?? seq) < seq);
      for (let at = 0; at < behind.length; at += TASKS_A_READ) {
        const some = behind.slice(at, at + TASKS_A_READ);
        const wanted = some.map(([id]) => ({ id, afterSeq: tasks.get(id)?.seq ?? 0 }));
        const events = await readEventsOfMany(database, wanted, EVENTS_A_TASK);
        for (const { task, event } of events) {
          const followed = tasks.get(task);
          if (followed === undefined) continue;
          followed.seq = event.seq;
          yield { serverUuid: followed.serverUuid, task, event };
        }
        // Their events were deleted, or cut from the middle of the output.
        const found = new Set(events.map(({ task }) => task));
        for (const [id, seq] of some) if (!found.has(id)) skipTo(tasks.get(id), seq);
      }
    }
  }
}

function skipTo(followed: Followed | undefined, seq: number): void {
  if (followed !== undefined) followed.seq = Math.max(followed.seq, seq);
}
