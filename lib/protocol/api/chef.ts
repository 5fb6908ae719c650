/**
 * Push jobs as clients of Chef Push Jobs know them: its paths, its forms and its
 * errors. docs/pushy.md. The command line of cnapi uses the routes of `push/jobs.ts` instead.
 */
import { z } from 'zod';
import {
  MAX_COMMAND_VARIABLES,
  MAX_PUSH_ENV_BYTES,
  MAX_PUSH_FILE_BYTES,
  MAX_PUSH_NODES,
  MAX_TASK_TIMEOUT_MS,
} from '../limits.ts';
import { answer, contracts, type Known, type ResponseSpec } from './contract/contract.ts';
import { integer } from './contract/rules.ts';
import { NODE_STATUSES } from './push/job-schemas.ts';
import { DEFAULT_RUN_TIMEOUT_MS } from './push/jobs.ts';

export const MAX_CHEF_BODY_BYTES = 1_000_000;

/** The keys that a new job may have. */
export const CHEF_JOB_KEYS = [
  'command',
  'nodes',
  'quorum',
  'run_timeout',
  'user',
  'dir',
  'env',
  'file',
  'capture_output',
] as const;

/** Chef has no word for a job that ends: it shows what the job was doing. */
export const CHEF_JOB_STATUSES = ['voting', 'running', 'complete', 'quorum_failed', 'timed_out', 'aborted'] as const;
export type ChefJobStatus = (typeof CHEF_JOB_STATUSES)[number];

const chefError = answer({
  error: z
    .union([z.string(), z.array(z.string())])
    .describe('A text if something is wrong with a job, else a list with one text'),
  field: z.string().optional().describe('The key of the job that is wrong'),
  detail: z.string().optional(),
}).meta({ id: 'ChefError' });

export type ChefError = Known<z.output<typeof chefError>>;

const counts = z.partialRecord(z.enum(NODE_STATUSES), z.int());

const jobFields = {
  id: z.string().describe('32 hexadecimal digits; with dashes it is the id in /push-jobs'),
  command: z.string().optional(),
  withheld: z.boolean().optional().describe('Command and options are left out: the token may not run tasks'),
  status: z.enum(CHEF_JOB_STATUSES),
  run_timeout: z.number().describe('Seconds'),
  user: z.string().optional(),
  dir: z.string().optional(),
  env: z.record(z.string(), z.string()).optional(),
  file_specified: z.boolean().optional(),
  capture_output: z.boolean().optional(),
  created_at: z.string().describe('As in RFC 1123'),
  updated_at: z.string().describe('When the job entered its status; changes of its nodes do not count'),
};

const listedJob = answer({ ...jobFields, counts: counts.optional().describe('With `counts=true`') }).meta({
  id: 'ChefListedJob',
});
const job = answer({
  ...jobFields,
  file: z
    .string()
    .optional()
    .describe('With `include_file=true`, in place of `file_specified`, until the job has ended'),
  nodes: z
    .partialRecord(z.enum(NODE_STATUSES), z.array(z.string()))
    .describe('Names of the nodes by their status; a status without nodes is absent'),
}).meta({ id: 'ChefJob' });

export type ChefListedJob = Known<z.output<typeof listedJob>>;
export type ChefJob = Known<z.output<typeof job>>;

const nodeState = answer({
  node_name: z.string(),
  status: z.enum(['online', 'offline']),
  availability: z
    .enum(['available', 'unavailable'])
    .describe('A node that runs a job is available: it votes no if it is asked'),
  updated_at: z.string().optional().describe('When it was last lost or came back; absent if it was never there'),
}).meta({ id: 'ChefNodeState' });

export type ChefNodeState = Known<z.output<typeof nodeState>>;

const configuration = answer({
  type: z.literal('config'),
  host: z.string(),
  node: z.string(),
  organization: z.string(),
  push_jobs: answer({
    heartbeat: answer({
      out_addr: z.string(),
      command_addr: z.string(),
      interval: z.number(),
      offline_threshold: z.int(),
      online_threshold: z.int(),
    }),
  }),
  lifetime: z.int(),
  incarnation_id: z.string(),
}).meta({ id: 'ChefConfiguration' });

export type ChefConfiguration = Known<z.output<typeof configuration>>;

const feedEvent = answer({
  id: z.string(),
  event: z.enum([
    'start',
    'quorum_vote',
    'quorum_succeeded',
    'run_start',
    'run_complete',
    'rehab',
    'job_complete',
    'summary',
    'start_of_history',
  ]),
  data: z.record(z.string(), z.unknown()).describe('`timestamp`, and what the event is about'),
}).meta({ id: 'ChefFeedEvent' });

