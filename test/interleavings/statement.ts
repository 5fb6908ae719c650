/**
 * The types of the table of statements. A row names an exported function of a store and says how it
 * is called in a world: its arguments, what its caller knows at the time (`intents`), and which
 * parts of its answer only one caller may receive (`exclusive`). The harness runs pairs of them in
 * prepared worlds; the random mix runs all of them in one changing world.
 */

import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import type { RunIdentity } from '../../lib/control/roster/status/roster-store.ts';
import type { InheritedRow } from '../../lib/control/tasks/dispatch/claim-store.ts';
import type { ClaimingSession } from '../../lib/control/tasks/store/change-result.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import type { Intent } from './lab-schema.ts';

/** What is known of a server and its agent; it may be out of date. */
export interface Seat {
  serverUuid: string;
  /** Null if no run has authority. */
  run: string | null;
  epoch: number;
  isRunning: boolean;
  incarnation: string;
  conn: number;
  journalId: string;
  /** Number of the last recorded heartbeat of the legacy agent; 0 if there is none. */
  lastRecord: number;
}

/** A seat under a run. */
export type Session = Seat & { run: string } & ClaimingSession;

export type TaskKind =
  | 'queued'
  /** Queued for longer than a server may take. */
  | 'stale'
  | 'sent'
  | 'started'
  | 'overdue'
  | 'cancelling'
  /** Claimed under an earlier epoch. */
  | 'inherited'
  | 'posted'
  /** Posted by a run that is dead. */
  | 'left'
  | 'ended'
  /** A task was sent: it creates a VM, or stops or destroys a running one. */
  | 'creating'
  | 'stopping'
  | 'destroying';

export type TicketKind = 'active' | 'next' | 'single' | 'due';
export type QueueKind = 'calm' | 'single' | 'new';
export type DutyKind =
  | 'waiting'
  /** Held by `me`. */
  | 'held'
  /** Held by `gone`, which is dead. */
  | 'left';

export type PushKind =
  /** Waiting for its ticket. */
  | 'waiting'
  /** Voting: nobody has voted yet. */
  | 'asked'
  /** Another job that asks the same servers. */
  | 'alsoAsked'
  /** Voting: all servers are ready. */
  | 'ready'
  /** One server has a task, another one's has ended, the third is ready. */
  | 'running'
  /** Two servers have tasks, and may end them; the third is in rehab. */
  | 'aborting'
  /** Ended; its servers are in rehab. */
  | 'aborted';

export type ScheduleKind = 'due' | 'queued' | 'paused' | 'ended';

/** Workflow jobs: the first step is due, or has begun with its task; or the job has ended. */
export type WorkflowKind = 'due' | 'begun' | 'ended';

/** Noderoles of a graph, by what they are when it is complete. */
export type NoderoleKind = 'left' | 'right' | 'failed' | 'child' | 'grandchild' | 'due' | 'proposed';

/** What the world of noderoles has. */
export interface Graph {
  duty: HeldDuty;
  deploymentId: string;
  /** The version of the graph when it was complete. */
  version: string;
  noderoles: Readonly<Record<NoderoleKind, string>>;
  /** The runs of the two that run. */
  runs: Readonly<Record<'left' | 'right', string>>;
}

/** VMs by their claims of room: one that counts, one that has expired, and two VMs without any. */
export type ClaimKind = 'held' | 'expired' | 'one' | 'other';

export type VmKind =
  /** Nobody has it yet. */
  | 'new'
  /** Claimed by a task that creates it. */
  | 'creating'
  /** Reported as running by its agent. Tasks will stop and destroy it. */
  | 'running';

