/**
 * Takes this instance out of service in good order: runs drain.ts on a clock, says so in the database, and tells the
 * agents. Made by `core.ts`; the coordinator begins it when the instance's row says so, `server.ts` at SIGTERM. What
 * fails is tried again; its deadlines hold whatever happens.
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import type { Address } from '../wire/frames.ts';
import { beginDrain, type DrainEffect, type DrainEvent, type DrainState, type DrainTimes, stepDrain } from './drain.ts';
import type { DrainAnswer } from './instance-store.ts';
import type { Session, SessionTable } from './session.ts';

export interface DrainerDeps {
  sessions: SessionTable;
  /** Says to all instances that this one leaves. */
  announce: () => Promise<DrainAnswer>;
  /** Where agents can go. */
  otherAddresses: () => Address[];
  /** Of agents that are left behind nothing is said any more: that their sessions close is this instance's doing. */
  endVerdicts: () => void;
  /** The rest of the process: what callers and waits see of the drain. */
  door: DrainDoor;
  times: DrainTimes;
  clock: Clock;
  log: Logger;
}

export interface DrainDoor {
  /** Requests without an answer, waits and streams among them, and what else must not be cut off. */
  unanswered(): number;
  /** It is going to leave: callers are told with each answer not to come back on this connection. */
  announce(): void;
  /** Takes no new connections. */
  close(): void;
  /** Answers all waits as they can be answered. */
  endWaits(): void;
  /** Nothing is left to wait for: the process may end. */
  leave(): void;
}

const TICK_MS = 100;

export class Drainer {
  readonly #deps: DrainerDeps;
  readonly #told = new WeakSet<Session>();
  #state: DrainState | undefined;
  #timer: Timer | undefined;
  #announcing: Promise<void> | undefined;

  constructor(deps: DrainerDeps) {
    this.#deps = deps;
  }

  get isDraining(): boolean {
    return this.#state !== undefined;
  }

  /** Once; again changes nothing. */
  begin(why: string): void {
    if (this.#state !== undefined) return;
    const { clock, log, door, sessions } = this.#deps;
    log.info({ why, agents: sessions.size }, 'instance: serving -> draining');
    door.announce();
    this.#timer = clock.every(TICK_MS, () => this.#tick());
    const { state, effects } = beginDrain(clock.now());
    this.#state = state;
    for (const effect of effects) this.#do(effect);
  }

  async stop(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = undefined;
    await this.#announcing;
  }

  #tick(): void {
    const { door, otherAddresses, sessions } = this.#deps;
    const view = { others: otherAddresses().length, agents: sessions.size, unanswered: door.unanswered() };
    this.#step({ type: 'tick', view });
  }

  #step(event: DrainEvent): void {
    const before = this.#state;
    if (before === undefined || this.#timer === undefined) return;
    const { clock, log, sessions, times, door } = this.#deps;
    const { state, effects } = stepDrain(before, event, clock.now(), times);
    this.#state = state;
    if (state.phase !== before.phase) {
      const left = { agents: sessions.size, unanswered: door.unanswered() };
      log.info({ from: before.phase, to: state.phase, event: event.type, ...left }, 'instance: draining');
    }
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: DrainEffect): void {
    const { door } = this.#deps;
    switch (effect.do) {
      case 'announce':
        this.#announcing = this.#announce();
        return;
      case 'tell-agents':
        return this.#tellAgents(effect.atMost, effect.withinMs);
      case 'close-door':
        this.#leaveBehind();
        return door.close();
      case 'end-waits':
        return door.endWaits();
      case 'leave':
        this.#timer?.cancel();
        return door.leave();
      default:
        return effect satisfies never;
    }
  }

  #leaveBehind(): void {
    this.#deps.endVerdicts();
    const agents = this.#deps.sessions.size;
    if (agents > 0)
      this.#deps.log.warn({ agents }, 'instance: agents that found no other instance in time are left behind');
  }

  async #announce(): Promise<void> {
    try {
      const answer = await this.#deps.announce();
      this.#step({ type: 'announced', answer });
    } catch (error) {
      this.#deps.log.debug({ reason: messageOf(error) }, 'instance: cannot say yet that it is draining');
      this.#step({ type: 'unannounced' });
    }
  }

  /** One whose session has not begun to work yet would lose it; it is told when it has. */
  #tellAgents(atMost: number, withinMs: number): void {
    const addresses = this.#deps.otherAddresses();
    let told = 0;
    for (const session of this.#deps.sessions.all()) {
      if (told >= atMost) return;
      if (!session.isInventoried || this.#told.has(session)) continue;
      this.#told.add(session);
      session.socket.askToLeave('the instance is leaving', addresses, withinMs);
      told += 1;
    }
  }
}
