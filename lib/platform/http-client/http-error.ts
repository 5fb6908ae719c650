/** Why a request has no answer, or no complete one. */

/**
 * - `unreachable`: there was no connection to send the request on.
 * - `untrusted`: the certificate is not from a trusted CA.
 * - `no-tls`: the other side does not speak TLS.
 * - `timed-out`: a time limit of the request.
 * - `broken-off`: the connection ended before the answer did.
 * - `unreadable`: the answer is not HTTP/1.1, or its head exceeds a limit.
 * - `too-large`: the body exceeds the caller's limit.
 * - `given-up`: the caller aborted the request.
 */
export type HttpFailureKind =
  | 'unreachable'
  | 'untrusted'
  | 'no-tls'
  | 'timed-out'
  | 'broken-off'
  | 'unreadable'
  | 'too-large'
  | 'given-up';

interface HttpFailure {
  /** Host and port. */
  target: string;
  kind: HttpFailureKind;
  /** The cause in words, without the target. */
  reason: string;
  /** Whether the other side may have read the request. */
  mayHaveArrived: boolean;
  cause?: unknown;
}

/**
 * Not a CnapiError: callers of an instance must not learn how its requests to other programs fail.
 */
export class HttpError extends Error {
  readonly kind: HttpFailureKind;
  readonly reason: string;
  readonly mayHaveArrived: boolean;
  /**
   * The request was sent on a kept connection that ended before the answer began. The other side
   * may have closed the connection before the request arrived.
   */
  wasStale = false;

  constructor({ target, kind, reason, mayHaveArrived, cause }: HttpFailure) {
    super(`${target}: ${reason}`, { cause });
    this.name = 'HttpError';
    this.kind = kind;
    this.reason = reason;
    this.mayHaveArrived = mayHaveArrived;
  }
}

/** Node's own texts assume knowledge of errno codes. */
const REASONS: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  EPIPE: 'connection reset',
  ENOTFOUND: 'no such host name',
  EAI_AGAIN: 'the host name cannot be resolved now',
  EHOSTUNREACH: 'no route to the host',
  ENETUNREACH: 'no route to the network',
  ETIMEDOUT: 'no connection in time',
  CERT_HAS_EXPIRED: 'its certificate has expired',
  UND_ERR_SOCKET: 'the connection ended before the answer',
  UND_ERR_HEADERS_OVERFLOW: 'header overflow: the head of the answer is too large',
};
const UNTRUSTED: Readonly<Record<string, string>> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is self-signed',
  SELF_SIGNED_CERT_IN_CHAIN: 'its CA is not trusted',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its CA is not trusted',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its CA is not trusted',
};
const NO_TLS = ['ERR_SSL_WRONG_VERSION_NUMBER', 'EPROTO'];
/** undici's messages for an answer of status 100 or 101. */
const UNEXPECTED = /^bad (response|upgrade)$/;
/** The parser's message, without a code, when a connection that is not kept ends too early. */
const EARLY_END = /\(Invalid EOF state\)$/;

/** What an error of a socket or of undici means. That of a connection attempt is a cause. */
export function describeHttpFailure(error: Error, wasSent: boolean): { kind: HttpFailureKind; reason: string } {
  const { code = '' } = (error.cause ?? error) as NodeJS.ErrnoException;
  const { name, message } = error;
  const untrusted = UNTRUSTED[code];
  if (untrusted !== undefined) return { kind: 'untrusted', reason: untrusted };
  if (NO_TLS.includes(code)) return { kind: 'no-tls', reason: 'it does not speak TLS' };
  if (UNEXPECTED.test(message))
    return { kind: 'unreadable', reason: 'its answer was not asked for: 100 Continue or an upgrade' };
  const reason = REASONS[code] ?? message;
  if (EARLY_END.test(message))
    return { kind: 'broken-off', reason: 'the connection ended in the middle of the answer' };
  if (name === 'HTTPParserError' || code === 'UND_ERR_HEADERS_OVERFLOW') return { kind: 'unreadable', reason };
  return { kind: wasSent ? 'broken-off' : 'unreachable', reason };
}
