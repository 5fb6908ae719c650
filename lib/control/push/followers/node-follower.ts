/**
 * One follower of the nodes of a push job and of their output, as one stream, for callers that
 * follow many commands together. Called by job-followers.ts. It reads in rounds, each a few
 * statements however many nodes write: the nodes that changed, then the events of their tasks. It
 * does not read ahead of a slow reader.
 *
 *     wait ──the job changed, or the pause for output is over──▶ read the job, if its state changed
 *      ▲                                                            │
 *      └── rest ◀── send ends of nodes ◀── send output ◀── send nodes
 *
 * Output is polled while commands run. Nothing announces it for a whole job: each task has a topic
 * of its own, and a follower of 10,000 nodes would need 10,000 subscriptions. So the cost is
 * bounded in another way: after each round the follower rests ten times as long as the round took,
 * including the wait for its turn. So a follower reads for at most a tenth of the time, and less
 * when many do.
 *
 * The position after a round is the time of the database at its start. A reader that continues from
 * a position is sent all nodes that had not ended a while before it, with all their events again.
 */
import { chunksOf } from '../../../platform/chunks.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { Watch } from '../../../platform/waits/watches.ts';
import { PUSH_STREAM_END } from '../../../protocol/api/push/events.ts';
import type { EventOfTask } from '../../tasks/store/task-store.ts';
import { PushJobNotFoundError } from '../push-errors.ts';
import type { PushJobRow, PushNodeRow } from '../push-store.ts';
import type { ChangedNodes, PushJobPosition } from './follow-store.ts';
import { type FollowedNodes, isEnd, PushJobNodes, SentNodes } from './followed-nodes.ts';
import type { SharedRead } from './shared-read.ts';

/** `position`: where to resume. An update without more reports a new position only. */
export type FollowUpdate =
  | { position: string }
  | { position: string; job: PushJobRow }
  | { position: string; node: PushNodeRow }
  | ({ position: string; serverUuid: string } & EventOfTask);

/**
 * A question about a job at a position. An answer that was read before that position must not be
 * shared.
 */
interface AtPosition {
  number: number;
}

export interface NodeReads {
  job: SharedRead<AtPosition & { jobId: string }, PushJobRow | undefined>;
  nodes: SharedRead<AtPosition & ChangedNodes & { jobId: string }, PushNodeRow[]>;
  lastEvents: SharedRead<AtPosition & { tasks: readonly string[] }, Map<string, number>>;
  events: SharedRead<AtPosition & { tasks: readonly { id: string; afterSeq: number }[] }, EventOfTask[]>;
}

interface NodeFollowerDeps {
  clock: Clock;
  watch: Watch<PushJobPosition>;
  /** Reads the job's position again, for all its followers. */
  poll: () => void;
  reads: NodeReads;
  followed: FollowedNodes;
}

interface Follow {
  jobId: string;
  /** A position of an earlier stream. */
  since: Date | undefined;
  ending: AbortSignal;
}

const NODES_A_PAGE = 1_000;
/** Ends carry results of up to 2 MiB. */
const TASKS_A_READ = 8;
/** A change may become visible this long after the time that it carries. */
const LATE_MS = 10_000;
/**
 * Every 60th round reads all nodes: a step of the database's clock may hide changes from others.
 */
const WHOLE_EVERY = 60;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;
const REST_OF_COST = 10;

interface Round {
  isFirst: boolean;
  /** All nodes are read, whenever they changed. */
  isWhole: boolean;
  /** The job has ended. */
  isLast: boolean;
}

/** Nodes, and what this follower was sent of them. */
interface KnownNodes {
  nodes: PushJobNodes;
  sent: SentNodes;
}

/** A node whose task has events up to `last`. */
interface Behind {
  place: number;
  last: number;
}

type NodeUpdate = { node: PushNodeRow } | ({ serverUuid: string } & EventOfTask);

