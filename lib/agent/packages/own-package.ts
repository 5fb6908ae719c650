/**
 * Replaces this agent by the version of a package. The last step here is that the agent stops; the
 * launcher starts the new version, and the task that asked for it continues there, or, after a roll
 * back, in the former version (agent-versions.ts).
 */
import { untilAborted } from '../../platform/time/until-aborted.ts';
import { findEnd, findRollBack, settledVersion, type VersionEnd } from '../versions/agent-versions.ts';
import type { Trial } from '../versions/trial.ts';
import { compareVersions } from '../versions/version-order.ts';
import type { VersionsFile } from '../versions/versions-file.ts';
import { installFiles, type VerifiedPackage } from './package-archive.ts';
import { InvalidPackageError, PackageRefusedError, RolledBackError } from './package-errors.ts';

export interface OwnPackageDeps {
  versions: VersionsFile;
  /** Undefined unless this process is the trial of a version. */
  trial: Trial | undefined;
  /** Whether the launcher runs this agent. */
  isLaunched: boolean;
  /** Stops this agent, so that the launcher starts the staged version. */
  requestRestart(): void;
}

interface OwnInstallation {
  version: string;
  /** The version that ran before. */
  previous: string;
  changed: boolean;
}

interface OwnRequest {
  taskId: string;
  file: string;
  allowDowngrade: boolean;
  /** Also a version that was rolled back. */
  allowRetry: boolean;
  signal: AbortSignal;
  /** Called when the file of the package is needed no more. */
  onUnpacked(): Promise<void>;
}

const PROGRAM = 'lib/agent/main.ts';

export class OwnPackage {
  readonly #deps: OwnPackageDeps;

  constructor(deps: OwnPackageDeps) {
    this.#deps = deps;
  }

  /** Removes what no version needs, and gives up a version that nobody will start. */
  async start(): Promise<void> {
    const { versions, isLaunched } = this.#deps;
    if (versions.versions.change.name === 'staged' && !isLaunched)
      await versions.step({ type: 'withdraw', reason: 'this agent was started without its launcher' });
    await versions.removeUnused();
  }

  /** The last installation, for the sysinfo. */
  get lastEnd(): VersionEnd | undefined {
    return this.#deps.versions.versions.ends.at(-1);
  }

  /**
   * What came of the task, if an earlier process of this agent has staged its version. Waits until
   * a trial has ended. @throws RolledBackError
   */
  async outcomeOf(taskId: string, signal: AbortSignal): Promise<OwnInstallation | undefined> {
    const { versions, trial } = this.#deps;
    if (trial !== undefined && versions.versions.change.name === 'trial') await untilAborted(trial.confirmed, signal);
    const end = findEnd(versions.versions, taskId);
    if (end === undefined) return undefined;
    const { version, from, outcome, reason = '' } = end;
    if (outcome === 'rolled-back') throw new RolledBackError(version, from, reason);
    return { version, previous: from, changed: true };
  }

  /**
   * Returns only if the version is there already. @throws PackageRefusedError, InvalidPackageError
   */
  async install(verified: VerifiedPackage, request: OwnRequest): Promise<OwnInstallation> {
    const { versions, requestRestart } = this.#deps;
    const { taskId, file, allowDowngrade, allowRetry, signal, onUnpacked } = request;
    const running = settledVersion(versions.versions);
    const order = compareVersions(verified.version, running);
    if (order === 0) return { version: running, previous: running, changed: false };
    this.#checkIsPossible(verified, running);
    if (order < 0 && !allowDowngrade)
      throw new PackageRefusedError(
        'PackageDowngrade',
        `Version ${verified.version} is older than ${running}, which runs; say "downgrade": true if that is meant`,
      );
    const failure = findRollBack(versions.versions, verified.digest);
    if (failure !== undefined && !allowRetry)
      throw new PackageRefusedError(
        'PackageFailedBefore',
        `Version ${verified.version} was rolled back before: ${failure.reason}; say "retry": true to install it again`,
      );
    await installFiles(file, { manifest: verified.manifest, directory: versions.directoryOf(verified), signal });
    // Before the version is staged: after that nothing may fail until the restart.
    await onUnpacked();
    await versions.step({ type: 'stage', next: { version: verified.version, digest: verified.digest }, task: taskId });
    requestRestart();
    return untilAborted(new Promise<never>(() => undefined), signal);
  }

  #checkIsPossible({ manifest }: VerifiedPackage, running: string): void {
    if (!this.#deps.isLaunched)
      throw new PackageRefusedError(
        'NoLauncher',
        `The agent (${running}) was started without its launcher; start lib/agent/launcher/main.ts instead`,
      );
    if (!manifest.files.some(({ path }) => path === PROGRAM))
      throw new InvalidPackageError(`it has no ${PROGRAM}, so it is not an agent`);
  }
}