const jobExample = {
  id: 'c0ffee001a2b4c3d8e4f5a6b7c8d9e0f',
  command: 'chef-client',
  status: 'running',
  run_timeout: 3600,
  created_at: 'Tue, 01 Jan 2030 00:00:00 GMT',
  updated_at: 'Tue, 01 Jan 2030 00:00:01 GMT',
} as const;

const refused = (description: string): ResponseSpec<typeof chefError> => ({ description, schema: chefError });
const refusals = {
  400: refused('The headers of the signature are missing or of an unknown version'),
  401: refused('Not signed by whom it names, too old, or received before; or no valid token'),
  403: refused('Not associated with the organization, or not in the group that this needs'),
  404: refused('No such organization'),
  406: refused('The Accept header does not allow the type of the answer'),
  413: refused('The body is too large'),
  415: refused('The body is not application/json'),
  429: refused('Too much of this address or caller'),
  500: refused('Failed; the log says why'),
  503: refused('Not now; again after `Retry-After` seconds'),
};
const ofJob = { ...refusals, 404: refused('No such organization, or no such job in it') };

const inOrganization = { organization: z.string().describe('Name of the organization') };
const oneJob = { ...inOrganization, id: z.string().describe('As the job was answered, with or without dashes') };
const oneNode = { ...inOrganization, node: z.string().describe('Name of the node: the hostname of its server') };

/** What all routes of an organization share. The caller's groups decide what it may do there. */
const common = { tag: 'pushy', origin: 'own', lenient: true, signed: true, preconditions: [] } as const;
const jobs = '/organizations/:organization/pushy/jobs';
const output = { description: 'What the command wrote', schema: z.string(), contentType: 'application/octet-stream' };
const feed = { description: 'Server-sent events', schema: feedEvent, contentType: 'text/event-stream' };
const after = { 'Last-Event-ID': 'Resume after the event with this id, on any instance' };

/** Described here, and checked by the handler, which answers in the words of Chef. */
const checkedLater = <Value>(described: Record<string, unknown>) => z.custom<Value>().meta(described);

