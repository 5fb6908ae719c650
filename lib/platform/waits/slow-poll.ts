/**
 * Repeats `work` until it is stopped, to find what hints may have missed: at each slow poll, more
 * often while the bus is lost, and immediately when the bus's health changes. A failed round is
 * repeated at the next poll.
 */
import type { Bus, Subscription } from '../bus/bus.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../time/clock.ts';
import { Loop } from '../time/loop.ts';

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
  readonly #bus: Bus;
  readonly #loop: Loop;
  #subscription: Subscription | undefined;

  constructor({ clock, bus, log, config, what, work }: SlowPollDeps) {
    this.#bus = bus;
    const pauseMs = () => (bus.isHealthy() ? config.slowPollMs : config.slowPollNoBusMs);
    this.#loop = new Loop({ clock, log, what: `slow poll of ${what}`, work, pauseMs, first: 'pause' });
  }

  start(): void {
    this.#subscription = this.#bus.onHealthChange(() => this.trigger());
    this.#loop.start();
  }

  /** Begins the next round immediately. */
  trigger(): void {
    this.#loop.trigger();
  }

  async stop(): Promise<void> {
    this.#subscription?.close();
    await this.#loop.stop();
  }
}
