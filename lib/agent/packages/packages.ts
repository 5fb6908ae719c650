/**
 * Installs and removes signed packages on this server: new versions of this agent (own-package.ts),
 * and other agents (other-packages.ts). Used by the tasks `agent_install` and `agents_uninstall`,
 * which run one at a time. Nothing is unpacked before its signature was verified.
 */
import type { KeyObject } from 'node:crypto';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { CnapiError, messageOf } from '../../platform/errors.ts';
import { HttpClient } from '../../platform/http-client/http-client.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { AllowedSources } from '../images/allowed-sources.ts';
import { noteOf } from '../images/download.ts';
import type { VersionEnd } from '../versions/agent-versions.ts';
import { compareVersions } from '../versions/version-order.ts';
import { OWN_PACKAGE } from './manifest.ts';
import { type InstalledPackage, OtherPackages } from './other-packages.ts';
import { OwnPackage, type OwnPackageDeps } from './own-package.ts';
import { type VerifiedPackage, verifyPackage } from './package-archive.ts';
import { PackageRefusedError, TooManyStartsError, toPackageError } from './package-errors.ts';
import type { ScriptCaller } from './package-script.ts';
import { fetchPackage } from './package-source.ts';

/** The part of the agent's configuration that concerns packages. */
export interface PackageOptions extends AllowedSources {
  /** Packages must be signed with one of these keys. */
  keys: readonly KeyObject[];
  allowScripts: boolean;
}

interface PackagesDeps extends PackageOptions, OwnPackageDeps {
  clock: Clock;
  log: Logger;
  /** The agent's data directory. */
  data: string;
}

interface PackageInstallRequest extends ScriptCaller {
  /** How often the task has been started, in this process and in those before it. */
  starts: number;
  source: string;
  /** If given, the package must have this name. */
  name?: string | undefined;
  allowDowngrade: boolean;
  /** Also a version of this agent that was rolled back. */
  allowRetry: boolean;
  onProgress(bytes: number, total: number | undefined): void;
}

interface PackageInstallation {
  name: string;
  version: string;
  previous: string | null;
  changed: boolean;
}

/** Each name is in one of the lists, unless the signal came before its end. */
export interface PackageRemovals {
  removed: string[];
  absent: string[];
  failed: { name: string; code: string; message: string }[];
}

/** An `install` program that ends the agent would otherwise run for ever. */
const MAX_STARTS = 3;

export class Packages {
  readonly #deps: PackagesDeps;
  readonly #client: HttpClient;
  readonly #own: OwnPackage;
  readonly #others: OtherPackages;
  readonly #incoming: string;
  readonly #listeners = new Set<() => void>();

  constructor(deps: PackagesDeps) {
    this.#deps = deps;
    this.#client = new HttpClient({ clock: deps.clock });
    this.#own = new OwnPackage(deps);
    const directory = join(deps.data, 'packages');
    this.#others = new OtherPackages({ directory, allowScripts: deps.allowScripts, clock: deps.clock, log: deps.log });
    this.#incoming = join(directory, 'incoming');
  }

  async start(): Promise<void> {
    await mkdir(this.#incoming, { recursive: true, mode: 0o700 });
    await this.#own.start();
    await this.#others.start();
    void this.#deps.trial?.confirmed.then(() => this.#changed());
  }

  async stop(): Promise<void> {
    this.#client.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** Other agents that are installed. */
  list(): InstalledPackage[] {
    return this.#others.list();
  }

  /** How the last installation of this agent ended. */
  get lastUpdate(): VersionEnd | undefined {
    return this.#own.lastEnd;
  }

  /**
   * Calls it when the installed packages have changed, or the trial of this agent has ended well.
   * Returns what ends the calls.
   */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of this.#listeners) listener();
  }

  /**
   * Can be repeated under the same task, in this process and in the next. For a new version of this
   * agent it does not return: this process ends. @throws a CnapiError of package-errors.ts
   */
  async install(request: PackageInstallRequest): Promise<PackageInstallation> {
    const { taskId, signal } = request;
    const before = await this.#own.outcomeOf(taskId, signal);
    if (before !== undefined) return { name: OWN_PACKAGE, ...before };
    const file = join(this.#incoming, taskId);
    try {
      if (request.starts > MAX_STARTS) throw new TooManyStartsError();
      await this.#removeOthers(taskId);
      await fetchPackage({ ...request, file }, { ...this.#deps, allowed: this.#deps, client: this.#client });
      const verified = await verifyPackage(file, { keys: this.#deps.keys, signal });
      return await this.#installFile(verified, { ...request, file });
    } catch (error) {
      // The next process continues the download.
      if (!signal.aborted) await this.#removeFile(file);
      throw toPackageError(error);
    }
  }

  /**
   * Goes on with the next name after a failure, and ends at the signal. @throws PackageRefusedError
   * for the name of this agent
   */
  async uninstall(names: readonly string[], caller: ScriptCaller): Promise<PackageRemovals> {
    if (names.includes(OWN_PACKAGE))
      throw new PackageRefusedError('OwnAgent', `${OWN_PACKAGE} is this agent, which cannot remove itself`);
    const removals: PackageRemovals = { removed: [], absent: [], failed: [] };
    for (const name of new Set(names)) {
      if (caller.signal.aborted) break;
      await this.#uninstallOne(name, caller, removals);
    }
    return removals;
  }

  async #uninstallOne(name: string, caller: ScriptCaller, { removed, absent, failed }: PackageRemovals): Promise<void> {
    try {
      const wasThere = await this.#others.uninstall(name, caller);
      (wasThere ? removed : absent).push(name);
      if (!wasThere) return;
      this.#deps.log.info({ package: name }, 'package: removed');
      this.#changed();
    } catch (error) {
      // The task ends with the reason of the signal.
      if (caller.signal.aborted) return;
      const code = error instanceof CnapiError ? error.code : 'PackageNotRemoved';
      failed.push({ name, code, message: messageOf(error) });
    }
  }

  async #installFile(
    verified: VerifiedPackage,
    request: PackageInstallRequest & { file: string },
  ): Promise<PackageInstallation> {
    const { name, node } = verified.manifest;
    if (request.name !== undefined && request.name !== name)
      throw new PackageRefusedError('PackageMismatch', `The package is ${name}, and not ${request.name}`);
    if (node !== undefined && compareVersions(process.versions.node, node) < 0)
      throw new PackageRefusedError('NodeTooOld', `The package needs Node ${node}; here is ${process.versions.node}`);
    if (name === OWN_PACKAGE) {
      const installed = await this.#own.install(verified, {
        ...request,
        onUnpacked: () => this.#removeFile(request.file),
      });
      await this.#removeFile(request.file);
      return { name, ...installed };
    }
    const { previous, changed } = await this.#others.install(verified, request);
    await this.#removeFile(request.file);
    const { version } = verified;
    if (changed) {
      this.#deps.log.info({ package: name, version, previous }, 'package: installed');
      this.#changed();
    }
    return { name, version, previous, changed };
  }

  async #removeFile(file: string): Promise<void> {
    await rm(file, { force: true });
    await rm(noteOf(file), { force: true });
  }

  /** Installations run one at a time, so what other tasks have left is not needed. */
  async #removeOthers(taskId: string): Promise<void> {
    for (const name of await readdir(this.#incoming))
      if (!name.startsWith(taskId)) await rm(join(this.#incoming, name), { force: true });
  }
}
