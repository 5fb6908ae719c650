/**
 * The probes of one connection: numbered WebSocket pings, which the WebSocket library of a living
 * peer answers. Only the answer to a ping sent after the question counts. Deadlines are in healthy
 * ticks (law 4).
 */
import type { HealthyTimer } from '../../platform/time/healthy-timer.ts';
import type { AgentSocket } from './agent-socket.ts';

export class Pings {
  readonly #socket: AgentSocket;
  readonly #healthyTimer: Pick<HealthyTimer, 'after'>;
  /**
   * Exists only while questions are open: after a stall of this instance every connection has a
   * Pings.
   */
  #waiting: Map<number, (isAlive: boolean) => void> | undefined;
  #number = 0;

  constructor({ socket, healthyTimer }: { socket: AgentSocket; healthyTimer: Pick<HealthyTimer, 'after'> }) {
    this.#socket = socket;
    this.#healthyTimer = healthyTimer;
    socket.on('pong', (data) => this.#waiting && this.#answered(Number(data.toString())));
  }

  send(): number {
    this.#number += 1;
    this.#socket.ping(String(this.#number));
    return this.#number;
  }

  /**
   * True as soon as a ping sent now is answered, false after `withinMs` or when the connection
   * ends.
   */
  ask(withinMs: number): Promise<boolean> {
    return new Promise((resolve) => {
      const number = this.send();
      const timer = this.#healthyTimer.after(withinMs, () => this.#settle(number, false));
      this.#waiting ??= new Map();
      this.#waiting.set(number, (isAlive) => {
        timer.cancel();
        resolve(isAlive);
      });
    });
  }

  /** The connection has ended. */
  end(): void {
    for (const number of this.#numbers()) this.#settle(number, false);
  }

  /** The answer to a later ping also answers the earlier ones. */
  #answered(number: number): void {
    for (const asked of this.#numbers()) if (asked <= number) this.#settle(asked, true);
  }

  #settle(number: number, isAlive: boolean): void {
    this.#waiting?.get(number)?.(isAlive);
    this.#waiting?.delete(number);
    if (this.#waiting?.size === 0) this.#waiting = undefined;
  }

  #numbers(): number[] {
    return [...(this.#waiting?.keys() ?? [])];
  }
}
