/**
 * Requests that are signed instead of bearing a token, on routes whose contract says `signed`. The
 * headers are signed, and among them the hash of the body. So the listener asks who signed the
 * headers, then reads the body, then asks whether it is the signed one. lib/control/chef/signatures
 * knows the form of a signature.
 */
import type { IncomingMessage } from 'node:http';
import { CnapiError } from '../../../platform/errors.ts';
import type { Actor } from '../../access/token.ts';

/** A request of which the body has not been read. */
export interface SignedRequestHead {
  method: string;
  /** Path and query as received. */
  target: string;
  /** Undefined if absent or given more than once. */
  header(name: string): string | undefined;
}

/** The caller whose signature the headers have. */
export interface SignedCaller {
  actor: Actor;
  /** Checks that the body is the signed one. @throws the refusal */
  checkBody(body: Buffer): void;
  /**
   * Remembers a change, so that it is received once. @throws the refusal, DatabaseUnavailableError
   */
  receive(source: string): Promise<void>;
  /**
   * The change was refused for now: it may be received again from the same address, soon and a few
   * times. @throws DatabaseUnavailableError
   */
  permitRepetition(source: string): Promise<void>;
}

export interface RequestSigning {
  /** Checks the form of the headers. @throws the refusal */
  check(request: Pick<SignedRequestHead, 'header'>): void;
  /**
   * Whether they are signed with a key that this instance has found valid, as far as is known
   * without the database; decides nothing. @throws the refusal
   */
  isKnown(request: SignedRequestHead, organization: string): boolean;
  /** Who signed the headers. @throws the refusal, DatabaseUnavailableError */
  authenticate(request: SignedRequestHead, organization: string): Promise<SignedCaller>;
}

/** Refusals of a statement that promise that nothing was changed, and ask to try again. */
const REFUSED_FOR_NOW = new Set(['DatabaseBusy', 'TooManyPushJobs']);

export function isRefusedForNow(error: unknown): boolean {
  return error instanceof CnapiError && REFUSED_FOR_NOW.has(error.code);
}

/** Whether a request has headers of a signature, complete or not. */
export function hasSignatureHeaders({ headers }: Pick<IncomingMessage, 'headers'>): boolean {
  return Object.keys(headers).some((name) => name.startsWith('x-ops-') && name !== 'x-ops-server-api-version');
}

export function readSignedHead({ method = '', url = '', headersDistinct }: IncomingMessage): SignedRequestHead {
  const header = (name: string) => {
    const values = headersDistinct[name.toLowerCase()];
    return values?.length === 1 ? values[0] : undefined;
  };
  return { method, target: url, header };
}
