/**
 * The bus of the simulated world: the memory hub behind a network that is late, loses messages, and
 * can cut off processes.
 */
import type { Bus } from '../../lib/platform/bus/bus.ts';
import type { BusConnection, Connect, ConnectionEvents } from '../../lib/platform/bus/bus-connection.ts';
import { ConnectionBus } from '../../lib/platform/bus/connection-bus.ts';
import type { Logger } from '../../lib/platform/log.ts';
import { MemoryHub } from '../support/memory-bus.ts';
import type { SeededRandom } from './seeded-random.ts';
import type { SimProcess } from './sim-process.ts';
import type { Story } from './story.ts';

export class SimHub {
  readonly hub = new MemoryHub({ defer: (deliver) => deliver() });
  readonly #random: SeededRandom;
  readonly #story: Story;
  readonly #cutOff = new Set<string>();
  /** The probability that a message is lost on its way to a receiver. */
  loss = 0;

  constructor({ random, story }: { random: SeededRandom; story: Story }) {
    this.#random = random;
    this.#story = story;
  }

  cutOff(name: string, isCut: boolean): void {
    if (isCut) this.#cutOff.add(name);
    else this.#cutOff.delete(name);
  }

  bus(process: SimProcess, log: Logger): Bus {
    const { clock, random } = process;
    return new ConnectionBus({ kind: 'memory', clock, random, log, connect: this.#opener(process) });
  }

  #opener(process: SimProcess): Connect {
    return async (events, signal) => {
      if (this.#cutOff.has(process.name)) throw new Error('no way to the hub');
      const connection = await this.hub.connect(this.#delayed(process, events), signal);
      process.onKill(() => connection.close());
      return this.#guarded(process, connection);
    };
  }

  /** Delivers the events late and in order, like one connection. */
  #delayed(process: SimProcess, events: ConnectionEvents): ConnectionEvents {
    let lastAt = 0;
    return {
      onPayload: (topic, payload) => {
        if (this.#cutOff.has(process.name) || this.#random.chance(this.loss)) return;
        const now = process.clock.now();
        this.#story.note(process.name, `bus ${topic} ${payload.slice(0, 120)}`);
        lastAt = Math.max(lastAt + 0.001, now + this.#random.between(0.1, 3));
        process.receive(lastAt - now, () => events.onPayload(topic, payload));
      },
      onLost: (cause) => void process.receive(0.1, () => events.onLost(cause)),
    };
  }

  #trip(process: SimProcess): Promise<void> {
    return new Promise((resolve) => {
      process.receive(this.#random.between(0.1, 3), () => this.#cutOff.has(process.name) || resolve());
    });
  }

  #guarded(process: SimProcess, connection: BusConnection): BusConnection {
    return {
      // Confirmed after a trip in each direction; never while the connection is cut.
      change: async (subscribe, unsubscribe) => {
        await this.#trip(process);
        await connection.change(subscribe, unsubscribe);
        await this.#trip(process);
      },
      send: async (topic, payload) => {
        if (!this.#cutOff.has(process.name)) await connection.send(topic, payload);
      },
      close: () => connection.close(),
    };
  }
}