export const chefContracts = contracts({
  GetChefStatus: {
    method: 'GET',
    path: '/pushy/_status',
    summary: 'That this instance answers, as Chef says it',
    tag: 'pushy',
    origin: 'own',
    lenient: true,
    requiredRole: 'anyone',
    params: z.object({}),
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: answer({
          status: z.literal("it's alive"),
          incarnation_id: z.string().describe('The run of this instance'),
          node_fsm_count: z.int().describe('Agents that are connected to this instance'),
          job_processes: z.array(z.string()).describe('Always empty: only who may read jobs learns their ids'),
        }),
      },
    },
  },
  CreateChefJob: {
    ...common,
    method: 'POST',
    path: jobs,
    summary: 'Starts a push job on nodes of the organization. Any other key than these is refused',
    params: z.object({
      ...inOrganization,
      command: z.string(),
      nodes: checkedLater<string[]>({
        type: 'array',
        items: { type: 'string' },
        minItems: 1,
        maxItems: MAX_PUSH_NODES,
      }).describe('Names of nodes, each once'),
      quorum: z.number().optional().describe('How many nodes must be ready before one starts; all when absent'),
      run_timeout: z
        .number()
        .optional()
        .describe(`Seconds, at most ${MAX_TASK_TIMEOUT_MS / 1000}; ${DEFAULT_RUN_TIMEOUT_MS / 1000} when absent`),
      user: z.string().max(32).optional().describe('Run as this user'),
      dir: z.string().optional().describe('Run in this directory'),
      env: checkedLater<Record<string, string>>({
        type: 'object',
        additionalProperties: { type: 'string' },
        maxProperties: MAX_COMMAND_VARIABLES,
      })
        .optional()
        .describe(`Environment variables; their names and values have at most ${MAX_PUSH_ENV_BYTES} bytes together`),
      file: z
        .string()
        .optional()
        .describe(`\`raw:\` or \`base64:\` and the contents of a file, at most ${MAX_PUSH_FILE_BYTES} bytes`),
      capture_output: z.boolean().optional().describe('Whether the output of the nodes can be read here'),
    }),
    responses: {
      ...refusals,
      201: {
        description: 'Created',
        schema: answer({ uri: z.string(), id: z.string() }),
        example: { uri: `https://cnapi.example.com/organizations/acme/pushy/jobs/${jobExample.id}`, id: jobExample.id },
        headers: { Location: 'As `uri`' },
      },
      400: refused('What is wrong with the job, or with the signature; nothing was created'),
    },
  },
  ListChefJobs: {
    ...common,
    method: 'GET',
    path: jobs,
    summary: 'The push jobs of the organization, newest first, without their nodes',
    params: z.object({
      ...inOrganization,
      status: z.enum(CHEF_JOB_STATUSES).optional().describe('Only jobs with this status'),
      limit: integer('limit', 1, 1000).optional().describe('All when absent'),
      cursor: z.string().optional().describe('The `id` of the last job of the page before'),
      counts: z.string().optional().describe('`true`: with the number of nodes in each status'),
    }),
    responses: { ...refusals, 200: { description: 'OK', schema: z.array(listedJob), example: [jobExample] } },
  },
  GetChefJob: {
    ...common,
    method: 'GET',
    path: `${jobs}/:id`,
    summary: 'A push job, with its nodes by status',
    params: z.object({
      ...oneJob,
      include_file: z.string().optional().describe('`true`: with its file, until the job has ended'),
    }),
    responses: {
      ...ofJob,
      200: { description: 'OK', schema: job, example: { ...jobExample, nodes: { running: ['web-1', 'web-2'] } } },
    },
  },
  AbortChefJob: {
    ...common,
    method: 'PUT',
    path: `${jobs}/:id/abort`,
    summary: 'Aborts a push job. Repeating it, and aborting a job that has ended, is harmless',
    params: z.object(oneJob),
    // Clients send `{}`, which is part of what they sign.
    takesAnyBody: true,
    responses: { ...ofJob, 200: { description: 'The job; it ends when its nodes have', schema: job } },
  },
  DeleteChefJob: {
    ...common,
    method: 'DELETE',
    path: `${jobs}/:id`,
    summary: 'Deletes a push job that has ended, and its feed',
    params: z.object(oneJob),
    responses: {
      ...ofJob,
      200: { description: 'The job as it was', schema: job },
      409: refused('The job has not ended: abort it first'),
    },
  },
  GetChefStdout: {
    ...common,
    method: 'GET',
    path: `${jobs}/:id/output/:node/stdout`,
    summary: 'What the command wrote on a node, if the job captures output and the command has ended',
    params: z.object({ ...oneJob, ...oneNode }),
    responses: { ...ofJob, 200: output },
  },
  GetChefStderr: {
    ...common,
    method: 'GET',
    path: `${jobs}/:id/output/:node/stderr`,
    summary: 'The errors that the command wrote on a node, in the same way',
    params: z.object({ ...oneJob, ...oneNode }),
    responses: { ...ofJob, 200: output },
  },
  ListChefNodeStates: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/node_states',
    summary: 'All nodes of the organization, and whether push jobs can use them',
    params: z.object(inOrganization),
    responses: { ...refusals, 200: { description: 'OK', schema: z.array(nodeState) } },
  },
  GetChefNodeState: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/node_states/:node',
    summary: 'Whether push jobs can use a node. An unknown one is offline',
    params: z.object(oneNode),
    responses: { ...refusals, 200: { description: 'OK', schema: nodeState } },
  },
  GetChefConfig: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/config/:node',
    summary: 'Where the agent of a node connects to. For the node itself, and for readers of push jobs',
    params: z.object({ ...oneNode, ccpk: z.string().optional().describe('Required, and otherwise not used') }),
    responses: { ...refusals, 200: { description: 'OK', schema: configuration } },
  },
  GetChefConnect: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/connect/:node',
    summary: "The same under the specification's name, without ccpk",
    params: z.object(oneNode),
    responses: { ...refusals, 200: { description: 'OK', schema: configuration } },
  },
  FollowChefJobs: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/job_status_feed',
    summary: 'Starts and ends of the push jobs of the organization from now on, as server-sent events',
    longRequest: 'stream',
    params: z.object(inOrganization),
    requestHeaders: after,
    responses: { ...refusals, 200: feed },
  },
  FollowChefJob: {
    ...common,
    method: 'GET',
    path: '/organizations/:organization/pushy/job_status_feed/:id',
    summary: 'All that happens to a push job and its nodes, as server-sent events, until its end',
    longRequest: 'stream',
    params: z.object(oneJob),
    requestHeaders: after,
    responses: { ...ofJob, 200: feed },
  },
});
