/**
 * Walks through the faults: in a first lap each kind alone, in an order from the seed; in later
 * laps each with another one that begins while it lasts. After each it waits until the zone has
 * recovered: instances ready, servers running, every workload continued.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { shuffled } from '../../lib/platform/random.ts';
import { statusOf } from '../support/fleet-harness.ts';
import { between, pick } from './chance.ts';
import type { FaultKind, Harm, Stage } from './harm.ts';
import { type Fault, WORKLOADS } from './history.ts';
import type { Recorder } from './recorder.ts';

export interface WalkDeps extends Stage {
  recorder: Recorder;
  kinds: readonly FaultKind[];
  /** No fault begins after that. */
  until: number;
  say(text: string): void;
}

interface Begun {
  fault: Fault;
  harm: Harm;
}

const SETTLE_MS = 90_000;
const LOOK_MS = 200;

export class Walk {
  readonly #deps: WalkDeps;
  injected = 0;

  constructor(deps: WalkDeps) {
    this.#deps = deps;
  }

  async run(laps: number): Promise<void> {
    const { kinds, random, recorder, until } = this.#deps;
    for (let lap = 1; lap <= laps; lap++) {
      for (const kind of shuffled(kinds, random)) {
        if (recorder.now() > until) return;
        await this.#step(lap === 1 ? [kind] : [kind, pick(kinds, random)]);
        await sleep(between(200, 1_200, random));
      }
    }
  }

  async #step(kinds: readonly FaultKind[]): Promise<void> {
    const { random, recorder, say } = this.#deps;
    const begun: Begun[] = [];
    for (const kind of kinds) {
      await this.#deps.health.readRoster();
      const harm = kind.prepare(this.#deps);
      if (begun.some((other) => isSameTarget(other.harm, harm))) continue;
      const fault = faultOf(kind.name, harm, recorder.now());
      await harm.begin();
      begun.push({ fault, harm });
      this.injected += 1;
      if (begun.length < kinds.length) await sleep(between(0, 3_000, random));
    }
    for (const { harm } of begun) await this.#last(harm);
    for (const { fault, harm } of begun.reverse()) {
      await harm.end();
      fault.to = recorder.now();
    }
    await this.#settle(begun);
    for (const { harm } of begun) await harm.after?.();
    for (const { fault } of begun.reverse()) recorder.write(fault);
    const [{ from = 0, to = 0, settledAt = Number.NaN, lacking = [] } = {}] = begun.map(({ fault }) => fault);
    const recovery = Number.isNaN(settledAt)
      ? `NOT RECOVERED: ${lacking.join(', ')}`
      : `recovered after ${seconds(settledAt - to)}`;
    const names = begun.map(({ fault }) => nameOf(fault)).join(' + ');
    say(`${String(this.injected).padStart(4)}  ${names}: ${seconds(to - from)}, ${recovery}`);
  }

  async #last({ lastsMs, untilSeenMs = 0, dead }: Harm): Promise<void> {
    const { health, recorder } = this.#deps;
    const isSeen = () =>
      health.roster.every(({ server, status }) => status === 'unknown' || !dead?.servers.includes(server));
    await sleep(lastsMs);
    for (const until = recorder.now() + untilSeenMs; recorder.now() < until && !isSeen(); await sleep(LOOK_MS))
      await health.readRoster();
  }

  async #settle(begun: readonly Begun[]): Promise<void> {
    const { recorder } = this.#deps;
    const faults = begun.map(({ fault }) => fault);
    const since = Math.max(...faults.map(({ to }) => to));
    let lacking: string[] = [];
    for (const until = recorder.now() + SETTLE_MS; recorder.now() < until; await sleep(LOOK_MS)) {
      lacking = [...(await this.#lacking(since)), ...this.#missing(begun)];
      this.#extend(begun);
      if (lacking.length > 0) continue;
      for (const fault of faults) fault.settledAt = recorder.now();
      return;
    }
    for (const fault of faults) fault.lacking = lacking;
  }

  async #lacking(since: number): Promise<string[]> {
    const { zone, health, recorder } = this.#deps;
    const ready = await Promise.all(zone.instances.map(({ url }) => statusOf(`${url}/ready`)));
    const unready = zone.instances.filter((_, number) => ready[number] !== 200).map(({ program }) => program.name);
    await health.readRoster();
    const unknown = health.roster.filter(({ status }) => status !== 'running').map(({ server }) => server);
    const stuck = WORKLOADS.filter((workload) => (recorder.lastRound.get(workload) ?? 0) <= since);
    return [...unready, ...unknown, ...stuck];
  }

  /** The agents that arrived. */
  #missing(begun: readonly Begun[]): string[] {
    const isMissing = (server: string) => this.#deps.health.statusOf(server) !== 'running';
    const missing = begun.flatMap(({ harm: { crowd = [] } }) => crowd.filter(isMissing));
    return missing.length === 0 ? [] : [`${missing.length} agents that arrived`];
  }

  #extend(begun: readonly Begun[]): void {
    const { zone, health } = this.#deps;
    for (const { fault, harm } of begun) {
      if (!harm.cutsOffNewcomers) continue;
      const uuid = zone.instances[fault.instance ?? 0]?.uuid;
      for (const { server, owner } of health.roster)
        if (owner === uuid && !fault.servers.includes(server)) fault.servers.push(server);
    }
  }
}

/** Whether one of the faults would undo the other. */
function isSameTarget(a: Harm, b: Harm): boolean {
  if (a.part === 'postgres' || a.part === 'instance') {
    const isEverywhere = a.instance === undefined || b.instance === undefined;
    if (b.part === a.part || (b.part === 'instance' && a.part === 'postgres'))
      return isEverywhere || a.instance === b.instance;
    if (a.part === 'instance' && b.part === 'postgres') return true;
    return a.part === 'instance' && b.part === 'agent';
  }
  if (b.part === 'instance' && a.part === 'agent') return true;
  if (a.part !== b.part) return false;
  return a.part !== 'line' || (a.line === b.line && a.instance === b.instance);
}

function faultOf(name: string, harm: Harm, from: number): Fault {
  const { part, instance, line, servers = [], codes = [], dead, moves, crowd } = harm;
  return {
    kind: 'fault',
    name,
    part,
    servers,
    codes,
    ...(instance === undefined ? {} : { instance }),
    ...(line === undefined ? {} : { line }),
    ...(dead === undefined ? {} : { dead }),
    ...(moves === undefined ? {} : { moves }),
    ...(crowd === undefined ? {} : { crowd }),
    from,
    to: from,
  };
}

function nameOf({ name, instance }: Fault): string {
  return instance === undefined ? name : `${name} (instance-${instance})`;
}

const seconds = (ms: number) => `${(ms / 1000).toFixed(1)} s`;
