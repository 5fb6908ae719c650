/**
 * A subsystem: what one noun contributes to an instance. Each noun's folder defines it
 * (`subsystem.ts`), and `subsystem-list.ts` lists them in order. From that list follow the schema,
 * the checks of `cnapi doctor` and, folded by `subsystem-host.ts`, the routes, start, drain, stop,
 * duties, metrics and chores of an instance. Everything is optional.
 *
 *     prepare ─▶ start ─▶ (beginDrain ─▶ endDrain) ─▶ beginStop ─▶ disconnect ─▶ stop
 *
 * A part may be stopped in any of these states, also before it has started.
 */
import type { Migration } from '../platform/postgres/migrations.ts';
import type { Check } from './doctor/finding.ts';
import type { DutyHandlers } from './duty/duty.ts';
import type { UpgradeRoute } from './http/listener/upgrades.ts';
import type { Route } from './http/route.ts';
import type { AgentListener } from './link/agent-listener.ts';
import type { Metric } from './metrics/metric.ts';
import type { RunListener } from './roster/run-listener.ts';

/** Deletes data past its retention. */
export interface Chore {
  /**
   * Key of the row in `cnapi_chores`. A run within half an hour of another instance's is left out.
   */
  name: string;
  /** Does one bounded batch and returns the number of deleted rows. Repeated until that is zero. */
  batch(): Promise<number>;
}

/** What is known of a subsystem without an instance, and how an instance gets it. */
export interface SubsystemDefinition<Parts> {
  /** Migrations, which may build on those of earlier subsystems in the list. */
  migrations?: readonly Migration[];
  /** Checks of `cnapi doctor`, by the part that their findings name. */
  checks?: Readonly<Record<string, Check>>;
  /** `parts`: what it needs of an instance. Does no I/O. */
  open?: (parts: Parts) => Subsystem;
}

/** A subsystem as a part of one instance. */
export interface Subsystem {
  /** The name in log messages about a subsystem that does not stop. */
  name: string;
  /**
   * The schema is up to date and nothing has started. All of this is repeated when the database
   * becomes unreachable meanwhile.
   */
  prepare?(): Promise<void>;
  /**
   * Called in the order of the list. Resolves when the subsystem is ready, or when `signal` has
   * aborted.
   */
  start?(signal: AbortSignal): Promise<void> | void;

  /** Work that must end before a drain does, such as unanswered requests. */
  unfinished?(): number;
  /** The instance is about to leave: begin nothing that lasts. */
  beginDrain?(): void;
  /** The agents have left: accept no new connections, and end streams that never end otherwise. */
  endDrain?(): void;

  /** The instance stops now: accept no new work. */
  beginStop?(): void;
  /** Closes its connections to agents and callers; one part after the other, the last one first. */
  disconnect?(): Promise<unknown>;
  /** Releases everything; all parts concurrently. */
  stop?(): Promise<unknown>;

  /** Carry out the duties of the subsystem. */
  dutyHandlers?: DutyHandlers;
  /** Called when something happens to the run of the instance. */
  runs?: RunListener;
  /** Receives what agents send. */
  agents?: AgentListener;

  routes?: readonly Route[];
  /** Routes of WebSockets. */
  upgrades?: readonly UpgradeRoute[];
  metrics?: readonly Metric[];
  /** Each instance tries hourly (`housekeeping.ts`). */
  chores?: readonly Chore[];
}
