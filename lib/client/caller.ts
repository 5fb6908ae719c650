/**
 * A request to whichever instance answers. Used by client.ts and follow.ts.
 *
 *     address ──refuses, unreachable──▶ next address            (any request)
 *        ├──breaks off, 503──▶ next address                     (a repeatable request)
 *        ├──429 with a short Retry-After──▶ the same, after it  (any request: it was not carried out)
 *        └──answers──▶ the answer, or ApiError; asked first from then on
 *
 * When all addresses have failed and one of them had answered before, a repeatable request goes round again for a while.
 */
import type { IncomingMessage } from 'node:http';
import type { z } from 'zod';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { type Address, addressesOf, addressKey, addressText, type Place, tlsNamesOf } from './address.ts';
import { ApiError, type FailedAttempt, NoAnswerError, UnexpectedAnswerError } from './client-errors.ts';
import type { Credentials } from './credentials.ts';
import { CallFailure, Connections, type HttpCall } from './http-call.ts';

export interface CallerDependencies {
  place: Place;
  /** Whether instances found by DNS speak TLS. */
  secure?: boolean;
  /** A function is asked once, at the first call. */
  credentials: Credentials | (() => Promise<Credentials>);
  clock: Clock;
  random: Random;
  /** Sent as User-Agent. */
  agent?: string;
}

export interface Call extends Omit<HttpCall, 'withinMs'> {
  /** Doing it twice is the same as once. Default: GET, PUT, DELETE. */
  repeatable?: boolean;
  /** At each address. Default 10 s. */
  withinMs?: number;
  /** On a connection of its own: what lasts long must not stand in the way of what is short. */
  ownConnection?: boolean;
  /** How long to go round when nobody answers. Default: 0 before anybody has answered, then 10 s. */
  patienceMs?: number;
}

export interface Answer {
  status: number;
  text: string;
  address: string;
  requestId: string | undefined;
}

const WITHIN_MS = 10_000;
const PATIENCE_MS = 10_000;
const PAUSE_MS = 250;
const MAX_RETRY_AFTER_SECONDS = 10;

export class Caller {
  readonly clock: Clock;
  readonly connections: Connections;
  readonly #deps: CallerDependencies;
  #addresses: Address[] = [];
  /** From GET /instances; tried after those the caller named. */
  #learnt: Address[] = [];
  #hasAnswered = false;

  constructor(deps: CallerDependencies) {
    this.#deps = deps;
    this.clock = deps.clock;
    this.connections = new Connections(deps);
  }

  close(): void {
    this.connections.close();
  }

  /**
   * Instances beside those that were named, so that one of them may go while something lasts. They are of the same zone: a
   * certificate for the name that stands for it is as good as one for what they call themselves.
   */
  learn(addresses: readonly Address[]): void {
    const { place, secure = false } = this.#deps;
    const otherNames = tlsNamesOf(place, secure);
    this.#learnt = addresses.slice(0, 100).map((one) => (one.secure ? { ...one, otherNames } : one));
  }

  /** The body of a 2xx answer, checked. @throws ApiError, NoAnswerError, UnexpectedAnswerError */
  async json<Schema extends z.ZodType>(call: Call, schema: Schema): Promise<z.output<Schema>> {
    const answer = await this.call(call);
    const parsed = schema.safeParse(parseJson(answer));
    if (parsed.success) return parsed.data;
    const [issue] = parsed.error.issues;
    const where = issue === undefined ? '' : ` (${issue.path.join('.') || 'body'}: ${issue.message})`;
    throw new UnexpectedAnswerError(`${what(call)} was answered with something else than expected${where}`, answer);
  }

  /** @throws ApiError, NoAnswerError */
  async call(call: Call): Promise<Answer> {
    return this.open(call, async (response, address) => {
      const text = await this.connections.read(response);
      return { status: response.statusCode ?? 0, text, address, requestId: requestIdOf(response) };
    });
  }

