/**
 * What followers of push jobs at this instance remember of nodes. The servers and tasks of a job
 * are stored once for all its followers, and each follower has five bytes for a node. So a thousand
 * followers of one large job cost little more than one; `FollowedJobs` bounds the sum.
 */
import { NODE_STATUSES } from '../../../protocol/api/push/job-schemas.ts';
import { OPEN_NODE_STATUSES } from '../../../protocol/push.ts';
import { TooManyFollowedNodesError } from '../push-errors.ts';
import type { PushNodeRow } from '../push-store.ts';

type NodeOfJob = Pick<PushNodeRow, 'server_uuid' | 'state' | 'task'>;

export const isEnd = ({ state }: Pick<PushNodeRow, 'state'>): boolean => !OPEN_NODE_STATUSES.includes(state);

/** The nodes of a job in the order in which they were first read: each has a place. */
export class PushJobNodes {
  readonly #places = new Map<string, number>();
  readonly #servers: string[] = [];
  readonly #tasks: (string | null)[] = [];

  get count(): number {
    return this.#servers.length;
  }

  /** A node gets its task once. */
  placeOf({ server_uuid: serverUuid, task: taskId }: NodeOfJob): number {
    let place = this.#places.get(serverUuid);
    if (place === undefined) {
      place = this.#servers.push(serverUuid) - 1;
      this.#places.set(serverUuid, place);
    }
    this.#tasks[place] = taskId ?? this.#tasks[place] ?? null;
    return place;
  }

  serverAt(place: number): string {
    return this.#servers[place] as string;
  }

  taskAt(place: number): string | null {
    return this.#tasks[place] ?? null;
  }
}

/** What one follower was sent. */
export class SentNodes {
  readonly #nodes: PushJobNodes;
  /** The last state that was sent for each place; 0: none. */
  #states = new Uint8Array(0);
  /** For each place, the number of the last task event that was sent. */
  #seqs = new Uint32Array(0);
  #openTasks = 0;

  constructor(nodes: PushJobNodes) {
    this.#nodes = nodes;
  }

  /** Nodes whose tasks may have more events. */
  get openTasks(): number {
    return this.#openTasks;
  }

  /** Notes the state that was sent. Returns false if the same state was sent before. */
  note(place: number, node: NodeOfJob): boolean {
    this.#growTo(this.#nodes.count);
    const before = this.#states[place] ?? 0;
    const state = codeOf(node);
    if (state === before) return false;
    this.#openTasks += Number(HAS_OPEN_TASK.has(state)) - Number(HAS_OPEN_TASK.has(before));
    this.#states[place] = state;
    return true;
  }

  /** Yields the places in the same order for all followers of a job. */
  *placesOfOpenTasks(): Generator<number, void, undefined> {
    for (let place = 0; place < this.#states.length; place++)
      if (HAS_OPEN_TASK.has(this.#states[place] ?? 0)) yield place;
  }

  seqAt(place: number): number {
    return this.#seqs[place] ?? 0;
  }

  /** All events of its task up to this one were sent, or do not exist any more. */
  moveTo(place: number, seq: number): void {
    this.#seqs[place] = Math.max(this.seqAt(place), seq);
  }

  #growTo(count: number): void {
    if (count <= this.#states.length) return;
    const length = Math.max(16, 2 ** Math.ceil(Math.log2(count)));
    const [states, seqs] = [this.#states, this.#seqs];
    this.#states = new Uint8Array(length);
    this.#states.set(states);
    this.#seqs = new Uint32Array(length);
    this.#seqs.set(seqs);
  }
}

const codeOf = ({ state, task: taskId }: Pick<NodeOfJob, 'state' | 'task'>): number =>
  2 * NODE_STATUSES.indexOf(state) + (taskId === null ? 1 : 2);

/** The codes of open nodes with a task. */
const HAS_OPEN_TASK: ReadonlySet<number> = new Set(
  NODE_STATUSES.filter((state) => !isEnd({ state })).map((state) => codeOf({ state, task: '' })),
);

/** More than the 182 that an entry of a job, with the texts of its uuids, was measured to take. */
const BYTES_OF_NODE = 250;
/** State and number, in arrays that grow by doubling. */
const BYTES_OF_SENT = 2 * 5;

/** What one follower holds of a job. */
export interface FollowedNodes {
  nodes: PushJobNodes;
  /**
   * Nodes were added to the job: they count from now on.
   * @throws TooManyFollowedNodesError
   */
  noteGrowth(): void;
  /** May be called again. */
  close(): void;
}

interface PushJobEntry {
  nodes: PushJobNodes;
  /** Number of its nodes that are counted. */
  counted: number;
  followers: number;
}

/** The jobs whose nodes are followed at this instance. */
export class FollowedJobs {
  readonly #maxBytes: number;
  readonly #jobs = new Map<string, PushJobEntry>();
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** What followers may remember, in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * `nodeCount`: of the job at present; 0 if nothing of it will be remembered.
   * @throws TooManyFollowedNodesError
   */
  open(jobId: string, nodeCount: number): FollowedNodes {
    const followed = this.#jobs.get(jobId) ?? { nodes: new PushJobNodes(), counted: 0, followers: 0 };
    const { nodes } = followed;
    let counted = 0;
    const countUpTo = (count: number) => {
      const ofJob = Math.max(0, count - followed.counted);
      const ofFollower = Math.max(0, count - counted);
      const bytes = ofJob * BYTES_OF_NODE + ofFollower * BYTES_OF_SENT;
      if (bytes > 0 && this.#bytes + bytes > this.#maxBytes) throw new TooManyFollowedNodesError();
      this.#bytes += bytes;
      followed.counted += ofJob;
      counted += ofFollower;
    };
    countUpTo(nodeCount);
    followed.followers += 1;
    this.#jobs.set(jobId, followed);
    let isOpen = true;
    const close = () => {
      if (!isOpen) return;
      isOpen = false;
      followed.followers -= 1;
      this.#bytes -= counted * BYTES_OF_SENT;
      if (followed.followers > 0) return;
      this.#bytes -= followed.counted * BYTES_OF_NODE;
      this.#jobs.delete(jobId);
    };
    return {
      nodes,
      noteGrowth() {
        if (isOpen) countUpTo(nodes.count);
      },
      close,
    };
  }
}
