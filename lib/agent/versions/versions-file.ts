/**
 * The versions of the agent's program on disk, in DATA/agent-versions:
 *
 *     record/agent.json           which one runs; replaced as a whole
 *     files/VERSION-DIGEST/       an unpacked version; complete as soon as it has this name
 *     files/new-TASK/             one that is being unpacked
 *
 * There is no link to the current one: a link and a record could disagree after a loss of power.
 * Used by the launcher and the agent.
 */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type RecordFiles, recordFiles } from '../records/record-files.ts';
import {
  type AgentVersions,
  type InstalledVersion,
  newAgentVersions,
  stepVersions,
  type VersionEvent,
  versionsInUse,
} from './agent-versions.ts';

/** The file of a version that is started, in its directory. */
const PROGRAM = 'lib/agent/main.ts';
const DIGEST_CHARS = 16;
const ID = 'agent';

type StoredVersions = AgentVersions & { id: string };

export class VersionsFile {
  readonly files: string;
  readonly #records: RecordFiles<StoredVersions>;
  #versions: AgentVersions;

  private constructor(directory: string, base: string) {
    this.files = join(directory, 'files');
    this.#records = recordFiles<StoredVersions>(join(directory, 'record'), ({ id }) => id);
    this.#versions = newAgentVersions(base);
  }

  /**
   * @param base the version of the installation that the launcher is part of, for the first record
   * @throws Error if the record cannot be read: then nobody knows what has to run
   */
  static async open(data: string, base: string): Promise<VersionsFile> {
    const opened = new VersionsFile(join(data, 'agent-versions'), base);
    await mkdir(opened.files, { recursive: true, mode: 0o700 });
    await opened.read();
    return opened;
  }

  get versions(): AgentVersions {
    return this.#versions;
  }

  /** What the other program has written. */
  async read(): Promise<AgentVersions> {
    const { records, damaged } = await this.#records.load();
    const [broken] = damaged;
    if (broken !== undefined)
      throw new Error(`The record of the agent's versions cannot be read (${broken.reason}); repair or remove it`);
    const [found] = records;
    if (found !== undefined) {
      const { id: _, ...versions } = found;
      this.#versions = versions;
    }
    return this.#versions;
  }

  /** Resolves when the step survives a crash of the machine. @throws VersionStepError */
  async step(event: VersionEvent): Promise<AgentVersions> {
    const next = stepVersions(this.#versions, event);
    if (next === this.#versions) return next;
    await this.#records.write({ ...next, id: ID });
    this.#versions = next;
    return next;
  }

  directoryOf({ version, digest }: InstalledVersion): string {
    return join(this.files, `${version}-${digest.slice(0, DIGEST_CHARS)}`);
  }

  programOf(installed: InstalledVersion): string {
    return join(this.directoryOf(installed), PROGRAM);
  }

  isInstalled(installed: InstalledVersion): boolean {
    return existsSync(this.programOf(installed));
  }

  /** Removes the versions that neither run nor will. Nothing may be unpacked meanwhile. */
  async removeUnused(): Promise<void> {
    const kept = new Set(versionsInUse(this.#versions).map((one) => this.directoryOf(one)));
    for (const name of await readdir(this.files)) {
      const path = join(this.files, name);
      if (!kept.has(path)) await rm(path, { recursive: true, force: true });
    }
  }
}
