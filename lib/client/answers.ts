/**
 * The answers of the API, as far as a client needs them; other fields are kept. Checked on arrival,
 * because the instance may have another version. test/client checks these schemas against the
 * examples of the routes.
 */
import { z } from 'zod';

const json = z.record(z.string(), z.unknown());
const nullable = z.string().nullish();

export const serverAnswer = z.looseObject({
  uuid: z.string(),
  hostname: z.string().optional(),
  status: z.string().optional(),
  datacenter: z.string().optional(),
});
export type Server = z.output<typeof serverAnswer>;

export const statusChangeAnswer = z.looseObject({
  status: z.string(),
  previous: z.string().nullable(),
  reason: z.string(),
  since: z.string(),
  cnapi_uuid: z.string().nullable(),
  epoch: z.number(),
});
export type StatusChange = z.output<typeof statusChangeAnswer>;

export const instanceAnswer = z.looseObject({
  uuid: z.string(),
  url: z.string(),
  version: z.string(),
  state: z.string(),
  agents: z.number(),
  lease_age_ms: z.number(),
  started: z.string(),
});
export type Instance = z.output<typeof instanceAnswer>;

export const idAnswer = z.looseObject({ id: z.string() });

export const taskAnswer = z.looseObject({
  id: z.string(),
  task: z.string(),
  server_uuid: z.string(),
  status: z.enum(['active', 'complete', 'failure']),
  timestamp: z.string(),
  started_at: z.string().optional(),
  finished_at: z.string().optional(),
  history: z.array(z.looseObject({ name: z.string(), timestamp: z.string(), event: json })),
  /** True when this caller may not see the params, output, result and messages. */
  withheld: z.boolean().optional(),
});
export type Task = z.output<typeof taskAnswer>;

/** One task of a list: small, whatever its params and output. */
const listedTaskAnswer = z.looseObject({
  id: z.string(),
  task: z.string(),
  server_uuid: z.string(),
  status: z.string(),
  timestamp: z.string(),
  actor: nullable,
  summary: z.string().optional(),
  exit_code: z.number().optional(),
  error_code: z.string().optional(),
});
export type ListedTask = z.output<typeof listedTaskAnswer>;

export const taskPageAnswer = z.looseObject({ tasks: z.array(listedTaskAnswer), next: z.string().optional() });
export type TaskPage = z.output<typeof taskPageAnswer>;

export const taskEventAnswer = z.looseObject({
  seq: z.number(),
  name: z.string(),
  attempt: z.number(),
  timestamp: z.string(),
  data: json,
});
export type TaskEvent = z.output<typeof taskEventAnswer>;

export const taskHistoryAnswer = z.looseObject({
  id: z.string().optional(),
  task: z.string(),
  status: z.string(),
  started_at: z.string().optional(),
  finished_at: z.string().optional(),
  messages: z.array(z.unknown()).optional(),
  withheld: z.boolean().optional(),
});
export type TaskHistoryEntry = z.output<typeof taskHistoryAnswer>;

export const ticketAnswer = z.looseObject({
  uuid: z.string(),
  server_uuid: z.string(),
  scope: z.string(),
  id: z.string(),
  action: z.string().optional(),
  expires_at: z.string(),
  created_at: z.string(),
  status: z.enum(['queued', 'active', 'finished', 'expired']),
  reqid: z.string().optional(),
});
export type Ticket = z.output<typeof ticketAnswer>;

export const createdTicketAnswer = z.looseObject({ uuid: z.string(), queue: z.array(ticketAnswer) });
export type CreatedTicket = z.output<typeof createdTicketAnswer>;

export const queueAnswer = z.looseObject({
  server_uuid: z.string(),
  scope: z.string(),
  id: z.string(),
  depth: z.number(),
  holder: z
    .looseObject({ uuid: z.string(), expires_at: z.string(), active_ms: z.number(), action: z.string().nullish() })
    .nullable(),
  oldest_waiting_ms: z.number().nullable(),
});
export type Queue = z.output<typeof queueAnswer>;

export const tokenAnswer = z.looseObject({
  uuid: z.string(),
  name: z.string(),
  role: z.string(),
  server_uuid: nullable,
  created_at: nullable,
  created_by: nullable,
  expires_at: nullable,
  last_used_at: nullable,
  revoked_at: nullable,
});
export type Token = z.output<typeof tokenAnswer>;

export const createdTokenAnswer = tokenAnswer.extend({ token: z.string() });
export type CreatedToken = z.output<typeof createdTokenAnswer>;

export const auditAnswer = z.looseObject({
  id: z.union([z.string(), z.number()]),
  time: z.string(),
  actor: nullable,
  roles: z.array(z.string()).nullish(),
  action: nullable,
  method: nullable,
  path: nullable,
  server_uuid: nullable,
  object: nullable,
  request_id: nullable,
  source: nullable,
  status: z.number().nullish(),
  code: nullable,
});
export type AuditEntry = z.output<typeof auditAnswer>;

/** `data` of an event of GET /events. */
export const fleetEventAnswer = z.looseObject({ time: z.string().optional() });
export const infoAnswer = z.looseObject({ version: z.string() });
