/**
 * How a caller finds an `npm start` that runs as the same user on this machine, and its token.
 * While it runs, `npm start` keeps one small file here for each data directory. The file holds the
 * addresses of its instances and the path of the token file. The token is sent to those addresses
 * only. Written by tools/start, read by credentials.ts and the command line.
 */
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { Address } from './address.ts';

interface LocalCnapi {
  /** The supervisor's process. After it has ended, any program may listen at these addresses. */
  pid: number;
  /** URLs such as `http://127.0.0.1:8080`. */
  urls: readonly string[];
  /** Absent where no token is asked for. */
  tokenFile?: string | undefined;
}

/** An `npm start` that runs. */
interface RunningLocal {
  urls: readonly string[];
  /** The data directory; undefined if an earlier version of `npm start` wrote the file. */
  data: string | undefined;
}

const MAX_FILES = 64;
const MAX_FILE_BYTES = 16 * 1024;

const contents = z.object({
  pid: z.int().min(1),
  /** When the process began; absent on systems that do not say it. */
  process: z.string().optional(),
  urls: z.array(z.string()),
  data: z.string().optional(),
  token_file: z.string().optional(),
});

/**
 * Writes the file that announces a running `npm start`; replaces an earlier one.
 * @throws system errors
 */
export function announceLocal(configFolder: string, data: string, { pid, urls, tokenFile }: LocalCnapi): void {
  mkdirSync(folderIn(configFolder), { recursive: true, mode: 0o700 });
  const file = fileOf(configFolder, data);
  const text = JSON.stringify({ pid, process: processIdentity(pid), urls, data, token_file: tokenFile });
  writeFileSync(`${file}.new`, `${text}\n`, { mode: 0o600 });
  renameSync(`${file}.new`, file);
}

/** Does nothing when there is no file. */
export function withdrawLocal(configFolder: string, data: string): void {
  rmSync(fileOf(configFolder, data), { force: true });
}

/**
 * The token file of the `npm start` that listens at the address; undefined when there is none.
 * Reads the folder each time: after a supervisor has ended, another program at its address must not
 * receive the token, however long this process runs. Files that cannot be read or trusted are
 * ignored.
 */
export function localTokenFile(
  configFolder: string,
  { secure, host, port }: Pick<Address, 'secure' | 'host' | 'port'>,
): string | undefined {
  if (secure || host !== '127.0.0.1') return undefined;
  const local = readAll(folderIn(configFolder)).findLast(({ urls }) => urls.includes(`http://${host}:${port}`));
  return local?.token_file;
}

/** Every `npm start` of this user that runs on this machine. */
export function runningLocals(configFolder: string): RunningLocal[] {
  return readAll(folderIn(configFolder)).map(({ urls, data }) => ({ urls, data }));
}

/** Contents of the files whose supervisors run. */
function readAll(folder: string): z.output<typeof contents>[] {
  return namesIn(folder)
    .slice(0, MAX_FILES)
    .flatMap((name) => {
      const local = parse(join(folder, name));
      return local !== undefined && isRunning(local) ? [local] : [];
    });
}

function folderIn(configFolder: string): string {
  return join(configFolder, 'local');
}

function fileOf(configFolder: string, data: string): string {
  return join(folderIn(configFolder), `${createHash('sha256').update(data).digest('hex').slice(0, 16)}.json`);
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
      .filter((name) => name.endsWith('.json'))
      .sort();
  } catch {
    return [];
  }
}

function parse(file: string): z.output<typeof contents> | undefined {
  try {
    const { uid, mode, size } = statSync(file);
    const isOurs = uid === process.getuid?.() && (mode & 0o022) === 0 && size <= MAX_FILE_BYTES;
    return isOurs ? contents.parse(JSON.parse(readFileSync(file, 'utf8'))) : undefined;
  } catch {
    return undefined;
  }
}

/**
 * A pid alone is not enough: the system gives the pid of a process that has ended to another one.
 */
function isRunning({ pid, process: identity }: z.output<typeof contents>): boolean {
  return isAlive(pid) && processIdentity(pid) === identity;
}

/** The boot and the time since then at which the process began; undefined without Linux's /proc. */
function processIdentity(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The command's name is in parentheses and may contain spaces.
    const startTime = stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19];
    return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${startTime}`;
  } catch {
    return undefined;
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