  /** As `call`; `take` reads a 2xx answer, and where it breaks off another instance is asked if the request may be repeated. */
  async open<Taken>(call: Call, take: (response: IncomingMessage, address: string) => Promise<Taken>): Promise<Taken> {
    const { clock } = this;
    const isRepeatable = call.repeatable ?? call.method !== 'POST';
    const start = clock.now();
    let attempts: FailedAttempt[] = [];
    let refusal: ApiError | undefined;
    let mayHaveArrived = false;
    for (let round = 0; ; round++) {
      attempts = [];
      for (const address of await heeding(this.#inOrder(), call.signal)) {
        call.signal?.throwIfAborted();
        const result = await this.#attempt(address, call, take);
        if ('taken' in result) return result.taken;
        if (result.refusal !== undefined) {
          result.refusal.mayBeDone = mayHaveArrived;
          if (!isRepeatable || result.refusal.statusCode !== 503) throw result.refusal;
          refusal = result.refusal;
        }
        mayHaveArrived ||= result.mayHaveArrived;
        attempts.push({ address: addressText(address), ...result });
        if (!isRepeatable && result.mayHaveArrived) throw new NoAnswerError(what(call), attempts);
      }
      const patienceMs = call.patienceMs ?? (this.#hasAnswered ? PATIENCE_MS : 0);
      if (!isRepeatable || clock.now() - start >= patienceMs) throw refusal ?? new NoAnswerError(what(call), attempts);
      await clock.sleep(Math.min(PAUSE_MS * 2 ** Math.min(round, 3), patienceMs), call.signal);
    }
  }

  async #attempt<Taken>(
    address: Address,
    call: Call,
    take: (response: IncomingMessage, address: string) => Promise<Taken>,
  ): Promise<{ taken: Taken } | { why: string; mayHaveArrived: boolean; refusal?: ApiError }> {
    const at = addressText(address);
    const withinMs = call.withinMs ?? WITHIN_MS;
    const headers = { 'user-agent': this.#deps.agent ?? 'cnapi-client', accept: 'application/json', ...call.headers };
    const fresh = call.ownConnection === true || !(call.repeatable ?? call.method !== 'POST');
    try {
      for (let again = 0; ; again++) {
        const response = await this.connections.open(address, { ...call, headers, withinMs }, { fresh });
        const status = response.statusCode ?? 0;
        if (status >= 200 && status < 300) {
          this.#prefer(address);
          return { taken: await take(response, at) };
        }
        const refusal = errorOf(response, await this.connections.read(response), at);
        const pause = status === 429 && again < 3 ? refusal.retryAfterSeconds : undefined;
        if (pause === undefined || pause > MAX_RETRY_AFTER_SECONDS) {
          if (status !== 503) this.#prefer(address);
          return { why: refusal.message, mayHaveArrived: true, refusal };
        }
        await this.clock.sleep(Math.max(pause, 0.1) * 1000, call.signal);
        call.signal?.throwIfAborted();
      }
    } catch (error) {
      call.signal?.throwIfAborted();
      if (error instanceof CallFailure) return { why: error.message, mayHaveArrived: error.mayHaveArrived };
      throw error;
    }
  }

  /** Who answered last is asked first. */
  #prefer(address: Address): void {
    this.#hasAnswered = true;
    this.#preferred = addressKey(address);
  }
  #preferred = '';

  /** Asked anew for each round: instances come and go. */
  async #inOrder(): Promise<Address[]> {
    try {
      this.#addresses = await addressesOf(this.#deps.place, this.#deps);
    } catch (error) {
      // What was found before may well live, while the name server does not.
      if (this.#addresses.length === 0 && this.#learnt.length === 0) throw error;
    }
    const all = new Map(this.#addresses.map((one) => [addressKey(one), one]));
    // What the caller named stays under the name that the caller gave it.
    for (const one of this.#learnt) if (!all.has(addressKey(one))) all.set(addressKey(one), one);
    const first = all.get(this.#preferred);
    return first === undefined ? [...all.values()] : [first, ...[...all.values()].filter((one) => one !== first)];
  }
}

/** Names are resolved by others, in their own time. @throws the signal's reason */
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

export function requestIdOf(response: IncomingMessage): string | undefined {
  const id = response.headers['x-request-id'];
  return typeof id === 'string' ? id : undefined;
}

const what = ({ method, path }: Call): string => `${method} ${path.split('?')[0]}`;

function parseJson(answer: Answer): unknown {
  if (answer.text === '') return undefined;
  try {
    return JSON.parse(answer.text);
  } catch (cause) {
    throw new UnexpectedAnswerError('The answer is not JSON; is this a cnapi?', answer, cause);
  }
}

/** The error that an answer other than 2xx tells. */
export function errorOf(response: IncomingMessage, text: string, address: string): ApiError {
  const status = response.statusCode ?? 0;
  const body = bodyOf(text);
  const retryAfter = Number(response.headers['retry-after']);
  const facts = {
    address,
    requestId: requestIdOf(response),
    ...(Number.isFinite(retryAfter) && response.headers['retry-after'] ? { retryAfterSeconds: retryAfter } : {}),
    ...(Array.isArray(body.errors) ? { errors: body.errors.filter(isFieldError) } : {}),
  };
  const code = typeof body.code === 'string' ? body.code : 'UnexpectedAnswer';
  const message = typeof body.message === 'string' ? body.message : `HTTP status ${status}`;
  return new ApiError(code, status, message, facts);
}

function bodyOf(text: string): Record<string, unknown> {
  try {
    const body: unknown = JSON.parse(text);
    return typeof body === 'object' && body !== null ? (body as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

function isFieldError(value: unknown): value is { field: string; code: string; message: string } {
  return typeof value === 'object' && value !== null && 'field' in value && 'message' in value;
}
