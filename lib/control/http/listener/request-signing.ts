/**
 * Requests that are signed instead of bearing a token, on routes whose contract says `signed`. The
 * listener reads the body and asks who signed the request; what a signature looks like is known
 * elsewhere (lib/control/organizations).
 */
import type { IncomingMessage } from 'node:http';
import type { Actor } from '../../access/token.ts';

export interface ReceivedRequest {
  method: string;
  /** Path and query as received. */
  target: string;
  /** Undefined if absent or given more than once. */
  header(name: string): string | undefined;
  body: Buffer;
}

export interface RequestSigning {
  /** Checks the headers, before the body is read. @throws the refusal */
  check(request: Pick<ReceivedRequest, 'header'>): void;
  /** @throws the refusal, DatabaseUnavailableError */
  authenticate(request: ReceivedRequest, organization: string): Promise<Actor>;
}

/** Whether a request has headers of a signature, complete or not. */
export function isSigned({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return Object.keys(headers).some((name) => name.startsWith('x-ops-') && name !== 'x-ops-server-api-version');
}

export function receivedRequest(
  { method = '', url = '', headersDistinct }: IncomingMessage,
  body: Buffer,
): ReceivedRequest {
  const header = (name: string) => {
    const values = headersDistinct[name.toLowerCase()];
    return values?.length === 1 ? values[0] : undefined;
  };
  return { method, target: url, header, body };
}
