/**
 * Takes this instance out of service in good order: runs drain.ts on a clock, announces the drain
 * in the database, and asks the agents to leave. Made by `core.ts`; begun by the roster when
 * the instance's row says so, and by `server.ts` at SIGTERM. It retries failed steps; its deadlines
 * hold in any case.
 */

import { messageOf } from '../../../platform/errors.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock, Timer } from '../../../platform/time/clock.ts';
import type { InstanceAddress } from '../../../protocol/link/frames.ts';
import type { DrainResult } from '../membership/instance-store.ts';
import type { SessionTable } from '../sessions/session.ts';
import { beginDrain, type DrainEffect, type DrainEvent, type DrainState, type DrainTimes, stepDrain } from './drain.ts';
import { Relocation } from './relocation.ts';

interface DrainerDeps {
  sessions: SessionTable;
  /** Announces to all instances that this one leaves. */
  announce: () => Promise<DrainResult>;
  /** Where agents can go. */
  otherAddresses: () => InstanceAddress[];
  /**
   * Stops status changes at the end of sessions. This instance closes the remaining sessions
   * itself, so their end does not show that an agent is dead.
   */
  stopSessionLosses: () => void;
  instance: DrainingInstance;
  times: DrainTimes;
  clock: Clock;
  log: Logger;
}

/** The rest of the process, as the drain uses it. */
export interface DrainingInstance {
  /** The number of requests without an answer, and of other work that must not be cut off. */
  unfinished(): number;
  /** The instance is about to stop: start no long work. */
  beginDrain(): void;
  /** Accept no new connections. */
  endDrain(): void;
  /** Answer all waits with their present state. */
  endWaits(): void;
  /** The drain is complete: stop the process. */
  stop(): Promise<void>;
}

const TICK_MS = 100;

export class Drainer {
  readonly #deps: DrainerDeps;
  /** Each agent is asked once. */
  readonly #relocation: Relocation;
  #state: DrainState | undefined;
  #timer: Timer | undefined;
  #announcing: Promise<void> | undefined;

  constructor(deps: DrainerDeps) {
    this.#deps = deps;
    this.#relocation = new Relocation({ clock: deps.clock, pauseMs: () => Number.POSITIVE_INFINITY });
  }

  get isDraining(): boolean {
    return this.#state !== undefined;
  }

  /** Begins the drain; calling it again changes nothing. */
  begin(reason: string): void {
    if (this.#state !== undefined) return;
    const { clock, log, instance, sessions } = this.#deps;
    log.info({ reason, agents: sessions.size }, 'instance: serving -> draining');
    instance.beginDrain();
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
    const { instance, otherAddresses, sessions } = this.#deps;
    const view = { others: otherAddresses().length, agents: sessions.size, unanswered: instance.unfinished() };
    this.#step({ type: 'tick', view });
  }

  #step(event: DrainEvent): void {
    const before = this.#state;
    if (before === undefined || this.#timer === undefined) return;
    const { clock, log, sessions, times, instance } = this.#deps;
    const { state, effects } = stepDrain(before, event, clock.now(), times);
    this.#state = state;
    if (state.phase !== before.phase) {
      const left = { agents: sessions.size, unanswered: instance.unfinished() };
      log.info({ from: before.phase, to: state.phase, event: event.type, ...left }, 'instance: draining');
    }
    for (const effect of effects) this.#do(effect);
  }

  #do(effect: DrainEffect): void {
    const { instance } = this.#deps;
    switch (effect.do) {
      case 'announce':
        this.#announcing = this.#announce();
        return;
      case 'ask-agents':
        return this.#sendGoaways(effect.atMost, effect.withinMs);
      case 'stop-listening':
        this.#leaveBehind();
        return instance.endDrain();
      case 'end-waits':
        return instance.endWaits();
      case 'leave':
        this.#timer?.cancel();
        return void instance.stop();
      default:
        return effect satisfies never;
    }
  }

  #leaveBehind(): void {
    this.#deps.stopSessionLosses();
    const agents = this.#deps.sessions.size;
    if (agents > 0)
      this.#deps.log.warn(
        { agents },
        'instance: these agents found no other instance in time; leaving without moving them',
      );
  }

  async #announce(): Promise<void> {
    try {
      const answer = await this.#deps.announce();
      this.#step({ type: 'announced', answer });
    } catch (error) {
      this.#deps.log.debug({ reason: messageOf(error) }, 'instance: drain not yet recorded in the database');
      this.#step({ type: 'unannounced' });
    }
  }

  #sendGoaways(atMost: number, withinMs: number): void {
    const request = { atMost, withinMs, reason: 'the instance is leaving', addresses: this.#deps.otherAddresses() };
    this.#relocation.ask({ ...request, among: this.#deps.sessions.all() });
  }
}
