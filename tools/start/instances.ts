/**
 * The instances of `npm start`, each on its own port with a uuid that stays the same. It changes
 * their number and restarts them one after the other, while everything else continues.
 *
 *      idle ──scale(n) | restartEach()──▶ busy ──all wanted instances serve, or refused──▶ idle
 *
 * An instance that must leave gets SIGTERM, hands its agents over and exits; it is killed only if
 * it does not leave in time.
 */
import type { Random } from '../../lib/platform/random.ts';
import type { Clock } from '../../lib/platform/time/clock.ts';
import type { ReadyInstance } from './banner.ts';
import type { Child, Command } from './child.ts';
import type { Children } from './children.ts';
import { instanceUuids, rememberUrls } from './persisted-settings.ts';
import { isTcpFree } from './ports.ts';
import type { InstancePlan } from './programs.ts';
import { agentsOn, answersReady, areNamed } from './readiness.ts';
import { Refusal } from './refusal.ts';

export interface InstancesDeps {
  data: string;
  children: Children;
  firstPort: number;
  /**
   * The name server's port. It lies among the instances' ports when there are more of them than at
   * the start.
   */
  namesPort: number;
  /** The name under which the name server publishes them. */
  serviceName: string;
  commandFor: (plan: Pick<InstancePlan, 'cnapiUuid' | 'port'>) => Command;
  /** Headers for requests to the instances. */
  headers: () => Record<string, string>;
  /** Called with their addresses when these change. */
  onUrls: (urls: readonly string[]) => void;
  /** Called with a sentence when one that had ended by itself is ready again. */
  say: Say;
  clock: Clock;
  random: Random;
  /** Aborts when everything stops. */
  stopping: AbortSignal;
  limits?: Partial<typeof defaultLimits>;
}

export type Say = (text: string) => void;

interface Slot {
  uuid: string;
  port: number;
  url: string;
  child: Child;
}

/**
 * Time limits: for leaving (as in the units under deploy and smf), for coming up again, and for the
 * name server to follow.
 */
const defaultLimits = { leaveMs: 90_000, returnMs: 60_000, namesMs: 15_000 };
const reportMs = 5_000;
const pollMs = 50;
/** How many ports after the first are searched for free ones. */
const block = 64;

export class Instances {
  readonly #deps: InstancesDeps;
  readonly #limits: typeof defaultLimits;
  #slots: Slot[] = [];
  #busyWith: string | undefined;
  /** The one that a rolling restart waits for, and reports. */
  #restarting: Child | undefined;

  constructor(deps: InstancesDeps) {
    this.#deps = deps;
    this.#limits = { ...defaultLimits, ...deps.limits };
  }

  /**
   * Starts `count` instances on `firstPort` and the following ports. Resolves when all are ready,
   * or when everything stops.
   * @throws Refusal
   */
  async start(count: number): Promise<ReadyInstance[]> {
    await this.#add(Array.from({ length: count }, (_, index) => this.#deps.firstPort + index));
    return this.#slots.map(({ uuid, url, child }) => ({ uuid, url, pid: child.pid ?? 0 }));
  }

  /**
   * Changes the number of instances to `count`. Resolves, with a sentence about them, when that
   * many serve.
   * @throws Refusal
   */
  scale(count: number, say: Say): Promise<string> {
    return this.#alone(`scaling to ${count}`, async () => {
      if (count > this.#slots.length) await this.#grow(count, say);
      if (count < this.#slots.length) await this.#shrink(count, say);
      await this.#untilAllServe();
    });
  }

