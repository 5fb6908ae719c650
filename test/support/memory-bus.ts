/**
 * A bus within one process, for simulation and unit tests. All buses of one hub receive each
 * other's messages. The hub can be stopped, so that tests can try the loss of the bus without a
 * server.
 */

import type { BusConnection, Connect, ConnectionEvents } from '../../lib/platform/bus/bus-connection.ts';
import { ConnectionBus } from '../../lib/platform/bus/connection-bus.ts';
import type { Logger } from '../../lib/platform/log.ts';
import type { Random } from '../../lib/platform/random.ts';
import type { Clock } from '../../lib/platform/time/clock.ts';

interface MemoryHubOptions {
  /** Runs a delivery later: in order, and never within the call. */
  defer?: (deliver: () => void) => void;
}

export class MemoryHub {
  readonly #defer: (deliver: () => void) => void;
  readonly #connections = new Set<MemoryConnection>();
  #state: 'up' | 'frozen' | 'down' = 'up';

  constructor({ defer = queueMicrotask }: MemoryHubOptions = {}) {
    this.#defer = defer;
  }

  /** Acts like a killed server: connections are lost, and none can be opened until `restore`. */
  kill(): void {
    this.#state = 'down';
    for (const connection of [...this.#connections]) connection.lose(new Error('the hub was killed'));
  }

  /** Acts like a suspended server: it accepts everything and answers nothing until `restore`. */
  freeze(): void {
    this.#state = 'frozen';
  }

  restore(): void {
    this.#state = 'up';
    for (const connection of [...this.#connections]) connection.flush();
  }

  readonly connect: Connect = async (events) => {
    if (this.#state !== 'up') throw new Error(`the hub is ${this.#state}`);
    const connection = new MemoryConnection(this, events);
    this.#connections.add(connection);
    return connection;
  };

  get isUp(): boolean {
    return this.#state === 'up';
  }

  deliver(topic: string, payload: string): void {
    for (const connection of this.#connections) this.#defer(() => connection.receive(topic, payload));
  }

  forget(connection: MemoryConnection): void {
    this.#connections.delete(connection);
  }
}

interface Request {
  run: () => void;
  reject: (cause: Error) => void;
}

class MemoryConnection implements BusConnection {
  readonly #hub: MemoryHub;
  readonly #events: ConnectionEvents;
  readonly #topics = new Set<string>();
  /** Requests that were accepted but not answered because the hub is frozen. */
  #unanswered: Request[] = [];
  #open = true;

  constructor(hub: MemoryHub, events: ConnectionEvents) {
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
    for (const { reject } of requests) reject(new Error('the connection was closed'));
  }

  #request(work: () => void): Promise<void> {
    if (!this.#open) return Promise.reject(new Error('the connection was closed'));
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

export function createMemoryBus({ hub, ...ports }: MemoryBusDeps): ConnectionBus {
  return new ConnectionBus({ kind: 'memory', connect: hub.connect, ...ports });
}
