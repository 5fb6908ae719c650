/** Parses the options of `npm run bench` into exact types. Pure. */
import { parseArgs } from 'node:util';
import { MAX_PUSH_NODES } from '../../lib/protocol/limits.ts';
import type { Figure } from './figure.ts';

export interface BenchOptions {
  isJson: boolean;
  isQuick: boolean;
  /** Selects the figures that compare cnapi with peers. */
  isPeers: boolean;
  minutes: number;
  /** Servers of the figures of push jobs. */
  nodes: number;
  snapshotMinutes: number;
  /** Number of turns of each peer. */
  rounds: number;
  figures: readonly Figure[];
  databaseUrl: string | undefined;
  redisUrl: string | undefined;
  bus: 'redis' | 'postgres' | undefined;
  /** The folder for profiles, from figures that can take them. */
  profiles: string | undefined;
}

export class BenchUsageError extends Error {}

export function usageOf(figures: readonly Figure[], peers: readonly Figure[]): string {
  return `npm run bench -- [OPTION]...   measures cnapi on this machine, each figure with its floor from the same run

  --only NAME,…        only these figures
  --peers              instead: the figures that compare cnapi with alternatives, on the same Postgres and Redis, in turn.
                       The alternatives are installed in tools/peers when this is first used; mosquitto and nats-server are
                       Debian packages (apt-get install mosquitto nats-server) and are left out if they are missing
  --rounds N           how often each alternative takes its turn (default 3)
  --quick              small sizes, to try the benchmark itself; the numbers mean nothing
  --minutes N          how long the figure many-agents holds its agents (default 10)
  --nodes N            how many servers the figures of push jobs have (default 10000)
  --snapshot-minutes N how long the figure snapshot keeps its snapshot open (default 1)
  --json               one JSON object instead of the table
  --database-url URL   use this Postgres (the benchmark creates its own databases there) instead of an embedded one
  --redis-url URL      use this Redis; default: a redis-server or valkey-server on the PATH, else LISTEN/NOTIFY
  --bus postgres       use LISTEN/NOTIFY even if there is a Redis
  --profiles DIR       write CPU profiles and heap snapshots of the instances to DIR, for figures that take them
  --help               this text

Progress goes to stderr. Use a machine that does nothing else. Exit code: 0 all figures were measured (targets met or missed),
1 a figure could not be measured, 2 wrong usage.

figures, and about how long each takes:
${linesOf(figures)}

with --peers:
${linesOf(peers)}`;
}

function linesOf(figures: readonly Figure[]): string {
  return figures.map(({ name, says, seconds }) => `  ${name.padEnd(18)} ${says} (${seconds} s)`).join('\n');
}

/** Returns undefined when only the help text was requested. @throws BenchUsageError */
export function parseBenchOptions(
  args: readonly string[],
  own: readonly Figure[],
  peers: readonly Figure[],
): BenchOptions | undefined {
  const values = parse(args);
  const figures = values.peers ? peers : own;
  if (values.help) return undefined;
  if (values.bus !== undefined && values.bus !== 'redis' && values.bus !== 'postgres')
    throw new BenchUsageError(`--bus ${values.bus} is not redis or postgres`);
  return {
    isJson: values.json,
    isQuick: values.quick,
    isPeers: values.peers,
    minutes: minutesOf('minutes', values.minutes),
    nodes: nodesOf(values.nodes),
    snapshotMinutes: minutesOf('snapshot-minutes', values['snapshot-minutes']),
    rounds: roundsOf(values.rounds),
    figures: values.only === undefined ? figures : chosen(values.only.split(','), figures),
    databaseUrl: url('database-url', values['database-url'], ['postgres:', 'postgresql:']),
    redisUrl: url('redis-url', values['redis-url'], ['redis:', 'rediss:']),
    bus: values.bus,
    profiles: values.profiles,
  };
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        json: { type: 'boolean', default: false },
        peers: { type: 'boolean', default: false },
        quick: { type: 'boolean', default: false },
        rounds: { type: 'string', default: '3' },
        minutes: { type: 'string', default: '10' },
        nodes: { type: 'string', default: '10000' },
        'snapshot-minutes': { type: 'string', default: '1' },
        only: { type: 'string' },
        'database-url': { type: 'string' },
        'redis-url': { type: 'string' },
        bus: { type: 'string' },
        profiles: { type: 'string' },
        help: { type: 'boolean', default: false },
      },
    }).values;
  } catch (cause) {
    throw new BenchUsageError((cause as Error).message.split('. ')[0], { cause });
  }
}

function minutesOf(name: string, text: string): number {
  if (/^\d{1,4}(\.\d+)?$/.test(text) && Number(text) > 0) return Number(text);
  throw new BenchUsageError(`--${name} ${text} is not a number of minutes`);
}

function nodesOf(text: string): number {
  if (/^[1-9]\d{1,4}$/.test(text) && Number(text) <= MAX_PUSH_NODES) return Number(text);
  throw new BenchUsageError(`--nodes ${text} is not a number of servers from 10 to ${MAX_PUSH_NODES}`);
}

function roundsOf(text: string): number {
  if (/^[1-9]\d?$/.test(text)) return Number(text);
  throw new BenchUsageError(`--rounds ${text} is not a number of rounds`);
}

function url(name: string, text: string | undefined, protocols: readonly string[]): string | undefined {
  if (text === undefined || protocols.includes(URL.parse(text)?.protocol ?? '')) return text;
  throw new BenchUsageError(`--${name} must be a URL like ${protocols[0]}//USER:PASSWORD@HOST:PORT/…`);
}

function chosen(names: readonly string[], figures: readonly Figure[]): Figure[] {
  return names.map((name) => {
    const figure = figures.find((each) => each.name === name);
    if (figure !== undefined) return figure;
    throw new BenchUsageError(`--only ${name}: the figures are ${figures.map((each) => each.name).join(', ')}`);
  });
}
