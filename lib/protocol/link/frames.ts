/**
 * The frames of the agent link: one JSON object each, `type` first. Both ends parse them at the
 * edge into these exact types. Unknown keys are ignored, so that a newer peer can add keys.
 * docs/design/roster.md, docs/agent-protocol.md.
 */

import { z } from 'zod';
import { UUID } from '../../platform/uuid.ts';
import { isJsonObject } from '../json/bounded-json.ts';
import {
  MAX_GOAWAY_MS,
  MAX_INVENTORY_TASKS,
  MAX_OUTPUT_CHUNK,
  MAX_PUSH_COMMAND_CHARS,
  MAX_PUSH_FILE_BYTES,
  MAX_TASK_TIMEOUT_MS,
} from '../limits.ts';
import { OUTPUT_STREAMS } from '../output-streams.ts';
import { TASK_OUTCOMES } from '../statuses.ts';

const uuid = z.string().regex(UUID, 'is not a lower-case UUID');
const epoch = z.int().min(0);
const attempt = z.int().min(1).max(1_000_000);
const word = z.string().min(1).max(100);
const capabilities = z.array(word).max(100);
const text = z.string().max(4_000);
const timestamp = z.string().max(40);
const periodMs = z.int().min(1).max(86_400_000);
/**
 * Object whose members are not visited: `z.record` took 147 ms of CPU for 119,000 of them, to check
 * nothing.
 */
const jsonObject = z.custom<Record<string, unknown>>(isJsonObject, 'is not an object');

/** An instance to which an agent may connect. */
const address = z.object({ uuid, host: z.string().min(1).max(255), port: z.int().min(1).max(65_535) });
const addresses = z.array(address).max(1_000);

/** Agent → instance, first on each connection. */
const hello = z.object({
  type: z.literal('hello'),
  version: z.int().min(1).max(1_000_000),
  capabilities,
  serverUuid: uuid,
  /** The life of one agent process. */
  incarnation: uuid,
  /** Counts the connection attempts of the incarnation. */
  conn: z.int().min(1),
  journalId: uuid,
  /** The highest epoch in the agent's journal; 0 for a new journal. */
  epoch,
  /** Identifies the boot of the machine. Used only in reasons. */
  bootId: z.string().max(100),
  agentVersion: z.string().max(100),
  sysinfoDigest: z.string().max(128),
});

/**
 * Instance → agent: the session is accepted under this epoch. The agent ignores it unless the epoch
 * is above the highest it knows.
 */
const welcome = z.object({
  type: z.literal('welcome'),
  version: z.int().min(1),
  capabilities,
  cnapiUuid: uuid,
  epoch: epoch.min(1),
  heartbeatMs: periodMs,
  serverSilenceMs: periodMs,
  reconnectMaxMs: periodMs,
  maxFrameBytes: z.int().min(1024),
  addresses,
  sendSysinfo: z.boolean(),
});

const REFUSAL_CODES = [
  'superseded',
  'incarnation-alive',
  'stale-journal',
  'epoch-out-of-range',
  'bad-credentials',
  'full',
  'returns-too-often',
  'too-many-new-servers',
  'draining',
  'no-database',
  'version',
  'protocol',
] as const;
export type RefusalCode = (typeof REFUSAL_CODES)[number];

/**
 * Instance → agent: the session is not accepted; says what to continue from. The instance closes
 * the connection afterwards.
 */
const refuse = z.object({
  type: z.literal('refuse'),
  /** A code of REFUSAL_CODES; a newer instance may send another one. */
  code: word,
  message: text,
  retryAfterMs: z.int().min(0).max(3_600_000).optional(),
  /** The conn in the row; only for `superseded`. The agent continues with a higher one. */
  conn: z.int().min(0).optional(),
  addresses: addresses.optional(),
});

const inventoryTask = z.object({
  id: uuid,
  attempt,
  state: z.enum(['accepted', 'running', 'ended']),
  /** A former process of the agent left it; this one continues it after `inventory_settled`. */
  held: z.literal(true).optional(),
});

/**
 * Agent → instance, after it journalled the welcome's epoch: every task whose end has not been
 * acknowledged.
 */