export async function* followNodes(
  deps: NodeFollowerDeps,
  follow: Follow,
): AsyncGenerator<FollowUpdate, void, undefined> {
  try {
    yield* new NodeFollower(deps, follow).updates();
  } finally {
    deps.watch.close();
    deps.followed.close();
  }
}

class NodeFollower {
  readonly #deps: NodeFollowerDeps;
  readonly #follow: Follow;
  readonly #sent: SentNodes;
  #number = 0;
  #status = '';
  #since: Date | undefined;
  /** What the reads of the present round took. */
  #costMs = 0;
  /** The pause before the next round if no message announces a change of the job. */
  #pauseMs = FIRST_PAUSE_MS;

  constructor(deps: NodeFollowerDeps, follow: Follow) {
    this.#deps = deps;
    this.#follow = follow;
    this.#sent = new SentNodes(deps.followed.nodes);
    this.#since = before(follow.since);
  }

  async *updates(): AsyncGenerator<FollowUpdate, void, undefined> {
    const { reads } = this.#deps;
    const { jobId: id, since, ending } = this.#follow;
    let position = since?.toISOString() ?? '';
    for (let round = 1; ; round++) {
      const at = await this.#nextPosition();
      if (ending.aborted) return;
      if (at === undefined) throw new PushJobNotFoundError(id);
      const { number, moment } = at;
      this.#number = number;
      this.#costMs = 0;
      position ||= moment.toISOString();
      // Before the nodes: those of a job that has ended do not change any more.
      const job = at.state === this.#status ? undefined : await this.#timed(reads.job.ask({ jobId: id, number }));
      if (job === undefined && at.state !== this.#status) throw new PushJobNotFoundError(id);
      let hasMore = job !== undefined;
      // A step of the database's clock may hide changes; after the job's end no other round would
      // see them.
      const isWhole = round % WHOLE_EVERY === 0 || job?.state === 'ended';
      for await (const update of this.#updatesOfNodes({
        isFirst: round === 1,
        isWhole,
        isLast: job?.state === 'ended',
      })) {
        hasMore = true;
        yield { position, ...update };
        if (ending.aborted) return;
      }
      const isEnded = job?.state === 'ended';
      position = isEnded ? PUSH_STREAM_END : moment.toISOString();
      if (job !== undefined) yield { position, job };
      else if (hasMore) yield { position };
      if (isEnded) return;
      this.#status = job?.state ?? this.#status;
      this.#since = before(moment);
      await this.#rest(hasMore);
    }
  }

  /** Undefined: the job does not exist. */
  async #nextPosition(): Promise<PushJobPosition | undefined> {
    const { watch, poll } = this.#deps;
    const { ending } = this.#follow;
    const isNewer = (position: PushJobPosition | undefined) => position === undefined || position.number > this.#number;
    for (let pauseMs = this.#pauseMs; ; pauseMs = Math.max(FIRST_PAUSE_MS, this.#pauseMs)) {
      const timeoutMs = this.#sent.openTasks > 0 ? pauseMs : Number.POSITIVE_INFINITY;
      const seen = await watch.until(isNewer, { timeoutMs, endSignal: ending });
      if (ending.aborted) return undefined;
      if (seen !== undefined && isNewer(seen.position)) return seen.position;
      poll();
    }
  }

  async #rest(hasMore: boolean): Promise<void> {
    const restMs = Math.max(FIRST_PAUSE_MS, this.#costMs * REST_OF_COST);
    await this.#deps.clock.sleep(restMs, this.#follow.ending);
    this.#pauseMs = hasMore ? 0 : Math.min(LONGEST_PAUSE_MS, this.#pauseMs * 1.5 + FIRST_PAUSE_MS / 2);
  }

  /**
   * One round. The end of a node comes after its output. No more than a page of rows is kept, and
   * of a job that had ended before the first round nothing else is remembered.
   */
  async *#updatesOfNodes({ isFirst, isWhole, isLast }: Round): AsyncGenerator<NodeUpdate, void, undefined> {
    const { reads } = this.#deps;
    for (let after: string | undefined; ; ) {
      const page = await this.#timed(
        reads.nodes.ask({
          jobId: this.#follow.jobId,
          number: this.#number,
          since: isWhole ? undefined : this.#since,
          withOpen: isFirst,
          after,
          limit: NODES_A_PAGE,
        }),
      );
      const nodes = isFirst && isLast ? new PushJobNodes() : this.#deps.followed.nodes;
      const knownNodes: KnownNodes = {
        nodes,
        sent: nodes === this.#deps.followed.nodes ? this.#sent : new SentNodes(nodes),
      };
      const ended: { node: PushNodeRow; place: number }[] = [];
      for (const node of page) {
        const place = nodes.placeOf(node);
        if (!knownNodes.sent.note(place, node)) continue;
        if (isEnd(node)) ended.push({ node, place });
        else yield { node };
      }
      this.#deps.followed.noteGrowth();
      yield* this.#updatesOfTasks(
        knownNodes,
        ended.flatMap(({ node, place }) => (node.task === null ? [] : place)),
      );
      for (const { node } of ended) yield { node };
      if (page.length < NODES_A_PAGE) break;
      after = page.at(-1)?.server_uuid;
    }
    const knownNodes: KnownNodes = { nodes: this.#deps.followed.nodes, sent: this.#sent };
    for (const places of chunks(this.#sent.placesOfOpenTasks(), NODES_A_PAGE))
      yield* this.#updatesOfTasks(knownNodes, places);
  }

  /**
   * All events up to those that exist now, of the tasks of nodes at these places; at most a page.
   */
  async *#updatesOfTasks(known: KnownNodes, places: readonly number[]): AsyncGenerator<NodeUpdate, void, undefined> {
    if (places.length === 0) return;
    const { nodes, sent } = known;
    const tasks = places.map((place) => nodes.taskAt(place) as string);
    const last = await this.#timed(this.#deps.reads.lastEvents.ask({ number: this.#number, tasks }));
    let behind = places.flatMap((place, index) => ({ place, last: last.get(tasks[index] as string) ?? 0 }));
    for (;;) {
      behind = behind.filter((one) => sent.seqAt(one.place) < one.last);
      if (behind.length === 0) return;
      for (const some of chunksOf(behind, TASKS_A_READ)) yield* this.#events(known, some);
    }
  }

  async *#events({ nodes, sent }: KnownNodes, some: readonly Behind[]): AsyncGenerator<NodeUpdate, void, undefined> {
    const placeOf = new Map(some.map(({ place }) => [nodes.taskAt(place) as string, place]));
    const tasks = [...placeOf].map(([id, place]) => ({ id, afterSeq: sent.seqAt(place) }));
    const events = await this.#timed(this.#deps.reads.events.ask({ number: this.#number, tasks }));
    const found = new Set<number>();
    for (const { task: taskId, event } of events) {
      const place = placeOf.get(taskId) as number;
      found.add(place);
      sent.moveTo(place, event.seq);
      yield { serverUuid: nodes.serverAt(place), task: taskId, event };
    }
    // Their events were deleted, or cut from the middle of the output.
    for (const { place, last } of some) if (!found.has(place)) sent.moveTo(place, last);
  }

  async #timed<Answer>(answer: Promise<Answer>): Promise<Answer> {
    const { clock } = this.#deps;
    const beganAt = clock.now();
    try {
      return await answer;
    } finally {
      this.#costMs += clock.now() - beganAt;
    }
  }
}

const before = (moment: Date | undefined): Date | undefined =>
  moment === undefined ? undefined : new Date(moment.getTime() - LATE_MS);

function* chunks<Item>(items: Iterable<Item>, size: number): Generator<Item[], void, undefined> {
  let some: Item[] = [];
  for (const item of items) {
    if (some.push(item) < size) continue;
    yield some;
    some = [];
  }
  if (some.length > 0) yield some;
}
