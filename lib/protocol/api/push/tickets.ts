/** The ticket of a push job: what a caller asks for, and how it is shown. docs/push-jobs.md. */
import { z } from 'zod';
import { MAX_TASK_TIMEOUT_MS, MAX_TICKET_ID_BYTES, MAX_TICKET_SCOPE_BYTES } from '../../limits.ts';
import { answer } from '../contract/contract.ts';
import { boundedBytes, integer, members, uuid, uuidOrDefault } from '../contract/rules.ts';

export const DEFAULT_TICKET_SECONDS = 3_600;
export const DEFAULT_TICKET_TIMEOUT_MS = 600_000;

/** A place in a queue of the waitlist, taken and kept by cnapi. */
export const wantedTicket = members(
  z.strictObject(
    {
      server_uuid: uuidOrDefault().optional().describe('`default`, for a lock of the whole datacenter, when absent'),
      scope: boundedBytes(MAX_TICKET_SCOPE_BYTES).min(1, 'value is empty').describe('What kind of thing is locked'),
      id: boundedBytes(MAX_TICKET_ID_BYTES).min(1, 'value is empty').describe('Which one'),
      expires_in: integer('expires_in', 30, 86_400)
        .optional()
        .describe(
          `Seconds after which others get the lock if no instance renews it; ${DEFAULT_TICKET_SECONDS} when absent`,
        ),
      timeout_ms: integer('timeout_ms', 1, MAX_TASK_TIMEOUT_MS)
        .optional()
        .describe(`How long the job waits for it; ${DEFAULT_TICKET_TIMEOUT_MS} when absent`),
    },
    { error: 'value is not an object with scope and id, and perhaps server_uuid, expires_in and timeout_ms' },
  ),
).describe('The job asks its agents when it holds this ticket, keeps it valid, and releases it at its end');

export const heldTicket = answer({
  uuid: uuid().optional().describe('The ticket, once it exists: GET /tickets/:ticket_uuid'),
  server_uuid: z.string(),
  scope: z.string(),
  id: z.string(),
  expires_in: z.int(),
  timeout_ms: z.int(),
});
