/**
 * Which version of the agent's program runs on this server, and how another one replaces it. Pure:
 * the record is on disk (versions-file.ts) before the step that follows it. Two programs write it,
 * never at the same time: the agent while it runs (stage, confirm), the launcher while no agent
 * runs (the rest).
 *
 *     settled ── stage ──► staged ── start ──► trial ── confirm ──► settled on the new version
 *        ▲                    │                │  └─ start: at most MAX_STARTS times
 *        │◄──── withdraw ─────┘                │
 *        └──── fail; start once too often ─────┘    settled on the version before
 *
 * If the machine or a program dies between two steps, the next start of the launcher continues from
 * the record: a staged version is tried, and one whose trial was interrupted is tried again.
 */
import { compareVersions } from './version-order.ts';

/** A version that was installed from a package. */
export interface InstalledVersion {
  version: string;
  /**
   * SHA-256 of the package's manifest, in hexadecimal digits. Two packages may have the same
   * version.
   */
  digest: string;
}

type VersionChange =
  | { name: 'settled' }
  | { name: 'staged'; next: InstalledVersion; task: string }
  | { name: 'trial'; next: InstalledVersion; task: string; starts: number };

/** How an installation of a version ended. */
export interface VersionEnd extends InstalledVersion {
  task: string;
  outcome: 'confirmed' | 'rolled-back';
  /** Why it was rolled back. */
  reason?: string;
  /** False: it was withdrawn before it was started. */
  wasStarted?: false;
  /** The version that ran before. */
  from: string;
}

export interface AgentVersions {
  /**
   * What runs, and what a trial goes back to. Null: the installation that the launcher is part of.
   */
  current: InstalledVersion | null;
  /** The version of the launcher's installation when that was last looked at. */
  base: string;
  change: VersionChange;
  /** The latest is last. */
  ends: VersionEnd[];
}

export type VersionEvent =
  | { type: 'stage'; next: InstalledVersion; task: string }
  /** The staged version cannot be started: no launcher runs this agent. */
  | { type: 'withdraw'; reason: string }
  /** The launcher is about to start the agent. */
  | { type: 'start' }
  | { type: 'confirm' }
  | { type: 'fail'; reason: string }
  /** The launcher found its own installation to have this version. */
  | { type: 'base'; version: string }
  /** The program of the current version is not on disk. */
  | { type: 'lost' };

/** A version that takes the machine down with it is rolled back after so many starts. */
const MAX_STARTS = 3;
const MAX_ENDS = 20;
const NOT_STARTED = { wasStarted: false } as const;

class VersionStepError extends Error {
  constructor(versions: AgentVersions, event: VersionEvent) {
    super(`agent versions: ${event.type} is not possible while ${describeChange(versions.change)}`);
    this.name = 'VersionStepError';
  }
}

export const newAgentVersions = (base: string): AgentVersions => ({
  current: null,
  base,
  change: { name: 'settled' },
  ends: [],
});

/** @throws VersionStepError for an event that this state does not have */
export function stepVersions(versions: AgentVersions, event: VersionEvent): AgentVersions {
  const { change } = versions;
  switch (event.type) {
    case 'stage':
      if (change.name !== 'settled') throw new VersionStepError(versions, event);
      return { ...versions, change: { name: 'staged', next: event.next, task: event.task } };
    case 'withdraw':
      if (change.name !== 'staged') throw new VersionStepError(versions, event);
      return rolledBack(versions, change, event.reason);
    case 'start':
      return started(versions);
    case 'confirm':
      if (change.name !== 'trial') throw new VersionStepError(versions, event);
      return { ...ended(versions, change, { outcome: 'confirmed' }), current: change.next };
    case 'fail':
      if (change.name !== 'trial') throw new VersionStepError(versions, event);
      return rolledBack(versions, change, event.reason);
    case 'base':
      return onBase(versions, event.version);
    case 'lost':
      return { ...versions, current: null };
    default:
      return event satisfies never;
  }
}

/** The version to start; null is the launcher's installation. */
export const versionToRun = ({ change, current }: AgentVersions): InstalledVersion | null =>
  change.name === 'trial' ? change.next : current;

/** The version number of what runs when no trial does. */
export const settledVersion = ({ current, base }: AgentVersions): string => current?.version ?? base;

/** How the installation by this task ended; undefined if it has not. */
export const findEnd = ({ ends }: AgentVersions, taskId: string): VersionEnd | undefined =>
  ends.findLast((end) => end.task === taskId);

/**
 * How the last installation of this package ended, if that was rolled back after it had been
 * started: it would probably fail again.
 */
export function findRollBack({ ends }: AgentVersions, digest: string): VersionEnd | undefined {
  const last = ends.findLast((end) => end.digest === digest && end.wasStarted !== false);
  return last?.outcome === 'rolled-back' ? last : undefined;
}

/** The versions whose files are needed. */
export function versionsInUse({ current, change }: AgentVersions): InstalledVersion[] {
  return [...(current === null ? [] : [current]), ...(change.name === 'settled' ? [] : [change.next])];
}

function started(versions: AgentVersions): AgentVersions {
  const { change } = versions;
  if (change.name === 'settled') return versions;
  const { next, task: taskId } = change;
  const starts = change.name === 'trial' ? change.starts + 1 : 1;
  if (starts <= MAX_STARTS) return { ...versions, change: { name: 'trial', next, task: taskId, starts } };
  return rolledBack(versions, change, `it was started ${MAX_STARTS} times and did not come up`);
}

/** An operator who puts a newer installation on the server expects it to run. */
function onBase(versions: AgentVersions, base: string): AgentVersions {
  if (versions.base === base) return versions;
  const { current } = versions;
  const isNewer = current !== null && compareVersions(base, current.version) > 0;
  return { ...versions, base, current: isNewer ? null : current };
}

type OpenChange = Exclude<VersionChange, { name: 'settled' }>;

function rolledBack(versions: AgentVersions, change: OpenChange, reason: string): AgentVersions {
  return ended(versions, change, { outcome: 'rolled-back', reason });
}

function ended(
  versions: AgentVersions,
  { next, task: taskId }: OpenChange,
  how: Pick<VersionEnd, 'outcome' | 'reason'>,
): AgentVersions {
  const from = settledVersion(versions);
  const end: VersionEnd = {
    ...next,
    task: taskId,
    ...how,
    from,
    ...(versions.change.name === 'staged' && NOT_STARTED),
  };
  return { ...versions, change: { name: 'settled' }, ends: [...versions.ends, end].slice(-MAX_ENDS) };
}

const describeChange = (change: VersionChange): string =>
  change.name === 'settled' ? 'no version is installed' : `version ${change.next.version} is ${change.name}`;
