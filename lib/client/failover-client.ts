/**
 * Sends a request to whichever instance answers. Used by client.ts and follow.ts.
 *
 *      address ──refuses, unreachable──▶ next address            (any request)
 *         ├──breaks off, 503──▶ next address                     (a repeatable request)
 *         ├──429 with a short Retry-After──▶ same address later  (any request: not carried out)
 *         └──answers──▶ the answer, or ApiError; this address is asked first from then on
 *
 * When all addresses have failed and any instance has answered before, a repeatable request tries
 * all addresses again for a limited time.
 */
import type { WebSocket } from 'ws';
import type { z } from 'zod';
import { HttpError } from '../platform/http-client/http-error.ts';
import type { HttpAnswer } from '../platform/http-client/pending-request.ts';
import type { Random } from '../platform/random.ts';
import type { Clock } from '../platform/time/clock.ts';
import type { ErrorCode } from '../protocol/api/contract/errors.ts';
import { type Address, addressKey, addressText, type Discovery, resolveAddresses, tlsNamesOf } from './address.ts';
import { ApiError, type FailedAttempt, NoAnswerError, UnexpectedAnswerError } from './client-errors.ts';
import type { Credentials } from './credentials.ts';
import { bodyOf, Connections, describeHttpError, type HttpCall, type UpgradeOptions } from './http-call.ts';
import { waitUntilOpened } from './upgrade.ts';

export interface FailoverClientDeps {
  discovery: Discovery;
  /** Whether instances found by DNS use TLS. */
  secure?: boolean;
  /** Called once, at the first call. */
  credentials: () => Promise<Credentials>;
  clock: Clock;
  random: Random;
  /** Sent as User-Agent. */
  agent?: string;
  /** Called when an address keeps a call waiting, and when another address is tried instead. */
  onSlow?: ((text: string) => void) | undefined;
  /**
   * `first` is the address to ask first, in the form of `addressText`. `onAnswer` is called when an
   * address answered after others had failed.
   */
  remembered?: { first: string | undefined; onAnswer(address: string): void } | undefined;
}

export interface Call extends Omit<HttpCall, 'withinMs'> {
  /** Carrying it out twice has the same effect as once. Default: true for GET, PUT, DELETE. */
  repeatable?: boolean;
  /** Time limit at each address. Default 10 s. */
  withinMs?: number;
  /** Uses a connection of its own, so that a long call does not delay short ones. */
  ownConnection?: boolean;
  /**
   * How long to repeat the addresses when no instance answers. Default: 0 before the first answer
   * of any instance, then 10 s.
   */
  patienceMs?: number;
}

interface Answer {
  status: number;
  text: string;
  address: string;
  requestId: string | undefined;
}

const WITHIN_MS = 10_000;
/** Longer than any answer takes, except for calls that wait on purpose. */
const SLOW_MS = 2_000;
const PATIENCE_MS = 10_000;
const PAUSE_MS = 250;
const MAX_RETRY_AFTER_SECONDS = 10;
/**
 * The codes of a 503 that say that nothing was changed. Any other 503 may follow work: an instance
 * that stops, or whose database does not answer, does not know what was carried out.
 */
const NOTHING_CHANGED: ReadonlySet<string> = new Set<ErrorCode>([
  'DatabaseBusy',
  'InstanceDraining',
  'TooManyPushJobs',
  'TooManyTasks',
  'TooManyTickets',
  'TooManyWorkflowJobs',
]);

export class FailoverClient {
  readonly clock: Clock;
  readonly connections: Connections;
  readonly #deps: FailoverClientDeps;
  #addresses: Address[] = [];
  /** Addresses from GET /instances, tried after the addresses that the caller gave. */
  #learnt: Address[] = [];
  #hasAnswered = false;

  constructor(deps: FailoverClientDeps) {
    this.#deps = deps;
    this.clock = deps.clock;
    this.connections = new Connections(deps);
  }

  close(): void {
    this.connections.close();
  }

  /**
   * Adds instances that the caller did not name, so that a named one may leave during a long
   * operation. They belong to the same zone: a certificate for the zone's name is accepted as well
   * as one for their own names.
   */
  learn(addresses: readonly Address[]): void {
    const { discovery, secure = false } = this.#deps;
    const otherNames = tlsNamesOf(discovery, secure);
    this.#learnt = addresses.slice(0, 100).map((one) => (one.secure ? { ...one, otherNames } : one));
  }

  /**
   * Returns the token for the instance that would be asked next.
   * @throws CredentialsError, AddressError, NameResolutionError
   */
  async token(): Promise<string | undefined> {
    const [first] = await this.#inOrder();
    return first === undefined ? undefined : this.connections.token(first);
  }

