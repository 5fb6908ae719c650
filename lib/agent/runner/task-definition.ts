/**
 * What a task is to the runner. Each noun of the agent defines its tasks in its folder; the
 * catalogue (catalogue.ts of the agent) lists them.
 */

import type { z } from 'zod';
import type { Clock } from '../../platform/time/clock.ts';
import type { OutputChannel } from '../../protocol/output-streams.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import type { Images } from '../images/images.ts';
import type { ProcessGroup } from '../journal/journal.ts';
import type { Machine } from '../machine/machine.ts';
import type { Packages } from '../packages/packages.ts';
import type { PauseEvent } from '../pause/pause.ts';
import type { PushRun } from '../push/push-participant.ts';
import type { RecoveryKeeper } from '../recovery/recovery-keeper.ts';
import type { SetupRules } from '../settings/settings.ts';
import type { SettingsKeeper } from '../settings/settings-keeper.ts';
import type { AgentStreams } from '../streams/agent-streams.ts';
import { TaskFailure } from '../task-failure.ts';
import type { Vms } from '../vms/vms.ts';
import type { Zfs } from '../zfs/zfs.ts';

/**
 * Tasks of one lane wait for each other: `serial` runs one at a time, `parallel` some, `control` is
 * independent of other work. Actions of VMs, questions about them, work with a stream, which lasts
 * as long as its caller wants, and ZFS, which waits for disks, have lanes of their own.
 */
export type LaneName = 'serial' | 'parallel' | 'control' | 'vms' | 'vm-queries' | 'streams' | 'zfs';

/**
 * What an agent has on its server for its tasks: always a machine, and by its configuration the
 * others.
 */
export interface AgentServices {
  machine: Machine;
  /** Undefined without --containers, as `images`. */
  vms?: Vms | undefined;
  images?: Images | undefined;
  /** Undefined unless this agent trusts a key of packages. */
  packages?: Packages | undefined;
  /** Undefined unless this server has an encrypted zpool. */
  recovery?: RecoveryKeeper | undefined;
  /** Undefined if this agent keeps no settings of its server. */
  settings?: SettingsKeeper | undefined;
  /** Undefined: a set-up and a reset may do nothing to the machine. */
  setupRules?: SetupRules | undefined;
  /** Undefined if this server has no ZFS. */
  zfs?: Zfs | undefined;
  /** Undefined if this agent opens no streams. */
  streams?: AgentStreams | undefined;
}

export interface TaskContext extends AgentServices {
  id: string;
  /**
   * Aborts at a timeout, a cancel or the agent's stop; its reason is the TaskFailure to end with.
   */
  signal: AbortSignal;
  clock: Clock;
  allowReboot: boolean;
  /** The push jobs for which this agent has voted. */
  pushJobs: { begin(jobId: string, onTimeout: (timeoutMs: number) => void): PushRun };
  /** How often the task has been started, in this process and in those before it. */
  starts(): number;
  /**
   * Journals the start. Only a task that `startsItself` calls it; the runner calls it for the
   * others.
   */
  begin(group?: ProcessGroup): Promise<void>;
  /**
   * Journals the processes of a task without `startsItself`, or that it has none any more: if the
   * agent dies, its next process ends them.
   */
  journalProcesses(group: ProcessGroup | undefined): Promise<void>;
  progress(value: number): void;
  output(stream: OutputChannel, offset: number, text: string): void;
  /** Replaces the timeout of the task. Both are counted from the arrival of the task. */
  changeTimeout(timeoutMs: number): void;
  /** Changes whether the agent refuses other tasks. */
  changePause(event: PauseEvent): Promise<void>;
  /**
   * Resolves when the agent is paused for the drain of this job, from now on for as long as at
   * first, and has no other task. @throws TaskFailure
   */
  confirmDrain(jobId: string): Promise<void>;
}

export interface TaskDefinition {
  lane: LaneName;
  /** The task calls `begin`, once it knows its processes. */
  startsItself: boolean;
  /** Runs even while the agent is paused. */
  whilePaused: boolean;
  /**
   * When the agent stops, it does not end: the next process runs it again, under the same id and
   * time limit.
   */
  continues: boolean;
  paramNames: readonly string[];
  /** Resolves with the result, or rejects with a TaskFailure; in any case soon after the signal. */
  run(params: Record<string, unknown>, context: TaskContext): Promise<Record<string, unknown>>;
}

/** Tasks by the name in a task frame. */
export type TaskDefinitions = Readonly<Partial<Record<TaskName, TaskDefinition>>>;

/** All tasks of an agent, by the name in a task frame. */
export type Catalogue = ReadonlyMap<string, TaskDefinition>;

interface Definition<Schema extends z.ZodObject> {
  lane: LaneName;
  startsItself?: boolean;
  whilePaused?: boolean;
  continues?: boolean;
  params: Schema;
  run(params: z.infer<Schema>, context: TaskContext): Promise<Record<string, unknown>>;
}

/**
 * A task whose parameters are parsed before it begins. Unknown ones are ignored, because callers
 * also send those of their path.
 */
export function defineTask<Schema extends z.ZodObject>(definition: Definition<Schema>): TaskDefinition {
  const { lane, startsItself = false, whilePaused = false, continues = false, params: schema } = definition;
  const paramNames = Object.keys(schema.shape);
  return {
    lane,
    startsItself,
    whilePaused,
    continues,
    paramNames,
    run: async (params, context) => definition.run(parse(schema, params), context),
  };
}

function parse<Schema extends z.ZodType>(schema: Schema, params: Record<string, unknown>): z.infer<Schema> {
  const parsed = schema.safeParse(params);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new TaskFailure('InvalidParameters', `Parameter ${issue?.path.join('.')}: ${issue?.message}`);
}

/** Waits, or rejects with the failure that ends the task. */
export async function pause(ms: number, { clock, signal }: TaskContext): Promise<void> {
  await clock.sleep(ms, signal);
  if (signal.aborted) throw signal.reason;
}

/** Reports the bytes of a transfer as percent, if their total is known; each percent once. */
export function byteProgress({ progress }: TaskContext): (bytes: number, total: number | undefined) => void {
  let shown = 0;
  return (bytes, total) => {
    const percent = total ? Math.floor((bytes / total) * 100) : 0;
    if (percent <= shown) return;
    shown = percent;
    progress(percent);
  };
}