const inventory = z.object({
  type: z.literal('inventory'),
  epoch: epoch.min(1),
  tasks: z.array(inventoryTask).max(MAX_INVENTORY_TASKS),
});

/**
 * Instance → agent: these held tasks of the inventory have been compared with what is recorded, and
 * the agent continues them. Others are cancelled, or follow in another frame. An instance that
 * sends this has the capability `inventory-settled`.
 */
const inventorySettled = z.object({
  type: z.literal('inventory_settled'),
  epoch: epoch.min(1),
  tasks: z.array(uuid).max(MAX_INVENTORY_TASKS),
});

/** Both directions: the agent sends one each second; the answer repeats its sequence. */
const heartbeat = z.object({ type: z.literal('heartbeat'), sequence: z.int().min(0) });

/**
 * Agent → instance: the description of the machine (with Triton's key names) and its digest.
 */
const sysinfo = z.object({ type: z.literal('sysinfo'), digest: z.string().min(1).max(128), sysinfo: jsonObject });

/**
 * Agent → instance, on change: VMs, memory and disk, in the form of Triton's status body.
 */
const status = z.object({ type: z.literal('status'), status: jsonObject });

/** Instance → agent: run this attempt. The agent refuses it when the epoch is below its highest. */
const task = z.object({
  type: z.literal('task'),
  id: uuid,
  attempt,
  epoch: epoch.min(1),
  name: word,
  params: jsonObject,
  timeoutMs: z.int().min(1).max(MAX_TASK_TIMEOUT_MS),
  requestId: z.string().max(200).optional(),
});

/** Agent → instance: progress of an attempt. `accepted` means journalled and fsynced. */
const taskEvent = z.object({
  type: z.literal('task_event'),
  id: uuid,
  attempt,
  event: z.discriminatedUnion('name', [
    z.object({ name: z.literal('accepted'), reportedAt: timestamp }),
    z.object({ name: z.literal('started'), reportedAt: timestamp }),
    z.object({
      name: z.literal('progress'),
      reportedAt: timestamp,
      /** Percentage done. */
      value: z.number().min(0).max(100),
      message: text.optional(),
    }),
    z.object({
      name: z.literal('output'),
      reportedAt: timestamp,
      stream: z.enum(OUTPUT_STREAMS),
      /** Number of bytes of this stream before this piece. */
      offset: z.int().min(0),
      text: z.string().max(MAX_OUTPUT_CHUNK),
    }),
  ]),
});

/** Agent → instance: how an attempt ended. Repeated until acknowledged. */
const taskEnd = z.object({
  type: z.literal('task_end'),
  id: uuid,
  attempt,
  outcome: z.enum(TASK_OUTCOMES),
  /** The task's result; `{}` if it has none. */
  result: jsonObject.optional(),
  error: z.object({ code: word, message: text }).optional(),
  reportedAt: timestamp,
});

/** Instance → agent: this end is recorded, or needs no record. The agent forgets the attempt. */
const taskAck = z.object({ type: z.literal('task_ack'), id: uuid, attempt });

/**
 * Instance → agent: end this task. An agent that does not know the id answers with an end of this
 * attempt.
 */
const taskCancel = z.object({ type: z.literal('task_cancel'), id: uuid, attempt });

/**
 * Instance → agent: go to another instance. Without `withinMs` the request is soft: the agent tries
 * one round of addresses and otherwise stays.
 */
const goaway = z.object({
  type: z.literal('goaway'),
  reason: text,
  withinMs: z.int().min(0).max(MAX_GOAWAY_MS).optional(),
  addresses,
});

/**
 * Instance → agent: can you run this job's command? It comes with everything but the start, which
 * is a task. docs/design/push-jobs.md.
 */
const pushPrepare = z.object({
  type: z.literal('push_prepare'),
  job: uuid,
  command: z.string().max(MAX_PUSH_COMMAND_CHARS),
  /** Run as this user of the server. */
  user: word.optional(),
  /** Run in this directory. */
  dir: z.string().min(1).max(4_096).optional(),
  /** Texts by name; the agent checks them. */
  env: jsonObject.optional(),
  /** Contents of a file that the command finds on the server, in base64. */
  file: z
    .string()
    .max(Math.ceil(MAX_PUSH_FILE_BYTES / 3) * 4)
    .optional(),
  /** Whether the job wants the output. */
  capture: z.boolean(),
  /** How long the agent waits for the start before it withdraws its vote. */
  readyMs: periodMs,
});