export interface World {
  /** Live runs of two instances, a dead one, and the run under which the dead one continues. */
  me: RunIdentity;
  other: RunIdentity;
  gone: RunIdentity;
  renewed: string;
  /** The run's beat when it was last seen. */
  beatOf(run: string): number;
  isDead(run: string): boolean;
  /** Several servers, and the one that most single calls are about. */
  seats: readonly Seat[];
  seat: Seat;
  tasks(kind: TaskKind): readonly InheritedRow[];
  /** The task of `seat`. */
  task(kind: TaskKind): InheritedRow | undefined;
  ticket(kind: TicketKind): string | undefined;
  queue(kind: QueueKind): { serverUuid: string; scope: string; id: string } | undefined;
  duties(kind: DutyKind): readonly HeldDuty[];
  /** A push job, by the duty under which I carry it out. */
  pushJob(kind: PushKind): HeldDuty | undefined;
  /** A workflow job, by the duty under which I carry it out. */
  workflowJob(kind: WorkflowKind): HeldDuty | undefined;
  /** The graph of noderoles. */
  graph: Graph | undefined;
  /** A schedule of push jobs. */
  schedule(kind: ScheduleKind): string | undefined;
  /** A VM of a server. */
  vm(kind: VmKind, serverUuid: string): string | undefined;
  /** A VM for which room may be claimed. */
  claimed(kind: ClaimKind): string | undefined;
  /**
   * The items in order, or reversed for the second of two legs: this detects statements that lock
   * without an order of their own.
   */
  inOrder<Item>(items: readonly Item[]): Item[];
  uuid(): string;
}

export interface CallOf<Args extends unknown[], Result> {
  /** Undefined if this world has nothing to call it for. */
  args(world: World): Args | undefined;
  intents?(...args: Args): Intent[];
  exclusive?(result: Result, ...args: Args): string[];
  /** An error that is an answer: another caller has what this one asks for. */
  isRefusal?(error: unknown): boolean;
  /**
   * What its caller did just before, each statement by itself: no transaction that began earlier
   * has seen it.
   */
  before?(database: Queryable, ...args: Args): Promise<unknown>;
  /** How often the random mix makes this call, compared with 10 for others; 0: never. */
  weight?: number;
}

export interface Prepared {
  intents: readonly Intent[];
  run(database: Queryable): Promise<string[]>;
}

export interface Call {
  /** `statement: which`. */
  name: string;
  statement: string;
  weight: number;
  /** Tables that it reads for a hint in its answer: nothing that it writes depends on them. */
  hints: readonly string[];
  prepare(world: World): Prepared | undefined;
}

type StoreFunction<Args extends unknown[] | [], Result> = (database: Queryable, ...args: Args) => Promise<Result>;

export interface Statement {
  name: string;
  /** The store's export itself. */
  run: unknown;
  /**
   * Whether the statement changes and locks nothing, which is checked in a read-only transaction.
   */
  isReadOnly: boolean;
  calls: readonly Call[];
}

export function writes<Args extends unknown[] | [], Result>(
  run: StoreFunction<Args, Result>,
  calls: Record<string, CallOf<Args, Result>>,
  { hints = [] as readonly string[] } = {},
): Statement {
  return { name: run.name, run, isReadOnly: false, calls: toCalls(run, calls, hints) };
}

export function reads<Args extends unknown[] | [], Result>(
  run: StoreFunction<Args, Result>,
  args: (world: World) => Args | undefined,
): Statement {
  return { name: run.name, run, isReadOnly: true, calls: toCalls(run, { read: { args } }, []) };
}

function toCalls<Args extends unknown[] | [], Result>(
  run: StoreFunction<Args, Result>,
  calls: Record<string, CallOf<Args, Result>>,
  hints: readonly string[],
): Call[] {
  return Object.entries(calls).map(([which, { args, intents, exclusive, isRefusal, before, weight = 10 }]) => ({
    name: `${run.name}: ${which}`,
    statement: run.name,
    weight,
    hints,
    prepare(world) {
      const values = args(world);
      return (
        values && {
          intents: intents?.(...values) ?? [],
          run: async (database) => {
            await before?.(database, ...values);
            try {
              const result = await run(database, ...values);
              return exclusive?.(result, ...values) ?? [];
            } catch (error) {
              if (isRefusal?.(error)) return [];
              throw error;
            }
          },
        }
      );
    },
  }));
}

/** Undefined for an empty list: there is nothing to call a statement for. */
export function some<Item>(items: readonly Item[]): Item[] | undefined {
  return items.length === 0 ? undefined : [...items];
}

export function isSession(seat: Seat): seat is Session {
  return seat.run !== null;
}
