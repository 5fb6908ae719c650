/**
 * The cost of connected agents for an instance: CPU for each heartbeat and memory for each agent,
 * compared with a bare `ws` server that parses and answers the same frames from the same client.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import type { Helper } from '../helper.ts';
import { profileCpu, writeHeap } from '../profile.ts';
import type { Beats, ConnectOrder } from '../programs/agents.ts';
import { type Summary, summarize } from '../statistics.ts';
import { number } from '../table.ts';
import type { CpuUse, MemoryUse } from '../use.ts';

interface Sizes {
  /**
   * Number of agents connected before memory is first measured, so that code and pools are warm.
   */
  first: number;
  agents: number;
  settleMs: number;
  windows: number;
  windowMs: number;
}

interface Cost {
  /** µs per heartbeat, over all windows. */
  cpu: Summary;
  beatsPerSecond: number;
  /** Percentage of one core. */
  busy: number;
  heapKb: number;
  residentKb: number;
  /** Number of times that an agent lost its connection and reconnected. */
  lost: number;
}

const FULL: Sizes = { first: 1_000, agents: 10_000, settleMs: 8_000, windows: 5, windowMs: 6_000 };
const QUICK: Sizes = { first: 100, agents: 500, settleMs: 1_000, windows: 2, windowMs: 1_000 };
const CONNECTS_PER_SECOND = 1_000;

export const agentCost: Figure = {
  name: 'agents',
  says: 'CPU per heartbeat and memory per agent, against a bare ws server',
  seconds: 130,
  async measure(context) {
    const sizes = context.isQuick ? QUICK : FULL;
    const bare = await measureBare(context, sizes);
    const own = await measureInstance(context, sizes);
    const with_ = `${number(sizes.agents)} agents`;
    const of = 'bare ws server';
    const cpu: Result = {
      what: `CPU per heartbeat, ${with_} at 1/s`,
      value: own.cpu.median,
      unit: 'µs',
      floor: { of, value: bare.cpu.median },
      limit: { on: 'ratio', atMost: 1.3 },
      notes: [noteOf('instance', own), noteOf('bare', bare)],
    };
    const memory: Result = {
      what: `memory per agent, heap and external, ${with_}`,
      value: own.heapKb,
      unit: 'KB',
      floor: { of, value: bare.heapKb },
      limit: { on: 'ratio', atMost: 1.6 },
      notes: [`after forced collections; the difference between ${number(sizes.first)} and ${with_}`],
    };
    const resident: Result = {
      what: `memory per agent, resident, ${with_}`,
      value: own.residentKb,
      unit: 'KB',
      floor: { of, value: bare.residentKb },
    };
    return [cpu, memory, resident];
  },
};

async function measureBare(context: BenchContext, sizes: Sizes): Promise<Cost> {
  const plan = { name: 'bare-link', file: 'tools/bench/programs/bare-link.ts', nodeArgs: ['--expose-gc'] };
  await using server = await context.startHelper(plan);
  const { url } = await server.ask<{ url: string }>('listen');
  return await measureServer(context, { server, url }, sizes);
}

async function measureInstance(context: BenchContext, sizes: Sizes): Promise<Cost> {
  await using zone = await context.startZone({ instances: 1 });
  const [instance] = zone.instances;
  if (instance === undefined) throw new Error('there is no instance');
  return await measureServer(context, { server: instance.helper, url: instance.url }, sizes);
}

async function measureServer(
  context: BenchContext,
  { server, url }: { server: Helper; url: string },
  { first, agents, settleMs, windows, windowMs }: Sizes,
): Promise<Cost> {
  await using client = await context.startHelper({ name: 'agents', file: 'tools/bench/programs/agents.ts' });
  const connect = (count: number) => {
    const order: ConnectOrder = { url, agents: count, perSecond: CONNECTS_PER_SECOND };
    return client.ask('connect', order);
  };
  await connect(first);
  await clock.sleep(settleMs / 2, context.signal);
  const before = await server.ask<MemoryUse>('memory');
  if (context.profiles !== undefined) await writeHeap(server, { folder: context.profiles, what: `${first}-agents` });
  await connect(agents - first);
  await clock.sleep(settleMs, context.signal);
  const profile = async (folder: string) => {
    await profileCpu(server, { folder, what: 'heartbeats', work: () => clock.sleep(windowMs) });
    await writeHeap(server, { folder, what: `${agents}-agents` });
  };
  const costs: number[] = [];
  const whole = { beats: 0, cpuMs: 0 };
  for (let window = 0; window < windows; window++) {
    const spent = await measureWindow(client, server, windowMs);
    costs.push((spent.cpuMs * 1000) / spent.beats);
    whole.beats += spent.beats;
    whole.cpuMs += spent.cpuMs;
  }
  const after = await server.ask<MemoryUse>('memory');
  if (context.profiles !== undefined) await profile(context.profiles);
  const perAgent = (of: (use: MemoryUse) => number) => (of(after) - of(before)) / (agents - first) / 1024;
  return {
    cpu: summarize(costs),
    beatsPerSecond: whole.beats / ((windows * windowMs) / 1000),
    busy: (100 * whole.cpuMs) / (windows * windowMs),
    heapKb: perAgent(({ heapBytes, externalBytes }) => heapBytes + externalBytes),
    residentKb: perAgent(({ residentBytes }) => residentBytes),
    lost: (await client.ask<Beats>('beats')).lost,
  };
}

/** Counts only heartbeats that were answered. */
async function measureWindow(
  client: Helper,
  server: Helper,
  windowMs: number,
): Promise<{ beats: number; cpuMs: number }> {
  const look = async () => {
    const [{ answered }, { cpuMs }] = await Promise.all([client.ask<Beats>('beats'), server.ask<CpuUse>('cpu')]);
    return { answered, cpuMs };
  };
  const before = await look();
  await clock.sleep(windowMs);
  const after = await look();
  return { beats: after.answered - before.answered, cpuMs: after.cpuMs - before.cpuMs };
}

function noteOf(name: string, { cpu, beatsPerSecond, busy, lost }: Cost): string {
  const spread = `${number(cpu.p10)} to ${number(cpu.max)} µs over ${cpu.samples} windows`;
  const losses = lost === 0 ? '' : `; ${lost} connections lost meanwhile`;
  return `${name}: ${number(beatsPerSecond)} answered per second with ${number(busy)} % of a core; ${spread}${losses}`;
}
