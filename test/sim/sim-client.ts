/**
 * Callers of the REST interface: each request goes to an instance through the real routes
 * (parameters, preconditions, handler), and its answer returns or is lost with its instance. A
 * caller without an answer does not know the outcome.
 */
import { OPEN_ACTOR } from '../../lib/control/access/token.ts';
import { validateAndHandle } from '../../lib/control/http/request/read-and-handle.ts';
import { createServerPrecondition } from '../../lib/control/servers/routes/server-precondition.ts';
import { CnapiError } from '../../lib/platform/errors.ts';
import type { SeededRandom } from './seeded-random.ts';
import type { SimInstance } from './sim-instance.ts';
import { PHASE } from './virtual-time.ts';
import type { World } from './world.ts';

export interface Request {
  route: string;
  params: Record<string, unknown>;
  headers?: Record<string, string>;
  /** Default 20 s; then the caller gives up. */
  patienceMs?: number;
}

export type Answer = { status: number; body: Record<string, unknown>; instance: string } | { status: 'lost' };

const PATIENCE_MS = 20_000;

export class SimClient {
  readonly random: SeededRandom;
  readonly #world: World;
  readonly #name: string;
  #requests = 0;

  constructor(world: World, name: string) {
    this.#world = world;
    this.#name = name;
    this.random = world.random.fork(name);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => void this.#world.time.schedule(ms, PHASE.input, resolve));
  }

  /** Sends to an instance that the name server gives; refused at once where no instance listens. */
  async ask(request: Request): Promise<Answer> {
    const instance = this.random.pick(this.#world.instances);
    this.#requests += 1;
    const id = `${this.#name}-${this.#requests}`;
    const answer = await this.#exchange(instance, request, id);
    const text = answer.status === 'lost' ? 'no answer' : `${answer.status} ${codeOf(answer.body)}`;
    this.#world.story.note(this.#name, `${request.route} at ${instance.name}: ${text}`);
    return answer;
  }

  /** Repeats the request at any instance until one answers. */
  async insist(request: Request): Promise<Exclude<Answer, { status: 'lost' }>> {
    for (;;) {
      const answer = await this.ask(request);
      if (answer.status !== 'lost' && answer.status !== 503) return answer;
      await this.sleep(this.random.between(200, 1500));
    }
  }

  #exchange(instance: SimInstance, request: Request, requestId: string): Promise<Answer> {
    const { time, network } = this.#world;
    const leaving = new AbortController();
    return new Promise((resolve) => {
      const settle = (answer: Answer) => {
        patience.cancel();
        leaving.abort();
        resolve(answer);
      };
      const patience = time.schedule(request.patienceMs ?? PATIENCE_MS, PHASE.input, () => settle({ status: 'lost' }));
      const lost = () => void time.schedule(0.5, PHASE.input, () => settle({ status: 'lost' }));
      if (!instance.isOpen) return lost();
      const { process } = instance;
      process.onKill(() => process.isPowerless || lost());
      process.receive(network.latencyMs(), () => {
        const left = instance.entered();
        void this.#answer(instance, request, { requestId, signal: leaving.signal }).then((answer) => {
          left();
          if (!process.isDead) time.schedule(network.latencyMs(), PHASE.input, () => settle(answer));
        });
      });
    });
  }

  async #answer(
    instance: SimInstance,
    { route: name, params, headers = {} }: Request,
    { requestId, signal }: { requestId: string; signal: AbortSignal },
  ): Promise<Answer> {
    const { core } = instance;
    const route = instance.routes.find((one) => one.name === name);
    if (core === undefined || route === undefined) throw new Error(`there is no route ${name}`);
    try {
      const header = (key: string) => headers[key];
      const requireServer = createServerPrecondition(core.servers);
      const call = {
        rawParams: params,
        requireServer,
        actor: OPEN_ACTOR,
        requestId,
        source: '127.0.0.1',
        header,
        signal,
      };
      const reply = await validateAndHandle(route, call);
      return { status: reply.status, body: (reply.body ?? {}) as Record<string, unknown>, instance: instance.name };
    } catch (error) {
      if (signal.aborted && error === signal.reason) return { status: 'lost' };
      if (error instanceof CnapiError && isAnAnswer(name, error))
        return {
          status: error.statusCode,
          body: { code: error.code, message: error.message },
          instance: instance.name,
        };
      this.#world.crashed(instance.name, error);
      return { status: 'lost' };
    }
  }
}

/** Triton's message for an expired ticket is a 500; every other 500 is a defect. */
const isAnAnswer = (route: string, { statusCode }: CnapiError) =>
  statusCode < 500 || statusCode === 503 || route === 'WaitTicket';

const codeOf = (body: Record<string, unknown>) => String(body.code ?? body.status ?? body.id ?? body.uuid ?? '');
