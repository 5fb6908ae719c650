/** Tokens: who may authenticate, and with which role. For admins. */
import { z } from 'zod';
import { answer, contracts, errorResponse, type Known } from './contract/contract.ts';
import { reasonNotAName, TOKEN_ROLES } from './contract/roles.ts';
import { booleanText, boundedText, integer, uuid } from './contract/rules.ts';

const LONGEST_SECONDS = 10 * 365 * 86_400;
export const MAX_TOKENS = 10_000;

const role = () => z.enum(TOKEN_ROLES, `value is not one of ${TOKEN_ROLES.join(', ')}`);
const time = z.string().nullable();

const token = answer({
  uuid: uuid(),
  name: z.string(),
  role: role(),
  server_uuid: uuid().nullable().describe('The one server that an agent’s token is good for'),
  created_at: z.string(),
  created_by: z.string(),
  expires_at: time,
  last_used_at: time.describe('To the minute'),
  revoked_at: time,
});

export type Token = Known<z.output<typeof token>>;

const createdToken = token
  .extend({ token: z.string().describe('The text that a caller sends') })
  .meta({ id: 'CreatedToken' });

export type CreatedToken = Known<z.output<typeof createdToken>>;

const example = {
  uuid: '0d5b3c1e-8f4a-4c2b-9d6e-7f8091a2b3c4',
  name: 'workflow',
  role: 'operator',
  server_uuid: null,
  created_at: '2030-01-01T00:00:00.000Z',
  created_by: 'admin',
  expires_at: null,
  last_used_at: null,
  revoked_at: null,
};

export const tokenContracts = contracts({
  CreateToken: {
    method: 'POST',
    path: '/tokens',
    summary: 'Makes a token; its text is in this answer and nowhere else',
    tag: 'access',
    origin: 'own',
    requiredRole: 'admin',
    params: z.object({
      name: z
        .string('value was not a string')
        .superRefine((value, context) => {
          const reason = reasonNotAName(value);
          if (reason !== undefined) context.addIssue({ code: 'custom', message: `value ${reason}` });
        })
        .describe('The audit identifies callers by it; unique among tokens that are not revoked'),
      role: role(),
      expires_in: integer('expires_in', 1, LONGEST_SECONDS).optional().describe('Seconds; never, when absent'),
      server_uuid: uuid().optional().describe('With role `agent`: the token is valid for this server only'),
    }),
    preconditions: [],
    responses: {
      201: {
        description: 'Made',
        schema: createdToken,
        example: {
          ...example,
          token: 'cnapi_0d5b3c1e8f4a4c2b9d6e7f8091a2b3c4_47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU',
        },
        headers: { 'Cache-Control': '`no-store`' },
      },
      409: errorResponse('TokenNameTaken', 'TokenNameTaken'),
    },
  },
  ListTokens: {
    method: 'GET',
    path: '/tokens',
    summary: 'Tokens, newest first, without their texts',
    tag: 'access',
    origin: 'own',
    requiredRole: 'admin',
    params: z.object({
      name: boundedText(100)
        .optional()
        .describe('Only tokens with this name: at most one that is not revoked, and those that had the name before'),
      ended: booleanText()
        .optional()
        .describe('Only those that are revoked or expired (true), or that are not (false)'),
      after: uuid().optional().describe('The page after the one that ends with this token'),
      limit: integer('limit', 1, MAX_TOKENS).optional().describe(`${MAX_TOKENS} when absent, and at most`),
    }),
    preconditions: [],
    responses: {
      200: { description: 'OK', schema: z.array(token.meta({ id: 'Token' })), example: [example] },
      404: errorResponse('The token given as `after` does not exist any more; start again', 'ResourceNotFound'),
    },
  },
  RevokeToken: {
    method: 'DELETE',
    path: '/tokens/:uuid',
    summary:
      'Revokes a token: within a second every instance refuses it, and the links and streams that it opened are closed',
    tag: 'access',
    origin: 'own',
    requiredRole: 'admin',
    params: z.object({ uuid: uuid().describe('Uuid of the token') }),
    preconditions: [],
    responses: {
      204: { description: 'Revoked; again is harmless' },
      404: errorResponse('No such token', 'ResourceNotFound'),
    },
  },
});
