/**
 * Which servers get a new version of their agent, and in which waves. Pure; used by
 * `cnapi agents upgrade`.
 */
import type { NamedServer } from '../../protocol/api/servers.ts';
import { parseAmount, percentageOf } from '../push-jobs/amounts.ts';
import { UsageError } from '../terminal/command-errors.ts';

export interface UpgradePlan {
  /** Servers that have this version. */
  upToDate: NamedServer[];
  /** Servers that have another version, and whose agent is not connected. */
  away: NamedServer[];
  /** Servers that are not set up: their Ur keeps them `running`, and it installs nothing. */
  withoutAgent: NamedServer[];
  /** The rest, in the order in which they are upgraded. */
  waves: NamedServer[][];
}

/** Servers of each wave: their number, or a part of all that are upgraded, at least one. */
type Wave = ReturnType<typeof parseAmount>;

interface Request {
  version: string;
  wave: Wave;
  /** The uuids of servers on which this version could not be installed before. They come last. */
  failed: ReadonlySet<string>;
}

/** @throws UsageError */
export function parseWave(text: string): Wave {
  const wave = parseAmount(text, '--wave');
  if ((wave.percent ?? wave.count) !== 0) return wave;
  throw new UsageError(`--wave ${text} upgrades no server: a wave has at least one, or more than 0% of them`);
}

export function planUpgrade(servers: readonly NamedServer[], { version, wave, failed }: Request): UpgradePlan {
  const others = servers.filter((server) => agentVersionOf(server) !== version);
  const running = others.filter(({ status }) => status === 'running');
  const able = serversToUpgrade(servers, version);
  const hasFailed = ({ uuid }: NamedServer) => failed.has(uuid);
  const ready = [...able.filter((server) => !hasFailed(server)), ...able.filter(hasFailed)];
  const share = wave.percent === undefined ? (wave.count ?? 1) : percentageOf(wave.percent, ready.length);
  const size = Math.max(share, 1);
  return {
    upToDate: servers.filter((server) => agentVersionOf(server) === version),
    away: others.filter(({ status }) => status !== 'running'),
    withoutAgent: running.filter((server) => !hasAgent(server)),
    waves: Array.from({ length: Math.ceil(ready.length / size) }, (_, index) =>
      ready.slice(index * size, (index + 1) * size),
    ),
  };
}

/** Servers whose agent is connected and has another version. */
export const serversToUpgrade = (servers: readonly NamedServer[], version: string): NamedServer[] =>
  servers.filter((server) => agentVersionOf(server) !== version && server.status === 'running' && hasAgent(server));

/** Whether a failed installation was of this version. One of an unknown version may have been. */
export function mayBeOfVersion(summary: string | undefined, version: string): boolean {
  const [, source = ''] = /(?:^| )package_file=(\S+)/.exec(summary ?? '') ?? [];
  return (versionInName(source) ?? version) === version;
}

/**
 * A server that is running without one is never set up: an agent of Triton sets it up, and others
 * say their version.
 */
const hasAgent = (server: NamedServer): boolean => server.setup !== false || agentVersionOf(server) !== undefined;

/** Undefined for agents of Triton, and for servers whose sysinfo nobody has reported. */
export function agentVersionOf({ sysinfo }: NamedServer): string | undefined {
  const version = (sysinfo as Record<string, unknown> | undefined)?.['CN Agent Version'];
  return typeof version === 'string' ? version : undefined;
}

const VERSION_IN_NAME = /-(\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)\.tar$/;

/** The version in the name of a package's file, as `npm run agent-package` writes it. */
export function versionInName(source: string): string | undefined {
  const path = URL.parse(source)?.pathname ?? source;
  return VERSION_IN_NAME.exec(path)?.[1];
}
