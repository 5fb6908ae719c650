/**
 * Packages of other agents, in DATA/packages: `records/NAME.json` says which version is installed,
 * and `files/NAME/VERSION-DIGEST` has its files. A package may have the programs `install` and
 * `uninstall` at its top. They run only if the agent's configuration allows it, with their
 * directory as working directory. If the agent dies meanwhile, they run again, so they must be able
 * to.
 */
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { lstatIfAny } from '../containers/root/lstat.ts';
import { type RecordFiles, recordFiles } from '../records/record-files.ts';
import type { InstalledVersion } from '../versions/agent-versions.ts';
import { compareVersions } from '../versions/version-order.ts';
import type { PackageManifest } from './manifest.ts';
import { installFiles, type VerifiedPackage } from './package-archive.ts';
import { PackageRefusedError } from './package-errors.ts';
import { runPackageScript, type ScriptCaller, type ScriptName } from './package-script.ts';

export interface InstalledPackage extends InstalledVersion {
  name: string;
}

/** `version` at its top would be that of the record's format. */
interface PackageRecord {
  name: string;
  installed: InstalledVersion;
}

interface OtherPackagesDeps {
  /** DATA/packages. */
  directory: string;
  /** Whether packages may run their programs. */
  allowScripts: boolean;
  clock: Clock;
  log: Logger;
}

interface InstallRequest extends ScriptCaller {
  file: string;
  allowDowngrade: boolean;
}

const SCRIPTS = ['install', 'uninstall'] as const;
const DIGEST_CHARS = 16;
const MAX_PACKAGES = 200;

export class OtherPackages {
  readonly #deps: OtherPackagesDeps;
  readonly #records: RecordFiles<PackageRecord>;
  readonly #files: string;
  readonly #installed = new Map<string, InstalledPackage>();

  constructor(deps: OtherPackagesDeps) {
    this.#deps = deps;
    this.#records = recordFiles<PackageRecord>(join(deps.directory, 'records'), ({ name }) => name);
    this.#files = join(deps.directory, 'files');
  }

  /** Removes what no record names. While a record cannot be read, nothing is removed. */
  async start(): Promise<void> {
    await mkdir(this.#files, { recursive: true, mode: 0o700 });
    const { records, damaged } = await this.#records.load();
    for (const { name, installed } of records) this.#installed.set(name, { name, ...installed });
    for (const { id, reason } of damaged)
      this.#deps.log.error({ package: id, reason }, 'package: its record cannot be read; install the package again');
    if (damaged.length > 0) return;
    for (const name of await readdir(this.#files)) await this.#removeFormer(name);
  }

  list(): InstalledPackage[] {
    return [...this.#installed.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
  }

  /** `previous` is the version that was installed before; it may be the same one, built again. */
  async install(
    verified: VerifiedPackage,
    request: InstallRequest,
  ): Promise<{ previous: string | null; changed: boolean }> {
    const { manifest, version, digest } = verified;
    const { name } = manifest;
    const before = this.#installed.get(name);
    const previous = before?.version ?? null;
    if (before?.digest === digest) return { previous, changed: false };
    this.#check(verified, before, request);
    const directory = this.#directoryOf({ name, version, digest });
    await mkdir(join(this.#files, name), { recursive: true, mode: 0o700 });
    await installFiles(request.file, { manifest, directory, signal: request.signal });
    try {
      if (hasScript(manifest, 'install')) await this.#run('install', { name, version, digest }, request);
    } catch (error) {
      await rm(directory, { recursive: true, force: true });
      throw error;
    }
    await this.#records.write({ name, installed: { version, digest } });
    this.#installed.set(name, { name, version, digest });
    await this.#removeFormer(name);
    return { previous, changed: true };
  }

  /** @returns whether it was there */
  async uninstall(name: string, caller: ScriptCaller): Promise<boolean> {
    const installed = this.#installed.get(name);
    if (installed === undefined) return false;
    if ((await lstatIfAny(join(this.#directoryOf(installed), 'uninstall')))?.isFile()) {
      this.#checkScripts(name, 'uninstall');
      await this.#run('uninstall', installed, caller);
    }
    await this.#records.remove(name);
    this.#installed.delete(name);
    await this.#removeFormer(name);
    return true;
  }

  #check({ manifest, version }: VerifiedPackage, before: InstalledPackage | undefined, request: InstallRequest): void {
    if (before === undefined && this.#installed.size >= MAX_PACKAGES)
      throw new PackageRefusedError('TooManyPackages', `This server has ${MAX_PACKAGES} packages; uninstall some`);
    if (before !== undefined && compareVersions(version, before.version) < 0 && !request.allowDowngrade)
      throw new PackageRefusedError(
        'PackageDowngrade',
        `Version ${version} of ${before.name} is older than ${before.version}; say "downgrade": true if that is meant`,
      );
    for (const script of SCRIPTS) if (hasScript(manifest, script)) this.#checkScripts(manifest.name, script);
  }

  #checkScripts(name: string, script: ScriptName): void {
    if (this.#deps.allowScripts) return;
    throw new PackageRefusedError(
      'PackageScriptsNotAllowed',
      `${name} has a program ${script}, and this agent was started without --package-scripts`,
    );
  }

  #run(script: ScriptName, installed: InstalledPackage, caller: ScriptCaller): Promise<void> {
    const { name, version } = installed;
    return runPackageScript(
      { script, name, version, directory: this.#directoryOf(installed) },
      caller,
      this.#deps.clock,
    );
  }

  /** Keeps the files of the installed version. */
  async #removeFormer(name: string): Promise<void> {
    const installed = this.#installed.get(name);
    const folder = join(this.#files, name);
    if (installed === undefined) return rm(folder, { recursive: true, force: true });
    for (const version of await readdir(folder)) {
      const path = join(folder, version);
      if (path !== this.#directoryOf(installed)) await rm(path, { recursive: true, force: true });
    }
  }

  #directoryOf({ name, version, digest }: InstalledPackage): string {
    return join(this.#files, name, `${version}-${digest.slice(0, DIGEST_CHARS)}`);
  }
}

const hasScript = ({ files }: PackageManifest, script: ScriptName): boolean =>
  files.some(({ path }) => path === script);
