/**
 * Sends requests to instances as clients do, through their proxies, and records requests and
 * answers with their times.
 */
import type { Random } from '../../lib/platform/random.ts';
import type { Instance } from '../support/fleet-harness.ts';
import { pick } from './chance.ts';
import type { Op, Operation, Workload } from './history.ts';
import type { Recorder } from './recorder.ts';

export interface Answer {
  /** 0: no answer. */
  status: number;
  body: Body;
  instance: number;
}

interface Body {
  id?: string;
  uuid?: string;
  status?: string;
  attempt?: number;
  code?: string;
  message?: string;
  history?: { event?: { error?: { code?: string } } }[];
}

export interface Request {
  op: Operation;
  method: 'GET' | 'POST' | 'PUT';
  path: string;
  body?: object;
  headers?: Record<string, string>;
  /** Additional fields for the history. */
  about?: Partial<Op>;
  /** Default: any instance. */
  instance?: number;
  withinMs?: number;
}

const ANSWER_WITHIN_MS = 6_000;
/** A client gives up after this time without an answer. */
const PATIENCE_MS = 100_000;
const PAUSE_MS = 150;

export class Caller {
  readonly #instances: readonly Instance[];
  readonly #recorder: Recorder;
  readonly #random: Random;
  readonly #workload: Workload;

  constructor(deps: { instances: readonly Instance[]; recorder: Recorder; random: Random }, workload: Workload) {
    this.#instances = deps.instances;
    this.#recorder = deps.recorder;
    this.#random = deps.random;
    this.#workload = workload;
  }

  /**
   * Repeats the request at any instance until the answer is a real one; undefined when patience
   * ends.
   */
  async insist(request: Request): Promise<Answer | undefined> {
    const until = this.#recorder.now() + PATIENCE_MS;
    while (this.#recorder.now() < until) {
      const answer = await this.ask(request);
      if (answer.status !== 0 && answer.status !== 503) return answer;
      await new Promise((done) => setTimeout(done, PAUSE_MS));
    }
    return undefined;
  }

  async ask(request: Request): Promise<Answer> {
    const { op, method, path, body, headers, about = {}, withinMs = ANSWER_WITHIN_MS } = request;
    const instance = request.instance ?? pick([...this.#instances.keys()], this.#random);
    const askedAt = this.#recorder.now();
    const record = (rest: Partial<Op> & { status: number }) =>
      this.#recorder.write({
        kind: 'op',
        workload: this.#workload,
        op,
        instance,
        askedAt,
        overAt: this.#recorder.now(),
        ...about,
        ...rest,
      });
    try {
      const response = await fetch(`${this.#instances[instance]?.callerUrl}${path}`, {
        method,
        headers: { ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        signal: AbortSignal.timeout(withinMs),
      });
      const text = await response.text();
      const answer = text === '' ? {} : (JSON.parse(text) as Body);
      record({ status: response.status, ...shownOf(op, response.status, answer) });
      return { status: response.status, body: answer, instance };
    } catch (error) {
      const { cause, name } = error as Error & { cause?: { code?: string } };
      record({ status: 0, code: cause?.code ?? name });
      return { status: 0, body: {}, instance };
    }
  }
}

/** The parts of an answer that the history keeps. */
function shownOf(op: Operation, status: number, body: Body): Partial<Op> {
  if (status >= 400) {
    const isExpired = op === 'ticket-wait' && /expired/.test(body.message ?? '');
    return { ...(body.code === undefined ? {} : { code: body.code }), ...(isExpired ? { reported: 'expired' } : {}) };
  }
  switch (op) {
    case 'create':
      return body.id === undefined ? {} : { task: body.id };
    case 'ticket':
      return body.uuid === undefined ? {} : { ticket: body.uuid };
    case 'servers': {
      const servers = body as unknown as { uuid: string; status: string }[];
      return {
        count: servers.length,
        unknown: servers.filter((each) => each.status !== 'running').map(({ uuid }) => uuid),
      };
    }
    default: {
      const code = body.status === 'failure' ? body.history?.[0]?.event?.error?.code : undefined;
      return {
        ...(body.status === undefined ? {} : { reported: body.status }),
        ...(body.attempt === undefined ? {} : { attempt: body.attempt }),
        ...(code === undefined ? {} : { code }),
      };
    }
  }
}
