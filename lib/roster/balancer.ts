/**
 * Evens out the instances: when this one holds clearly more agents than its share, it asks a few each second to go to the
 * least loaded one. Softly: an agent that is not taken there stays. Quiet while anything changes: for `balanceQuietMs` of
 * healthy ticks after an instance has come, left or begun to drain, and while this one is unwell; and while one may be dead.
 * Decisions: balance.ts.
 */
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import { surplusOf } from './balance.ts';
import type { InstanceRow } from './instance-store.ts';
import type { Session, SessionTable } from './session.ts';
import type { Ticker } from './ticker.ts';

export interface BalancerDeps {
  sessions: SessionTable;
  ticker: Ticker;
  /** The runs that are live, as last read, and the one of this instance. */
  instances: {
    readonly live: readonly InstanceRow[];
    readonly run: string;
    readonly trouble: string | undefined;
    leaseAgeMs(run: string): number;
  };
  balanceQuietMs: number;
  leaseMs: number;
  clock: Clock;
  log: Logger;
}

const PERIOD_MS = 1000;
/** One that was asked and is still here was not taken; it is not asked again for so long. */
const ASK_AGAIN_MS = 60_000;

export class Balancer {
  readonly #deps: BalancerDeps;
  readonly #askedAt = new WeakMap<Session, number>();
  #members = '';
  #quietMs = 0;
  #sinceMs = 0;
  #isShedding = false;
  /** Agents that were asked to go, over the life of the process. */
  shed = 0;

  constructor(deps: BalancerDeps) {
    this.#deps = deps;
    deps.ticker.onTick((tickMs) => this.#tick(tickMs));
  }

  #tick(tickMs: number): void {
    this.#sinceMs += tickMs;
    this.#quietMs += tickMs;
    if (this.#sinceMs < PERIOD_MS) return;
    this.#sinceMs = 0;
    if (this.#isQuiet() && !this.#isSomebodyDoubtful()) this.#note(this.#shedSome());
  }

  /** One that may be dead: its agents are coming, its row still names them, and nobody is to be sent there. */
  #isSomebodyDoubtful(): boolean {
    const { instances, leaseMs } = this.#deps;
    return instances.live.some(({ run }) => instances.leaseAgeMs(run) >= leaseMs / 2);
  }

  /** Nothing has come, left, or is leaving. */
  #isQuiet(): boolean {
    const { live, trouble } = this.#deps.instances;
    const members = live.map(({ run, isDraining }) => `${run} ${isDraining}`).join();
    if (members !== this.#members || trouble !== undefined || live.some(({ isDraining }) => isDraining)) {
      this.#members = members;
      this.#quietMs = 0;
    }
    return this.#quietMs >= this.#deps.balanceQuietMs;
  }

  /** How many were asked. */
  #shedSome(): number {
    const { instances, sessions, clock } = this.#deps;
    const own = { run: instances.run, agents: sessions.size };
    const loads = [own, ...instances.live.filter(({ run }) => run !== own.run)];
    const surplus = surplusOf(own.run, loads);
    const target = instances.live.find(({ run }) => run === surplus?.to.run);
    if (surplus === undefined || target === undefined) return 0;
    const addresses = [{ uuid: target.cnapiUuid, host: target.host, port: target.port }];
    const now = clock.now();
    let asked = 0;
    for (const session of sessions.all()) {
      if (asked >= surplus.agents) break;
      if (!session.isInventoried || now - (this.#askedAt.get(session) ?? Number.NEGATIVE_INFINITY) < ASK_AGAIN_MS)
        continue;
      this.#askedAt.set(session, now);
      session.socket.askToLeave('another instance has room', addresses);
      asked += 1;
    }
    return asked;
  }

  #note(asked: number): void {
    this.shed += asked;
    if (this.#isShedding === asked > 0) return;
    this.#isShedding = asked > 0;
    const words = this.#isShedding ? 'even -> shedding' : 'shedding -> even';
    this.#deps.log.info({ agents: this.#deps.sessions.size, shed: this.shed }, `balance: ${words}`);
  }
}
