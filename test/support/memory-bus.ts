/**
 * A bus within one process, for simulation and unit tests. All buses of one hub receive each
 * other's messages. The hub can be stopped, so that tests can try the loss of the bus without a
 * server.
 */

import type { BusConnection, LineEvents, OpenLine } from '../../lib/platform/bus/line.ts';
import { LineBus } from '../../lib/platform/bus/line-bus.ts';
import type { Clock } from '../../lib/platform/clock.ts';
import type { Logger } from '../../lib/platform/log.ts';
import type { Random } from '../../lib/platform/random.ts';

interface MemoryHubOptions {
  /** Runs a delivery later: in order, and never within the call. */
  defer?: (deliver: () => void) => void;
}

export class MemoryHub {
  readonly #defer: (deliver: () => void) => void;
  readonly #lines = new Set<MemoryLine>();
  #state: 'up' | 'frozen' | 'down' = 'up';

  constructor({ defer = queueMicrotask }: MemoryHubOptions = {}) {
    this.#defer = defer;
  }

  /** Acts like a killed server: lines are lost, and no line can be opened until `restore`. */
  kill(): void {
    this.#state = 'down';
    for (const line of [...this.#lines]) line.lose(new Error('the hub was killed'));
  }

  /** Acts like a suspended server: it accepts everything and answers nothing until `restore`. */
  freeze(): void {
    this.#state = 'frozen';
  }

  restore(): void {
    this.#state = 'up';
    for (const line of [...this.#lines]) line.flush();
  }

  readonly openLine: OpenLine = async (events) => {
    if (this.#state !== 'up') throw new Error(`the hub is ${this.#state}`);
    const line = new MemoryLine(this, events);
    this.#lines.add(line);
    return line;
  };

  get isUp(): boolean {
    return this.#state === 'up';
  }

  deliver(topic: string, payload: string): void {
    for (const line of this.#lines) this.#defer(() => line.receive(topic, payload));
  }

  forget(line: MemoryLine): void {
    this.#lines.delete(line);
  }
}

interface Request {
  run: () => void;
  reject: (cause: Error) => void;
}

class MemoryLine implements BusConnection {
  readonly #hub: MemoryHub;
  readonly #events: LineEvents;
  readonly #topics = new Set<string>();
  /** Requests that were accepted but not answered because the hub is frozen. */
  #unanswered: Request[] = [];
  #open = true;

  constructor(hub: MemoryHub, events: LineEvents) {
    this.#hub = hub;
    this.#events = events;
  }

  change(subscribe: readonly string[], unsubscribe: readonly string[]): Promise<void> {
    return this.#request(() => {
      for (const topic of subscribe) this.#topics.add(topic);
      for (const topic of unsubscribe) this.#topics.delete(topic);
    });
  }

  send(topic: string, payload: string): Promise<void> {
    return this.#request(() => this.#hub.deliver(topic, payload));
  }

  receive(topic: string, payload: string): void {
    if (this.#open && this.#topics.has(topic)) this.#events.onPayload(topic, payload);
  }

  flush(): void {
    const requests = this.#unanswered;
    this.#unanswered = [];
    for (const { run } of requests) run();
  }

  lose(cause: Error): void {
    this.close();
    this.#events.onLost(cause);
  }

  close(): void {
    this.#open = false;
    this.#hub.forget(this);
    const requests = this.#unanswered;
    this.#unanswered = [];
    for (const { reject } of requests) reject(new Error('the line was closed'));
  }

  #request(work: () => void): Promise<void> {
    if (!this.#open) return Promise.reject(new Error('the line was closed'));
    return new Promise((resolve, reject) => {
      const run = () => {
        work();
        resolve();
      };
      if (this.#hub.isUp) run();
      else this.#unanswered.push({ run, reject });
    });
  }
}

interface MemoryBusDeps {
  hub: MemoryHub;
  clock: Clock;
  random: Random;
  log: Logger;
  beatMs?: number;
}

export function createMemoryBus({ hub, ...ports }: MemoryBusDeps): LineBus {
  return new LineBus({ kind: 'memory', openLine: hub.openLine, ...ports });
}
