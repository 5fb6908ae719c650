/**
 * Maps errors to answers, in this one place. A CnapiError has its own status and code. Anything
 * else is a defect of cnapi: 500 without internal details, and an error in the log under the same
 * request id.
 */
import { CnapiError } from '../../../platform/errors.ts';
import type { RouteAnswer } from '../route.ts';

interface ErrorBody {
  code: string;
  message: string;
  errors?: { field: string; code: string; message: string }[];
}

export function errorAnswer(error: unknown): RouteAnswer {
  if (!(error instanceof CnapiError)) {
    return {
      status: 500,
      body: { code: 'InternalError', message: 'Internal error; the log has it under this request id' },
    };
  }
  const body: ErrorBody = { code: error.code, message: error.message };
  if (error.errors !== undefined) body.errors = error.errors;
  return { status: error.statusCode, body, headers: headersOf(error) };
}

/** True for an unexpected error that somebody must examine. */
export function isDefect(error: unknown): boolean {
  return !(error instanceof CnapiError);
}

function headersOf(error: CnapiError): Record<string, string> {
  const headers: Record<string, string> = {};
  if (error.retryAfterSeconds !== undefined) headers['Retry-After'] = String(error.retryAfterSeconds);
  if (error.statusCode === 401) headers['WWW-Authenticate'] = error.challenge ?? 'Bearer realm="cnapi"';
  if (error.statusCode === 426) headers.Upgrade = 'websocket';
  return headers;
}