/** Agent → instance: the answer to push_prepare, or later the withdrawal of a vote. */
const pushVote = z.object({
  type: z.literal('push_vote'),
  job: uuid,
  ready: z.boolean(),
  /** Why not. One of PUSH_REFUSALS in push.ts; a newer agent may have others. */
  reason: word.optional(),
  /** The job that the agent is in; only for `busy`. */
  busyWith: uuid.optional(),
  message: text.optional(),
});

/**
 * Instance → agent: the run timeout of the job was changed, and its command has this limit now,
 * counted like that of its task. Once in each session, to agents with the capability
 * `push-timeouts`.
 */
const pushTimeout = z.object({
  type: z.literal('push_timeout'),
  job: uuid,
  timeoutMs: z.int().min(1).max(MAX_TASK_TIMEOUT_MS),
});

/** Instance → agent: have nothing more to do with this job. Repeated until push_aborted. */
const pushAbort = z.object({ type: z.literal('push_abort'), job: uuid });

/** Agent → instance: it runs nothing of this job and will start nothing of it. */
const pushAborted = z.object({ type: z.literal('push_aborted'), job: uuid });

/** Both directions: the peer's last frame was not understood. For the peer's log. */
const error = z.object({ type: z.literal('error'), code: word, message: text });

export const agentFrames = {
  hello,
  inventory,
  heartbeat,
  sysinfo,
  status,
  task_event: taskEvent,
  task_end: taskEnd,
  push_vote: pushVote,
  push_aborted: pushAborted,
  error,
};
/**
 * Frames whose receiver removes any content that the database cannot store (`reasonNotStorable`).
 * An instance refuses every other frame with such content.
 */
export const FRAMES_CUT_TO_STORABLE: ReadonlySet<AgentFrame['type']> = new Set(['task_event', 'task_end']);

export const instanceFrames = {
  welcome,
  refuse,
  heartbeat,
  inventory_settled: inventorySettled,
  task,
  task_ack: taskAck,
  task_cancel: taskCancel,
  push_prepare: pushPrepare,
  push_timeout: pushTimeout,
  push_abort: pushAbort,
  goaway,
  error,
};

export type InstanceAddress = z.infer<typeof address>;
export type HelloFrame = z.infer<typeof hello>;
export type WelcomeFrame = z.infer<typeof welcome>;
export type RefuseFrame = z.infer<typeof refuse>;
export type InventoryFrame = z.infer<typeof inventory>;
export type InventorySettledFrame = z.infer<typeof inventorySettled>;
export type HeartbeatFrame = z.infer<typeof heartbeat>;
export type SysinfoFrame = z.infer<typeof sysinfo>;
export type TaskFrame = z.infer<typeof task>;
export type TaskEventFrame = z.infer<typeof taskEvent>;
export type TaskEndFrame = z.infer<typeof taskEnd>;
export type TaskAckFrame = z.infer<typeof taskAck>;
export type TaskCancelFrame = z.infer<typeof taskCancel>;
export type PushPrepareFrame = z.infer<typeof pushPrepare>;
export type PushVoteFrame = z.infer<typeof pushVote>;
export type PushTimeoutFrame = z.infer<typeof pushTimeout>;
export type PushAbortFrame = z.infer<typeof pushAbort>;
/** What an instance tells an agent about a push job. */
export type PushOrderFrame = PushPrepareFrame | PushTimeoutFrame | PushAbortFrame;
export type PushAbortedFrame = z.infer<typeof pushAborted>;
export type ErrorFrame = z.infer<typeof error>;

/** Every frame that an instance receives. */
export type AgentFrame = z.infer<(typeof agentFrames)[keyof typeof agentFrames]>;
/** Every frame that an instance receives in a session, except those about the connection itself. */
export type SessionFrame = Exclude<AgentFrame, HelloFrame | InventoryFrame | HeartbeatFrame | ErrorFrame>;
/** Every frame that an agent receives. */
export type InstanceFrame = z.infer<(typeof instanceFrames)[keyof typeof instanceFrames]>;