  /** Restarts them one after the other, each when all others serve. @throws Refusal */
  restartEach(say: Say): Promise<string> {
    return this.#alone('a rolling restart', async () => {
      if (this.#slots.length === 1) say('there is only one instance: nobody answers while it restarts');
      for (const slot of [...this.#slots]) {
        await this.#untilAllServe();
        this.#restarting = slot.child;
        await this.#restart(slot, say).finally(() => {
          this.#restarting = undefined;
        });
      }
      await this.#untilAllServe();
    });
  }

  async #alone(what: string, work: () => Promise<void>): Promise<string> {
    if (this.#busyWith !== undefined) throw new Refusal(`${this.#busyWith} is going on; try again when it is done`);
    this.#busyWith = what;
    try {
      await work();
    } finally {
      this.#busyWith = undefined;
    }
    return `${countOf(this.#slots)} serving: ${this.#slots.map(({ url }) => url).join(' ')}`;
  }

  async #grow(count: number, say: Say): Promise<void> {
    const ports = await this.#freePorts(count - this.#slots.length);
    say(`starting ${ports.map((port) => nameOf({ port })).join(', ')}`);
    try {
      await this.#add(ports);
    } catch (error) {
      throw new Refusal(`${(error as Error).message}\n${countOf(this.#slots)} running now`, 1, error);
    }
  }

  async #shrink(count: number, say: Say): Promise<void> {
    // No instance leaves before the remaining ones can take over.
    await this.#untilReady(this.#slots.slice(0, count));
    const leaving = this.#slots.slice(count);
    this.#keep(this.#slots.slice(0, count));
    await Promise.all(
      leaving.map(async (slot) => {
        slot.child.retire();
        await this.#askToLeave(slot, say);
        await this.#deps.children.dismiss(slot.child);
      }),
    );
    // The leaving instances have answered until now.
    this.#reportUrls();
  }

  async #restart(slot: Slot, say: Say): Promise<void> {
    const { clock } = this.#deps;
    const { pid } = slot.child;
    await this.#askToLeave(slot, say);
    const beganAt = clock.now();
    await this.#until(
      async () => slot.child.pid !== undefined && slot.child.pid !== pid && (await answersReady(slot.url)),
      this.#limits.returnMs,
      () => `${nameOf(slot)} does not come up again; its last words:\n${slot.child.lastWords}`,
    );
    say(`${nameOf(slot)} is ready again after ${inSeconds(clock.now() - beganAt)}`);
  }

  /**
   * Resolves when the current process has gone, in any way. Its Child decides whether it is
   * restarted.
   */
  async #askToLeave(slot: Slot, say: Say): Promise<void> {
    const { clock, children, stopping } = this.#deps;
    const { child } = slot;
    const { pid } = child;
    if (pid === undefined) return;
    const name = nameOf(slot);
    const beganAt = clock.now();
    const hasLeft = () => child.pid !== pid;
    child.ask('SIGTERM');
    for (let reportAt = beganAt; !hasLeft() && !stopping.aborted; await clock.sleep(pollMs, stopping)) {
      const elapsedMs = clock.now() - beganAt;
      if (elapsedMs > this.#limits.leaveMs) {
        say(`${name} does not leave within ${inSeconds(this.#limits.leaveMs)}: it is ended`);
        await children.end(child);
        return;
      }
      if (clock.now() < reportAt) continue;
      reportAt += reportMs;
      const agents = await this.#agentsOf(slot);
      if (!hasLeft()) say(`${name} is leaving${agents === undefined ? '' : `; agents yet to move: ${agents}`}`);
    }
    this.#refuseWhenStopping();
    say(`${name} has left after ${inSeconds(clock.now() - beganAt)}`);
  }

  /** Asks another instance for the number of agents; undefined when none answers. */
  async #agentsOf({ uuid, child }: Slot): Promise<number | undefined> {
    const other = this.#slots.find((slot) => slot.uuid !== uuid);
    return other && agentsOn(other.url, { uuid, pid: child.pid ?? 0, headers: this.#deps.headers() });
  }

  /** Keeps all instances that come up. @throws Refusal of the first that does not */
  async #add(ports: readonly number[]): Promise<void> {
    const { data, random } = this.#deps;
    const used = new Set(this.#slots.map(({ uuid }) => uuid));
    const uuids = instanceUuids(data, this.#slots.length + ports.length, random).filter((uuid) => !used.has(uuid));
    const outcomes = await Promise.allSettled(ports.map((port, index) => this.#run(uuids[index] as string, port)));
    this.#keep([...this.#slots, ...outcomes.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []))]);
    this.#reportUrls();
    for (const outcome of outcomes) if (outcome.status === 'rejected') throw outcome.reason;
  }

  async #run(uuid: string, port: number): Promise<Slot> {
    const { children, commandFor } = this.#deps;
    const url = `http://127.0.0.1:${port}`;
    const command = commandFor({ cnapiUuid: uuid, port });
    const child: Child = children.run({
      name: nameOf({ port }),
      rank: 'instances',
      signal: 'SIGINT',
      command: () => command,
      onRestart: (endedAt) => void this.#reportReturn({ child, url }, endedAt),
    });
    try {
      await children.untilUp(child, () => answersReady(url));
    } catch (error) {
      await children.dismiss(child);
      throw error;
    }
    return { uuid, port, url, child };
  }

  /** Reports that it is ready again, unless it ends before. */
  async #reportReturn({ child, url }: Pick<Slot, 'child' | 'url'>, endedAt: number): Promise<void> {
    const { clock, say, stopping } = this.#deps;
    const { pid } = child;
    if (this.#restarting === child) return;
    const deadline = clock.now() + this.#limits.returnMs;
    for (; child.pid === pid && !stopping.aborted; await clock.sleep(pollMs, stopping)) {
      if (await answersReady(url)) return say(`${child.name} is ready again after ${inSeconds(clock.now() - endedAt)}`);
      if (clock.now() > deadline) return say(`${child.name} is not ready after ${inSeconds(this.#limits.returnMs)}`);
    }
  }

  #keep(slots: Slot[]): void {
    this.#slots = slots;
    rememberUrls(
      this.#deps.data,
      slots.map(({ url }) => url),
    );
  }

  #reportUrls(): void {
    this.#deps.onUrls(this.#slots.map(({ url }) => url));
  }

  async #freePorts(count: number): Promise<number[]> {
    const { firstPort, namesPort } = this.#deps;
    const taken = new Set([namesPort, ...this.#slots.map(({ port }) => port)]);
    const free: number[] = [];
    for (let port = firstPort; free.length < count; port++) {
      if (port > firstPort + block) throw new Refusal(`too few free ports from ${firstPort} to ${firstPort + block}`);
      if (!taken.has(port) && (await isTcpFree(port))) free.push(port);
    }
    return free;
  }

  async #untilAllServe(): Promise<void> {
    const { serviceName, namesPort } = this.#deps;
    await this.#untilReady(this.#slots);
    const ports = this.#slots.map(({ port }) => port);
    await this.#until(
      () => areNamed(`127.0.0.1:${namesPort}`, serviceName, ports),
      this.#limits.namesMs,
      () => `the name server does not name ${countOf(this.#slots)}`,
    );
  }

  async #untilReady(slots: readonly Slot[]): Promise<void> {
    for (const { url } of slots) {
      await this.#until(
        () => answersReady(url),
        this.#limits.returnMs,
        () => `${url} is not ready`,
      );
    }
  }

  async #until(isSo: () => Promise<boolean>, withinMs: number, complaint: () => string): Promise<void> {
    const { clock, stopping } = this.#deps;
    for (const deadline = clock.now() + withinMs; !(await isSo()); await clock.sleep(pollMs, stopping)) {
      this.#refuseWhenStopping();
      if (clock.now() > deadline) throw new Refusal(complaint());
    }
  }

  #refuseWhenStopping(): void {
    if (this.#deps.stopping.aborted) throw new Refusal('everything is being stopped');
  }
}

function nameOf({ port }: Pick<Slot, 'port'>): string {
  return `instance-${port}`;
}

function countOf({ length }: readonly Slot[]): string {
  return length === 1 ? 'one instance' : `${length} instances`;
}

function inSeconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}
