/**
 * Evens out the instances: when this one holds clearly more agents than its share, it asks a few
 * agents each second to move to the least loaded instance. The request is soft: an agent that is
 * not accepted there stays. Pauses for `balanceQuietMs` of healthy ticks after an instance has
 * joined, left or begun to drain, while this one is unhealthy, and while any may be dead.
 * Decisions: balance.ts.
 */

import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { HealthyTimer } from '../../../platform/time/healthy-timer.ts';
import type { InstanceRow } from '../membership/instance-store.ts';
import type { SessionTable } from '../sessions/session.ts';
import { decideSurplus } from './balance.ts';
import { Relocation } from './relocation.ts';

interface BalancerDeps {
  sessions: SessionTable;
  healthyTimer: HealthyTimer;
  /** The live runs, as last read, and the run of this instance. */
  membership: {
    readonly live: readonly InstanceRow[];
    readonly run: string;
    readonly unhealthyReason: string | undefined;
    leaseAgeMs(run: string): number;
  };
  balanceQuietMs: number;
  leaseMs: number;
  clock: Clock;
  log: Logger;
}

const PERIOD_MS = 1000;
/**
 * If an agent was asked to move and is still here, the other instance did not accept it. It is
 * asked again after this time.
 */
const ASK_AGAIN_MS = 60_000;

export class Balancer {
  readonly #deps: BalancerDeps;
  readonly #relocation: Relocation;
  #members = '';
  #quietMs = 0;
  #sinceMs = 0;
  #isShedding = false;
  /** Agents that were asked to move, over the life of the process. */
  shed = 0;

  constructor(deps: BalancerDeps) {
    this.#deps = deps;
    this.#relocation = new Relocation({ clock: deps.clock, pauseMs: () => ASK_AGAIN_MS });
    deps.healthyTimer.onTick((tickMs) => this.#tick(tickMs));
  }

  #tick(tickMs: number): void {
    this.#sinceMs += tickMs;
    this.#quietMs += tickMs;
    if (this.#sinceMs < PERIOD_MS) return;
    this.#sinceMs = 0;
    if (this.#isQuiet() && !this.#isAnyLeaseStale()) this.#note(this.#shedSome());
  }

  /**
   * True if an instance may be dead. Its row still counts agents that are moving here, and no agent
   * may be sent to it.
   */
  #isAnyLeaseStale(): boolean {
    const { membership, leaseMs } = this.#deps;
    return membership.live.some(({ run }) => membership.leaseAgeMs(run) >= leaseMs / 2);
  }

  /** No instance has joined or left lately, and none is draining. */
  #isQuiet(): boolean {
    const { live, unhealthyReason } = this.#deps.membership;
    const members = live.map(({ run, isDraining }) => `${run} ${isDraining}`).join();
    if (members !== this.#members || unhealthyReason !== undefined || live.some(({ isDraining }) => isDraining)) {
      this.#members = members;
      this.#quietMs = 0;
    }
    return this.#quietMs >= this.#deps.balanceQuietMs;
  }

  /** Returns how many were asked. */
  #shedSome(): number {
    const { membership, sessions } = this.#deps;
    const own = { run: membership.run, agents: sessions.size };
    const loads = [own, ...membership.live.filter(({ run }) => run !== own.run)];
    const surplus = decideSurplus(own.run, loads);
    const target = membership.live.find(({ run }) => run === surplus?.to.run);
    if (surplus === undefined || target === undefined) return 0;
    // That instance would only defer them.
    if (target.admission === 'paced' || target.admission === 'closed') return 0;
    const addresses = [{ uuid: target.cnapiUuid, host: target.host, port: target.port }];
    const request = { atMost: surplus.agents, reason: 'another instance has room', addresses };
    return this.#relocation.ask({ ...request, among: sessions.all() }).length;
  }

  #note(asked: number): void {
    this.shed += asked;
    if (this.#isShedding === asked > 0) return;
    this.#isShedding = asked > 0;
    const words = this.#isShedding ? 'even -> shedding' : 'shedding -> even';
    this.#deps.log.info({ agents: this.#deps.sessions.size, shed: this.shed }, `balance: ${words}`);
  }
}
