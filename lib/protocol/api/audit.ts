/** The audit: who changed what. For admins. */
import { z } from 'zod';
import { answer, contracts, type Known } from './contract/contract.ts';
import { boundedText, integer, timestamp, uuid } from './contract/rules.ts';

const MAX_PAGE = 1000;
export const AUDIT_PAGE = 100;
const nullableText = z.string().nullable();

const record = answer({
  id: z.int(),
  time: z.string(),
  actor: z.string().describe('The name of the token, or of the trusted network; `open` where no token is required'),
  roles: z.array(z.string()),
  token_uuid: uuid().nullable(),
  action: z.string().describe('The operationId of the request'),
  method: z.string(),
  path: z.string(),
  server_uuid: uuid().nullable(),
  object: nullableText.describe('The id of what it was about, or of what it made'),
  request_id: z.string(),
  source: z.string().describe('The address it came from'),
  instance: uuid(),
  status: z.int().nullable().describe('Null while the request is in progress, or if its instance died meanwhile'),
  code: nullableText.describe('Code of the error, if the request failed'),
  ended_at: nullableText,
  details: z
    .record(z.string(), z.unknown())
    .optional()
    .describe(
      'What a request about push jobs or schedules contained: a new job with the names of GetPushJob, a new schedule with its job, a change as the caller sent it',
    ),
}).meta({ id: 'AuditRecord' });

export type AuditRecord = Known<z.output<typeof record>>;

const example = {
  id: 4711,
  time: '2030-01-01T00:00:00.000Z',
  actor: 'workflow',
  roles: ['operator'],
  token_uuid: '0d5b3c1e-8f4a-4c2b-9d6e-7f8091a2b3c4',
  action: 'CommandExecute',
  method: 'POST',
  path: '/servers/564d5b45-3a8c-4c1f-9d0a-0123456789ab/execute',
  server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  object: '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
  request_id: 'job-17',
  source: '10.0.0.7',
  instance: '5f0a6d5c-1f3e-4f0b-9d4e-6a1c2b3d4e5f',
  status: 200,
  code: null,
  ended_at: '2030-01-01T00:00:00.250Z',
};

export const auditContracts = contracts({
  ListAudit: {
    method: 'GET',
    path: '/audit',
    summary:
      'The requests that changed something, or tried to, newest first. A page may hold fewer than `limit`, when its records are large: the end is an empty page',
    tag: 'access',
    origin: 'own',
    requiredRole: 'admin',
    params: z.object({
      actor: boundedText(100).optional().describe('The name of a token, as in the records'),
      server: uuid().optional().describe('Records about this server, also push jobs that name it among others'),
      action: boundedText(100).optional().describe('An operationId of this document'),
      object: boundedText(500).optional().describe('About this task, ticket, token or instance'),
      object_prefix: boundedText(500).optional().describe('About those whose ids begin so'),
      request_id: boundedText(100).optional().describe('Only records of the request with this `x-request-id`'),
      since: timestamp().describe('ISO 8601 with an offset, or a date; from then on'),
      until: timestamp().describe('ISO 8601 with an offset, or a date; before then'),
      before: integer('before', 1, Number.MAX_SAFE_INTEGER)
        .optional()
        .describe('The page after the one that ends with this id'),
      limit: integer('limit', 1, MAX_PAGE).optional().describe(`${AUDIT_PAGE} when absent`),
    }),
    preconditions: [],
    responses: { 200: { description: 'OK', schema: z.array(record), example: [example] } },
  },
});
