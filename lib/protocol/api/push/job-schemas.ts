/** What a push job and its nodes are in answers. The routes are in `jobs.ts`. */
import { z } from 'zod';
import { NODE_REASONS } from '../../push.ts';
import { answer, type Known } from '../contract/contract.ts';
import { uuid } from '../contract/rules.ts';
import { heldTicket } from './tickets.ts';

export const JOB_STATUSES = [
  'waiting',
  'voting',
  'running',
  'aborting',
  'complete',
  'quorum_failed',
  'timed_out',
  'aborted',
] as const;

/** The statuses of jobs that have ended; they are final. */
export const JOB_ENDS: readonly (typeof JOB_STATUSES)[number][] = ['complete', 'quorum_failed', 'timed_out', 'aborted'];

export const NODE_STATUSES = [
  'new',
  'ready',
  'running',
  'succeeded',
  'failed',
  'aborted',
  'crashed',
  'nacked',
  'unavailable',
  'timed_out',
  'was_ready',
] as const;
export type NodeStatus = (typeof NODE_STATUSES)[number];

const status = z.enum(JOB_STATUSES).describe('The last four are ends: nothing changes after them');

export const nodeCounts = () => z.partialRecord(z.enum(NODE_STATUSES), z.int());

export const pushJob = answer({
  id: uuid(),
  command: z.string().optional(),
  withheld: z
    .boolean()
    .optional()
    .describe('The command and its options are left out: reading them requires a role that may run tasks'),
  status,
  reason: z.string().optional().describe('Why it was aborted'),
  aborted_by: z.string().optional().describe('Who first asked for its abort'),
  coordinator: uuid()
    .nullable()
    .optional()
    .describe(
      'The instance that carries it out at present, as GET /instances has it; null if none does, or the job has ended. Absent in lists',
    ),
  quorum: z.int().describe('How many nodes had to be ready before one started'),
  node_count: z.int(),
  counts: nodeCounts().describe('How many nodes are in each state; states without nodes are absent'),
  concurrency: z.int().optional(),
  start_rate: z.number().optional().describe('Nodes that may start per second'),
  max_failures: z.int().optional(),
  run_timeout_ms: z.int(),
  node_timeout_ms: z.int().optional().describe('The limit of each command'),
  voting_timeout_ms: z.int(),
  user: z.string().optional(),
  dir: z.string().optional(),
  env: z.record(z.string(), z.string()).optional().describe('Secret values show as (secret)'),
  file_specified: z.boolean().optional(),
  capture_output: z.boolean().optional(),
  ticket: heldTicket.optional().describe('The job waits for this ticket, and holds it until the job ends'),
  actor: z.string().nullable().describe('Who created it'),
  created_at: z.string(),
  updated_at: z.string().describe('When the job entered its present status; changes of its nodes do not count'),
}).meta({ id: 'PushJob' });

export type PushJob = Known<z.output<typeof pushJob>>;

export const pushNode = answer({
  server_uuid: uuid(),
  name: z.string().describe("The server's hostname when the job was created"),
  status: z.enum(NODE_STATUSES),
  reason: z
    .string()
    .optional()
    .describe(`Why it has this status. One of ${NODE_REASONS.join(', ')}; a later version may have others`),
  message: z.string().optional(),
  busy_with: uuid().optional().describe('The push job that had the server'),
  task_id: uuid().optional().describe('The run of the command: its output is in GET /tasks/:taskid'),
  exit_code: z.int().optional().describe('Exit code of the command; 128 + N if signal N ended it'),
  cancelled: z.boolean().optional().describe('The command of the node was told to end'),
  updated_at: z.string().describe('When its status last changed'),
}).meta({ id: 'PushNode' });

export type PushNode = Known<z.output<typeof pushNode>>;
