/**
 * How soon the server of a lost agent is `unknown`, read at an instance that did not hold it. The
 * agent falls silent like a stopped process, or its connection is closed. Each agent is lost once;
 * each instance holds half of them.
 */

import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { DEFAULT_LINK_TIMES } from '../../../lib/protocol/limits.ts';
import { BenchCaller } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import type { Helper } from '../helper.ts';
import type { ConnectOrder } from '../programs/agents.ts';
import { type Summary, summarize } from '../statistics.ts';
import { number } from '../table.ts';

interface Agent {
  serverUuid: string;
  /** The instance that does not hold the agent. */
  readUrl: string;
}

interface Loss {
  does: 'silence' | 'close';
  /** Number of agents lost at the same time. */
  lanes: number;
  /** Time between the loss and the first look. */
  waitMs: number;
  /** Time between looks; a result may be late by as much. */
  lookMs: number;
}

const { silenceMs } = DEFAULT_LINK_TIMES;
const SILENT: Loss = { does: 'silence', lanes: 10, waitMs: silenceMs - 600, lookMs: 10 };
const CLOSED: Loss = { does: 'close', lanes: 1, waitMs: 0, lookMs: 1 };
const SETTLE_MS = 3_000;
const PAUSE_MS = 50;
const GIVE_UP_MS = 20_000;

export const lostAgents: Figure = {
  name: 'lost-agents',
  says: 'from the silence of an agent, or the end of its connection, to `unknown` on another instance',
  seconds: 90,
  measure,
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const samples = context.isQuick ? 20 : 250;
  await using zone = await context.startZone({ instances: 2 });
  await using load = await context.startHelper({ name: 'agents', file: 'tools/bench/programs/agents.ts' });
  const urls = zone.instances.map(({ url }) => url) as [string, string];
  const agents = await connectAgents(load, urls, 2 * samples);
  await zone.untilKnown(agents.length);
  await clock.sleep(SETTLE_MS, context.signal);
  const silent = await lose(context, { load, agents: agents.slice(0, samples), loss: SILENT });
  const closed = await lose(context, { load, agents: agents.slice(samples), loss: CLOSED });
  return [
    {
      what: 'silent agent to unknown on another instance, p99, from its last byte',
      value: silent.p99,
      unit: 'ms',
      floor: { of: 'silenceMs', value: silenceMs },
      limit: { on: 'value', atMost: silenceMs + 500 },
      notes: [noteOf(silent)],
    },
    {
      what: 'closed connection to unknown on another instance, p99',
      value: closed.p99,
      unit: 'ms',
      limit: { on: 'value', atMost: 100 },
      notes: [noteOf(closed)],
    },
  ];
}

/** Alternates between the agents of the two instances. */
async function connectAgents(load: Helper, [one, other]: [string, string], count: number): Promise<Agent[]> {
  const connect = async (url: string, readUrl: string): Promise<Agent[]> => {
    const order: ConnectOrder = { url, agents: count / 2, perSecond: 200, sendsSysinfo: true };
    return (await load.ask<string[]>('connect', order)).map((serverUuid) => ({ serverUuid, readUrl }));
  };
  const [ones, others] = [await connect(one, other), await connect(other, one)];
  return ones.flatMap((agent, index) => [agent, ...others.slice(index, index + 1)]);
}

async function lose(
  context: BenchContext,
  { load, agents, loss }: { load: Helper; agents: readonly Agent[]; loss: Loss },
): Promise<Summary> {
  using caller = new BenchCaller();
  const times: number[] = [];
  const left = [...agents];
  const lane = async () => {
    for (let agent = left.pop(); agent !== undefined && !context.signal.aborted; agent = left.pop()) {
      const lostAt = await load.ask<number>(loss.does, { serverUuid: agent.serverUuid });
      times.push((await whenUnknown(caller, agent, loss)) - lostAt);
      await clock.sleep(PAUSE_MS);
    }
  };
  await Promise.all(Array.from({ length: loss.lanes }, lane));
  return summarize(times);
}

/** Uses the wall clock, which this process shares with the load. */
async function whenUnknown(
  caller: BenchCaller,
  { serverUuid, readUrl }: Agent,
  { waitMs, lookMs }: Loss,
): Promise<number> {
  if (waitMs > 0) await clock.sleep(waitMs);
  for (const deadline = clock.now() + GIVE_UP_MS; clock.now() < deadline; await clock.sleep(lookMs)) {
    const { status, text } = await caller.get(`${readUrl}/servers/${serverUuid}`);
    if (status === 200 && (JSON.parse(text) as { status: string }).status === 'unknown') return clock.wallTime();
  }
  throw new Error(`server ${serverUuid} is not unknown ${GIVE_UP_MS} ms after its agent was lost`);
}

function noteOf({ samples, median, p90, max }: Summary): string {
  return `${samples} samples: p50 ${number(median)}, p90 ${number(p90)}, most ${number(max)} ms`;
}
