/**
 * How many agents a zone of three instances holds, with the agents on the same machine: 30,000 for
 * several minutes, then more step by step, or fewer if 30,000 were too many. It holds while no
 * server with a live agent is reported as unknown, all agents have their sessions, and each sends
 * one heartbeat per second.
 */
import os from 'node:os';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { number } from '../table.ts';
import { lastChange, readUnknown, type Unknown } from '../unknown-servers.ts';
import type { Zone } from '../zone.ts';

export const manyAgents: Figure = {
  name: 'many-agents',
  says: '30,000 agents at 1/s on three instances for --minutes (10): false unknown; then the largest number that works',
  seconds: 900,
  measure,
};

interface Sizes {
  agents: number;
  step: number;
  most: number;
  holdMs: number;
  stepHoldMs: number;
}

interface Held {
  agents: number;
  unknown: Unknown;
  /** Number of agents with a session at the end. */
  live: number;
  /** Average of one agent. */
  beatsPerSecond: number;
  /** Percentage of all cores. */
  busyPercent: number;
}

/** Limited by file descriptors, 20,000 per process; each instance accepts 18,000 agents. */
const AGENTS_A_FLEET = 10_000;
/**
 * One rate for each fleet, in order. To connect costs as much as a hundred heartbeats, and the more
 * agents send heartbeats, the less CPU is left for connecting. A crowd that connects too fast
 * starves the connected agents, which fall silent and reconnect as well.
 */
const CONNECTS_PER_SECOND = [400, 200, 80];
const LAST_CONNECTS_PER_SECOND = 60;
const SETTLE_MS = 5_000;
const LEAST_BEATS = 0.95;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const sizes = sizesOf(context);
  const { zone, haveCome } = await startWith(context, sizes.agents);
  const holdMs = haveCome ? sizes.holdMs : sizes.stepHoldMs;
  const held = await hold(zone, sizes.agents, holdMs, context);
  const steps = isHeld(held) ? await climb(zone, sizes, context) : await descend(zone, sizes, context);
  const most = Math.max(0, ...[held, ...steps].filter(isHeld).map(({ agents }) => agents));
  const minutes = number(holdMs / 60_000);
  return [
    {
      what: `${number(sizes.agents)} agents at 1/s on three instances, ${minutes} min: false unknown`,
      value: held.unknown.count,
      unit: '',
      limit: { on: 'value', atMost: 0 },
      notes: [noteOf(held)],
    },
    {
      what: 'the most agents that held, clients on the same cores',
      value: most,
      unit: '',
      notes: [
        `steps of ${number(sizes.step)}, ${sizes.stepHoldMs / 1000} s each, up to ${number(sizes.most)}`,
        ...steps.map(noteOf),
      ],
    },
  ];
}

function sizesOf({ isQuick, minutes }: BenchContext): Sizes {
  if (isQuick) return { agents: 600, step: 100, most: 700, holdMs: 5_000, stepHoldMs: 2_000 };
  return { agents: 30_000, step: 5_000, most: 50_000, holdMs: minutes * 60_000, stepHoldMs: 40_000 };
}

/**
 * If the agents do not all connect in time, this is reported, and the figure is measured with those
 * that did.
 */
async function startWith({ startZone, say }: BenchContext, agents: number): Promise<{ zone: Zone; haveCome: boolean }> {
  const zone = await startZone();
  try {
    for (let fleet = 0; fleet * AGENTS_A_FLEET < agents; fleet++) {
      const share = Math.min(AGENTS_A_FLEET, agents - fleet * AGENTS_A_FLEET);
      const rate = CONNECTS_PER_SECOND[fleet] ?? LAST_CONNECTS_PER_SECOND;
      say(`connecting ${number(share)} of ${number(agents)} agents, ${rate} a second`);
      await zone.addFleet({ agents: share, processes: 1, rate });
    }
    return { zone, haveCome: true };
  } catch (error) {
    say((error as Error).message);
    return { zone, haveCome: false };
  }
}

async function climb(zone: Zone, { agents, step, most, stepHoldMs }: Sizes, context: BenchContext): Promise<Held[]> {
  const steps: Held[] = [];
  for (let size = agents + step; size <= most && steps.every(isHeld); size += step) {
    try {
      await zone.addFleet({ agents: step, processes: 1, rate: LAST_CONNECTS_PER_SECOND });
    } catch (error) {
      context.say(`${number(size)} agents: ${(error as Error).message}`);
      break;
    }
    steps.push(await hold(zone, size, stepHoldMs, context));
  }
  return steps;
}

/** Each step uses a new zone, because agents that leave would disturb the others. */
async function descend(zone: Zone, { agents, step, stepHoldMs }: Sizes, context: BenchContext): Promise<Held[]> {
  const steps: Held[] = [];
  await zone.stop();
  for (let size = agents - step; size > 0 && !steps.some(isHeld); size -= step) {
    const { zone: smaller } = await startWith(context, size);
    steps.push(await hold(smaller, size, stepHoldMs, context));
    await smaller.stop();
  }
  return steps;
}

async function hold(zone: Zone, agents: number, holdMs: number, { say, signal }: BenchContext): Promise<Held> {
  await clock.sleep(SETTLE_MS, signal);
  const before = await lastChange(zone);
  const [first, busy, startedAt] = [await zone.fleetStatus(), busyShare(), clock.now()];
  await clock.sleep(holdMs, signal);
  const last = await zone.fleetStatus();
  const seconds = (clock.now() - startedAt) / 1000;
  const beatsPerSecond = (last.heartbeats - first.heartbeats) / seconds / agents;
  const held = {
    agents,
    unknown: await readUnknown(zone, before),
    live: last.live,
    beatsPerSecond,
    busyPercent: 100 * busy(),
  };
  say(noteOf(held));
  return held;
}

function isHeld({ agents, unknown, live, beatsPerSecond }: Held): boolean {
  return unknown.count === 0 && live === agents && beatsPerSecond >= LEAST_BEATS;
}

function noteOf(held: Held): string {
  const { agents, unknown, live, beatsPerSecond, busyPercent } = held;
  const reason = unknown.count === 0 ? '' : ` (${unknown.reasons})`;
  const result = isHeld(held) ? 'held' : 'did not hold';
  return (
    `${number(agents)} ${result}: ${unknown.count} unknown${reason}, ${number(live)} live at the end, ` +
    `${beatsPerSecond.toFixed(2)} heartbeats/s each, all cores ${Math.round(busyPercent)} % busy`
  );
}

/** Returns the share of all cores' time since the call that was not idle. */
function busyShare(): () => number {
  const before = coreTimes();
  return () => {
    const after = coreTimes();
    return 1 - (after.idle - before.idle) / (after.all - before.all);
  };
}

function coreTimes(): { idle: number; all: number } {
  const times = os.cpus().map((cpu) => cpu.times);
  const sum = (of: (each: (typeof times)[number]) => number) => times.reduce((total, each) => total + of(each), 0);
  return {
    idle: sum(({ idle }) => idle),
    all: sum(({ user, nice, sys, idle, irq }) => user + nice + sys + idle + irq),
  };
}
