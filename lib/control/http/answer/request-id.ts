import type { IncomingMessage } from 'node:http';

const REQUEST_ID = /^[\x21-\x7e]{1,100}$/;

/** The caller's request id, if it is safe in a header and a log. */
export function requestIdOf(request: IncomingMessage): string | undefined {
  const given = request.headers['x-request-id'] ?? request.headers['request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : undefined;
}