  /**
   * Returns the body of a 2xx answer, checked against the schema.
   * @throws ApiError, NoAnswerError, UnexpectedAnswerError
   */
  async json<Schema extends z.ZodType>(call: Call, schema: Schema): Promise<z.output<Schema>> {
    const answer = await this.call(call);
    const parsed = schema.safeParse(parseJson(answer));
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    const where = issue === undefined ? '' : ` (${issue.path.join('.') || 'body'}: ${issue.message})`;
    throw new UnexpectedAnswerError(`${what(call)} was answered with something other than expected${where}`, answer);
  }

  /** @throws ApiError, NoAnswerError */
  async call(call: Call): Promise<Answer> {
    return this.open(call, async (response, address) => {
      const text = await bodyOf(response);
      return { status: response.status, text, address, requestId: requestIdOf(response) };
    });
  }

  /**
   * Like `call`, but `take` reads the 2xx answer. If the answer breaks off, another instance is
   * asked if the request may be repeated.
   */
  async open<Taken>(call: Call, take: (response: HttpAnswer, address: string) => Promise<Taken>): Promise<Taken> {
    const { clock } = this;
    const isRepeatable = call.repeatable ?? call.method !== 'POST';
    const start = clock.now();
    let attempts: FailedAttempt[] = [];
    let refusal: ApiError | undefined;
    let mayHaveArrived = false;
    let askedAt = start;
    for (let round = 0; ; round++) {
      attempts = [];
      for (const address of await heeding(this.#inOrder(), call.signal)) {
        call.signal?.throwIfAborted();
        const last = attempts.at(-1);
        if (last !== undefined && !this.#hasAnswered && clock.now() - askedAt >= SLOW_MS)
          this.#deps.onSlow?.(`${last.address}: ${last.reason}; asking ${addressText(address)}`);
        askedAt = clock.now();
        let result = await this.#attempt(address, call, take);
        // Only repeatable requests use kept connections.
        const wasStale = 'wasStale' in result && result.wasStale;
        if (wasStale) result = await this.#attempt(address, { ...call, ownConnection: true }, take);
        mayHaveArrived ||= wasStale;
        if ('taken' in result) {
          if (attempts.length > 0) this.#deps.remembered?.onAnswer(addressText(address));
          return result.taken;
        }
        if (result.refusal !== undefined) {
          result.refusal.mayBeDone = mayHaveArrived;
          if (!isRepeatable || result.refusal.statusCode !== 503) throw result.refusal;
          refusal = result.refusal;
        }
        mayHaveArrived ||= result.mayHaveArrived;
        attempts.push({ address: addressText(address), ...result, ...(wasStale && { mayHaveArrived: true }) });
        if (!isRepeatable && result.mayHaveArrived) throw new NoAnswerError(what(call), attempts);
      }
      const patienceMs = call.patienceMs ?? (this.#hasAnswered ? PATIENCE_MS : 0);
      if (!isRepeatable || clock.now() - start >= patienceMs) throw refusal ?? new NoAnswerError(what(call), attempts);
      await clock.sleep(Math.min(PAUSE_MS * 2 ** Math.min(round, 3), patienceMs), call.signal);
    }
  }

  /**
   * Opens a WebSocket at the first instance that takes it. @throws ApiError for a refusal that
   * another instance would repeat, NoAnswerError
   */
  async upgrade(path: string, options: UpgradeOptions): Promise<WebSocket> {
    const attempts: FailedAttempt[] = [];
    for (const address of await this.#inOrder()) {
      const at = addressText(address);
      const opened = await waitUntilOpened(await this.connections.upgrade(address, path, options), at);
      if ('socket' in opened) {
        this.#prefer(address);
        return opened.socket;
      }
      if (opened.refusal !== undefined && opened.refusal.statusCode !== 503) throw opened.refusal;
      attempts.push({ address: at, reason: opened.reason, mayHaveArrived: false });
    }
    throw new NoAnswerError(`GET ${path}`, attempts);
  }

  async #attempt<Taken>(
    address: Address,
    call: Call,
    take: (response: HttpAnswer, address: string) => Promise<Taken>,
  ): Promise<{ taken: Taken } | { reason: string; mayHaveArrived: boolean; wasStale: boolean; refusal?: ApiError }> {
    const at = addressText(address);
    const withinMs = call.withinMs ?? WITHIN_MS;
    const headers = { 'user-agent': this.#deps.agent ?? 'cnapi-client', accept: 'application/json', ...call.headers };
    const fresh = call.ownConnection === true || !(call.repeatable ?? call.method !== 'POST');
    try {
      for (let again = 0; ; again++) {
        const response = await this.#reportIfSlow(
          at,
          this.connections.open(address, { ...call, headers, withinMs }, { fresh }),
        );
        const { status } = response;
        if (status >= 200 && status < 300) {
          this.#prefer(address);
          return { taken: await take(response, at) };
        }
        const refusal = errorOf(response, await bodyOf(response), at);
        const pause = status === 429 && again < 3 ? refusal.retryAfterSeconds : undefined;
        if (pause === undefined || pause > MAX_RETRY_AFTER_SECONDS) {
          if (status !== 503) this.#prefer(address);
          const mayHaveArrived = !NOTHING_CHANGED.has(refusal.code);
          return { reason: refusal.message, mayHaveArrived, wasStale: false, refusal };
        }
        await this.clock.sleep(Math.max(pause, 0.1) * 1000, call.signal);
        call.signal?.throwIfAborted();
      }
    } catch (error) {
      call.signal?.throwIfAborted();
      if (!(error instanceof HttpError)) throw error;
      return { reason: describeHttpError(error), mayHaveArrived: error.mayHaveArrived, wasStale: error.wasStale };
    }
  }

  /**
   * Reports which address a call waits for, until the first answer of any instance. After that a
   * call may wait on purpose.
   */
  async #reportIfSlow<Value>(address: string, opening: Promise<Value>): Promise<Value> {
    if (this.#hasAnswered) return opening;
    const timer = this.clock.after(SLOW_MS, () => this.#deps.onSlow?.(`waiting for ${address}`));
    return opening.finally(() => timer.cancel());
  }

  /** The address that answered last is asked first. */
  #prefer(address: Address): void {
    this.#hasAnswered = true;
    this.#preferred = addressKey(address);
  }
  #preferred = '';

  /** Resolved again for each round, because instances come and go. */
  async #inOrder(): Promise<Address[]> {
    try {
      this.#addresses = await resolveAddresses(this.#deps.discovery, this.#deps);
    } catch (error) {
      // The addresses found before may still be valid while the name server does not answer.
      if (this.#addresses.length === 0 && this.#learnt.length === 0) throw error;
    }
    const all = new Map(this.#addresses.map((address) => [addressKey(address), address]));
    // An address that the caller gave keeps the caller's name for it.
    for (const address of this.#learnt) if (!all.has(addressKey(address))) all.set(addressKey(address), address);
    const { first: rememberedText } = this.#deps.remembered ?? {};
    const first = this.#hasAnswered
      ? all.get(this.#preferred)
      : [...all.values()].find((address) => addressText(address) === rememberedText);
    return first === undefined
      ? [...all.values()]
      : [first, ...[...all.values()].filter((address) => address !== first)];
  }
}

/**
 * Rejects when the signal aborts: name resolution has no time limit of its own here.
 * @throws the signal's reason
 */
async function heeding<Value>(work: Promise<Value>, signal: AbortSignal | undefined): Promise<Value> {
  if (signal === undefined) return work;
  const { promise: stopped, reject } = Promise.withResolvers<never>();
  const stop = () => reject(signal.reason);
  if (signal.aborted) stop();
  signal.addEventListener('abort', stop, { once: true });
  try {
    return await Promise.race([work, stopped]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

const requestIdOf = (response: HttpAnswer): string | undefined => response.header('x-request-id');

const what = ({ method, path }: Call): string => `${method} ${path.split('?')[0]}`;

function parseJson(answer: Answer): unknown {
  if (answer.text === '') return undefined;
  try {
    return JSON.parse(answer.text);
  } catch (cause) {
    throw new UnexpectedAnswerError('The answer is not JSON; is this a cnapi?', answer, cause);
  }
}

/** Returns the error that a non-2xx answer describes. */
function errorOf(response: HttpAnswer, text: string, address: string): ApiError {
  const { status } = response;
  const body = objectOf(text);
  const retryAfter = response.header('retry-after');
  const retryAfterSeconds = Number(retryAfter);
  const facts = {
    address,
    requestId: requestIdOf(response),
    ...(Number.isFinite(retryAfterSeconds) && retryAfter ? { retryAfterSeconds } : {}),
    ...(Array.isArray(body.errors) ? { errors: body.errors.filter(isFieldError) } : {}),
  };
  const code = typeof body.code === 'string' ? body.code : 'UnexpectedAnswer';
  const message = typeof body.message === 'string' ? body.message : `HTTP status ${status}`;
  return new ApiError(code, status, message, facts);
}

function objectOf(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    // A text alone is how the reset of a server with VMs is refused, as in Triton.
    if (typeof body === 'string') return { code: 'Refused', message: body };
    return typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function isFieldError(value: unknown): value is { field: string; code: string; message: string } {
  return typeof value === 'object' && value !== null && 'field' in value && 'message' in value;
}
