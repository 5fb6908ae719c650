/** Parses the options of `npm start` into exact types. Pure. */
import { parseArgs } from 'node:util';
import type { Operation } from './control.ts';

export interface Options {
  /**
   * Number of API instances, on port, port + 1, …; the name server has the port after the last one.
   */
  instances: number;
  port: number;
  /** Number of simulated servers. */
  agents: number;
  /** Whether to run the real agent for this machine. */
  agent: boolean;
  /** Whether that agent runs containers, and so VMs. */
  containers: boolean;
  /** No token is needed: every user of this machine may do everything. */
  open: boolean;
  /** Data directory as the user wrote it; absent: `data` in the checkout. */
  data: string | undefined;
  /** URL of an existing database; absent: an embedded Postgres is started. */
  databaseUrl: string | undefined;
  /**
   * URL of an existing Redis; absent: one from the PATH is started, otherwise the database carries
   * the bus.
   */
  redisUrl: string | undefined;
}

export type Request =
  | { kind: 'start' | 'stop'; options: Options }
  | { kind: 'operate'; operation: Operation; options: Options };

/** The command line cannot be carried out; the message says which option and why. */
export class UsageError extends Error {}

/** Minimum and maximum number of instances. */
export const instanceLimits = [1, 16] as const;

const limits = { instances: instanceLimits, scale: instanceLimits, port: [1024, 65_000], agents: [0, 20_000] } as const;

/** @throws UsageError */
export function parseOptions(args: readonly string[]): Request {
  const values = parse(args);
  const options: Options = {
    instances: count('instances', values.instances, 3),
    port: count('port', values.port, 8080),
    agents: count('agents', values.agents, 20),
    agent: values.agent,
    containers: values.containers,
    open: values.open,
    data: folder(values.data),
    databaseUrl: url('database-url', values['database-url'], ['postgres:', 'postgresql:']),
    redisUrl: url('redis-url', values['redis-url'], ['redis:', 'rediss:']),
  };
  const asked = [values.stop, values.scale !== undefined, values['rolling-restart']].filter(Boolean);
  if (asked.length > 1) throw new UsageError('--stop, --scale and --rolling-restart are for one at a time');
  if (asked.length === 1) refuseStartOptions(values);
  if (values.containers && !values.agent)
    throw new UsageError('--containers is for the agent of this machine, which --no-agent leaves out');
  if (values.scale !== undefined) {
    const operation = { operation: 'scale' as const, instances: count('scale', values.scale, 0) };
    return { kind: 'operate', operation, options };
  }
  if (values['rolling-restart']) return { kind: 'operate', operation: { operation: 'rolling-restart' }, options };
  return { kind: values.stop ? 'stop' : 'start', options };
}

/** Says it before anything starts: later only the agent's log would. @throws UsageError */
export function refuseContainersWithoutRoot({ containers }: Options, uid: number | undefined): void {
  if (!containers || uid === 0) return;
  throw new UsageError('--containers needs root: start as root, or leave --containers out to run no VMs here');
}

/**
 * A user who names a port here might expect that it changes the port, or that it selects another
 * cnapi.
 */
function refuseStartOptions(values: ReturnType<typeof parse>): void {
  const ofStart = ['instances', 'port', 'agents', 'database-url', 'redis-url'] as const;
  const switched = values.open ? 'open' : values.containers ? 'containers' : values.agent ? undefined : 'no-agent';
  const given = ofStart.find((name) => values[name] !== undefined) ?? switched;
  if (given === undefined) return;
  throw new UsageError(`--${given} is only for a start; --data DIR selects the running cnapi`);
}

function parse(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      allowNegative: true,
      options: {
        instances: { type: 'string' },
        port: { type: 'string' },
        agents: { type: 'string' },
        agent: { type: 'boolean', default: true },
        containers: { type: 'boolean', default: false },
        open: { type: 'boolean', default: false },
        data: { type: 'string' },
        'database-url': { type: 'string' },
        'redis-url': { type: 'string' },
        stop: { type: 'boolean', default: false },
        scale: { type: 'string' },
        'rolling-restart': { type: 'boolean', default: false },
      },
    }).values;
  } catch (cause) {
    throw new UsageError((cause as Error).message.split('. ')[0], { cause });
  }
}

function count(name: keyof typeof limits, text: string | undefined, fallback: number): number {
  if (text === undefined) return fallback;
  const [least, most] = limits[name];
  const value = Number(text);
  if (/^\d+$/.test(text) && value >= least && value <= most) return value;
  throw new UsageError(`--${name} must be a whole number from ${least} to ${most}, not "${text}"`);
}

function folder(text: string | undefined): string | undefined {
  if (text !== '') return text;
  throw new UsageError('--data must name a directory');
}

/** The message does not repeat the text, because it may hold a password. */
function url(name: string, text: string | undefined, protocols: readonly string[]): string | undefined {
  if (text === undefined || protocols.includes(URL.parse(text)?.protocol ?? '')) return text;
  throw new UsageError(`--${name} must be a URL like ${protocols[0]}//USER:PASSWORD@HOST:PORT/…`);
}
