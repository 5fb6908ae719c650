/**
 * The record of a run and the checker's only input: entries in the order in which they ended, as
 * JSON lines. Every time is of the harness process's monotonic clock, in milliseconds; `clock`
 * entries give the other clocks of the machine at such times. Written by recorder.ts, read by
 * main.ts.
 */
export const WORKLOADS = ['commands', 'tasks', 'waits', 'cancels', 'keys', 'locks', 'jobs', 'status'] as const;
export type Workload = (typeof WORKLOADS)[number];

export type Operation =
  | 'create'
  | 'wait'
  | 'get'
  | 'cancel'
  | 'ticket'
  | 'ticket-wait'
  | 'renew'
  | 'release'
  | 'push'
  | 'push-get'
  | 'push-abort'
  | 'servers';

/** One request of a client. Fields that its kind does not have are absent. */
export interface Op {
  kind: 'op';
  workload: Workload;
  op: Operation;
  /** Which instance was asked, by number. */
  instance: number;
  askedAt: number;
  /** When it was answered or given up. */
  overAt: number;
  /** The HTTP status; 0: no answer. */
  status: number;
  /** The code of an error answer. */
  code?: string;
  server?: string;
  /** A task's id: from the request or the answer. */
  task?: string;
  ticket?: string;
  /** A push job's id. */
  job?: string;
  /** The task's or ticket's status in the answer. */
  reported?: string;
  attempt?: number;
  key?: string;
  /** Which of the bodies that were sent with one key. */
  body?: string;
  /** The timeout of waits. */
  timeoutMs?: number;
  queue?: string;
  /** The lifetime of a ticket, from the moment it was created or renewed. */
  expiresInMs?: number;
  /** Servers whose answered status is not `running`. */
  unknown?: string[];
  /** The number of servers in the answer. */
  count?: number;
}

/**
 * What a task was meant to do. Separate from the request that creates it, which may be repeated.
 */
export interface Intent {
  kind: 'intent';
  at: number;
  workload: Workload;
  server: string;
  key: string;
  /** The task's name in the lines that its command writes; absent without a command. */
  token?: string;
  /** The exit code, or code of failure, with which it ends if nothing disturbs it. */
  exitCode?: number;
  failure?: string;
}

export type Part = 'instance' | 'agent' | 'fleet' | 'redis' | 'postgres' | 'line' | 'crowd';
export type LineKind = 'agents' | 'database' | 'bus' | 'callers';

export interface Fault {
  kind: 'fault';
  name: string;
  part: Part;
  /** The instance that it affects, or that is at one end of the connection. */
  instance?: number;
  line?: LineKind;
  /** Servers whose agent is unreachable or gone meanwhile, so that `unknown` is true. */
  servers: string[];
  /** These have no agent while it lasts: they must become `unknown` within this time. */
  dead?: { servers: string[]; withinMs: number };
  /** Another instance must have taken these over by then. */
  moves?: { servers: string[]; withinMs: number };
  /** These servers' agents arrive meanwhile, and leave when the zone has recovered. */
  crowd?: readonly string[];
  /** Codes of failure that it can cause for tasks of `servers`. */
  codes: string[];
  from: number;
  to: number;
  /**
   * When every instance was ready, every server running and every workload had continued; absent:
   * never.
   */
  settledAt?: number;
  /** What had not recovered. */
  lacking?: string[];
}

/** Rows of the roster that changed since the previous entry. */
export interface RosterLook {
  kind: 'roster';
  at: number;
  rows: { server: string; epoch: number; owner: string | null; status: string }[];
}

export type Entry =
  | {
      kind: 'plan';
      at: number;
      seed: number;
      minutes: number;
      instances: string[];
      agents: string[];
      simulated: string[];
    }
  | { kind: 'clock'; at: number; wall: number; uptime: number }
  | Op
  | Intent
  | Fault
  | RosterLook
  /** Processes, or the harness itself, did not run for this time between two checks. */
  | { kind: 'starved'; from: number; to: number; ms: number; who: string }
  /** Agents that had been told to return later were not back yet when the roster was read. */
  | { kind: 'deferring'; at: number }
  /** A process that ended without a fault. */
  | { kind: 'exited'; at: number; name: string; exitCode: number | null };

/** Rows of the database after the run. Times are the database's wall clock in ms. */
export interface StoredTask {
  id: string;
  server: string;
  key: string | null;
  state: string;
  outcome: string | null;
  attempt: number;
  createdAt: number;
  endedAt: number | null;
  cancelRequestedAt: number | null;
  errorCode: string | null;
  exitCode: number | null;
  stdout: string | null;
  ends: number;
  retries: number;
}

export interface StoredTicket {
  uuid: string;
  queue: string;
  /** The number of the queue's row; a later row of the same queue has a higher one. */
  row: number;
  place: number;
  status: string;
  createdAt: number;
  activeAt: number | null;
  /** When an ended one ended. */
  updatedAt: number;
}

export interface StoredStatus {
  server: string;
  status: string;
  reason: string;
  since: number;
  epoch: number;
}

export interface StoredPushJob {
  id: string;
  state: string;
  outcome: string | null;
  createdAt: number;
  endedAt: number | null;
  nodes: {
    server: string;
    state: string;
    /** Tasks of this node, and end events of them. */
    tasks: number;
    ends: number;
    /** The job still has its server. */
    isBusy: boolean;
  }[];
}

export interface Stored {
  tasks: StoredTask[];
  pushJobs: StoredPushJob[];
  tickets: StoredTicket[];
  statuses: StoredStatus[];
}

/** A line that a command wrote to a file. */
export interface Effect {
  event: 'begin' | 'beat' | 'end';
  token: string;
  task: string;
  /** The pid of the command, and of the agent that started it. */
  pid: number;
  agentPid: number;
  /** The machine's uptime in ms. */
  uptime: number;
  exitCode?: number;
}

/** A line that the command of a push job wrote when it began. */
export interface PushEffect {
  job: string;
  agentPid: number;
  /** The machine's uptime in ms. */
  uptime: number;
}

export interface Evidence {
  history: Entry[];
  stored: Stored;
  effects: Effect[];
  pushEffects: PushEffect[];
}

/**
 * The lines that commands of test/chaos/workloads.ts write. An incomplete line, of a command that
 * was killed, does not count.
 */
export function parseEffects(text: string): Effect[] {
  return text.split('\n').flatMap((line) => {
    const [event, token = '', task = '', pid, agentPid, uptime, exitCode] = line.split(' ');
    if (event !== 'begin' && event !== 'beat' && event !== 'end') return [];
    if (uptime === undefined) return [];
    const effect: Effect = {
      event,
      token,
      task,
      pid: Number(pid),
      agentPid: Number(agentPid),
      uptime: 1000 * Number(uptime),
    };
    return [exitCode === undefined ? effect : { ...effect, exitCode: Number(exitCode) }];
  });
}

export function parsePushEffects(text: string): PushEffect[] {
  return text.split('\n').flatMap((line) => {
    const [event, job = '', , agentPid, uptime] = line.split(' ');
    if (event !== 'push' || uptime === undefined) return [];
    return [{ job, agentPid: Number(agentPid), uptime: 1000 * Number(uptime) }];
  });
}

export function parseHistory(text: string): Entry[] {
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Entry);
}
