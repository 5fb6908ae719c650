/**
 * Servers from the distribution's packages for the failover tests: where their programs are, under
 * which user they run, and where they store data. If a package is missing, the test is skipped with
 * the reason. With CNAPI_TEST_NO_SKIP=1 (continuous integration, which installs the packages) it
 * runs and fails instead.
 */
import { chownSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { isExecutable } from '../../tools/processes/executable.ts';
import { Program } from '../../tools/processes/program.ts';
import { type Identity, ownedTemporaryFolder, unprivilegedIdentity } from './postgres-server.ts';

const POSTGRES = '/usr/lib/postgresql';
const places = [...(process.env.PATH ?? '').split(path.delimiter), '/usr/sbin', ...postgresPlaces()];

/** Why tests that need all of these programs are skipped; false when they can run. */
export function lacks(...programs: readonly string[]): string | false {
  const lacking = programs.filter((name) => find(name) === undefined);
  if (lacking.length === 0 || process.env.CNAPI_TEST_NO_SKIP === '1') return false;
  return `no ${lacking.join(', ')} here (Debian: postgresql-15, redis-server, pgbouncer, runc, crun, conmon, busybox-static, iproute2, perl-base, zfs-fuse)`;
}

/** @throws when the program is missing */
export function programFile(name: string): string {
  const file = find(name);
  if (file === undefined) throw new Error(`there is no ${name}`);
  return file;
}

/**
 * A folder and processes that may write there: as the user who runs the test, or as `postgres`
 * instead of root.
 */
export class Quarters {
  readonly identity: Identity = unprivilegedIdentity();
  readonly folder = ownedTemporaryFolder(this.identity);
  readonly #programs: Program[] = [];

  program(name: string, file: string, args: readonly string[]): Program {
    const command = { file: programFile(file), args, ...this.identity };
    const program = new Program({ name, command, logFile: path.join(this.folder, `${name}.log`) });
    this.#programs.push(program);
    return program;
  }

  /** Also lets them write this file. */
  owns(file: string): void {
    const { uid, gid = 0 } = this.identity;
    if (uid !== undefined) chownSync(file, uid, gid);
  }

  /** Ends all processes and deletes the folder. */
  async clear(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.kill()));
    rmSync(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Debian keeps these programs off the PATH; newest version first. */
function postgresPlaces(): string[] {
  try {
    const versions = readdirSync(POSTGRES).sort((a, b) => Number(b) - Number(a));
    return versions.map((version) => path.join(POSTGRES, version, 'bin'));
  } catch {
    return [];
  }
}

function find(name: string): string | undefined {
  return places.map((place) => path.join(place, name)).find(isExecutable);
}
