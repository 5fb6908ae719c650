/**
 * Repeats `work` until it is stopped, to find what hints may have missed: at each slow poll, more
 * often while the bus is lost, and at once when the bus's health changes. A round begins after the
 * previous one has ended. A failed round is logged and repeated at the next poll; an outage is
 * logged once.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import type { Clock } from '../clock.ts';
import { isTemporary, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';

interface SlowPollDeps {
  clock: Clock;
  bus: Bus;
  log: Logger;
  config: { slowPollMs: number; slowPollNoBusMs: number };
  /** What is polled, for the log. */
  what: string;
  work: () => Promise<void>;
}

export class SlowPoll {
  readonly #deps: SlowPollDeps;
  readonly #ending = new AbortController();
  #pause = new AbortController();
  #subscription: Subscription | undefined;
  #running: Promise<void> | undefined;
  #isFailing = false;

  constructor(deps: SlowPollDeps) {
    this.#deps = deps;
  }

  start(): void {
    this.#subscription = this.#deps.bus.onHealthChange(() => this.soon());
    this.#running = this.#run();
  }

  /** Begins the next round at once. */
  soon(): void {
    this.#pause.abort();
  }

  async stop(): Promise<void> {
    this.#subscription?.close();
    this.#ending.abort();
    this.#pause.abort();
    await this.#running;
  }

  async #run(): Promise<void> {
    const { clock, bus, config } = this.#deps;
    while (!this.#ending.signal.aborted) {
      await clock.sleep(bus.isHealthy() ? config.slowPollMs : config.slowPollNoBusMs, this.#pause.signal);
      this.#pause = new AbortController();
      if (!this.#ending.signal.aborted) await this.#round();
    }
  }

  async #round(): Promise<void> {
    try {
      await this.#deps.work();
      this.#isFailing = false;
    } catch (error) {
      if (this.#ending.signal.aborted) return;
      const { log, what } = this.#deps;
      if (!isTemporary(error)) log.error({ err: error }, `slow poll of ${what} failed`);
      else if (!this.#isFailing) log.warn({ reason: messageOf(error) }, `slow poll of ${what}: no database`);
      this.#isFailing = true;
    }
  }
}
