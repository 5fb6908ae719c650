/**
 * The files of a running command: its script, and the file that a push job brings. They lie in the
 * agent's own directory. Those of a command that runs as another user lie in a directory of their
 * own among the temporary files, because that user cannot enter the agent's: root owns the
 * directory, so nobody can replace them, and the user alone may read them. A link in the agent's
 * directory leads there, by which the next agent removes what a killed one has left.
 */
import { constants } from 'node:fs';
import { chmod, chown, mkdtemp, open, readdir, readlink, rmdir, symlink, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Command } from './machine.ts';
import type { Account } from './run-as.ts';

export interface CommandFiles {
  script: string;
  file: string | undefined;
  remove(): Promise<void>;
}

const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
const WRITABLE_BY_OTHERS = 0o022;
const LINK = '.elsewhere';
const SCRIPT = 'script';
const FILE = 'file';

interface Place {
  /** Only the agent may read it. */
  directory: string;
  /** Names the command; unique among running ones. */
  id: string;
  account: Account | undefined;
}

export async function writeCommandFiles(command: Command, place: Place): Promise<CommandFiles> {
  const files = place.account === undefined ? ownFiles(place) : await filesElsewhere(place);
  const { script, file } = files;
  try {
    await writeFor(place.account, script, { contents: command.script, mode: 0o700 });
    if (command.file !== undefined) await writeFor(place.account, file, { contents: command.file, mode: 0o600 });
  } catch (error) {
    await files.remove();
    throw error;
  }
  return { ...files, file: command.file === undefined ? undefined : file };
}

/** Removes what the commands of a killed agent have outside its directory. */
export async function removeLeftFiles(directory: string): Promise<void> {
  const names = await readdir(directory).catch(() => []);
  for (const name of names.filter((one) => one.endsWith(LINK))) {
    const link = join(directory, name);
    await removeElsewhere(await readlink(link), link).catch(() => undefined);
  }
}

type Paths = CommandFiles & { file: string };

function ownFiles({ directory, id }: Place): Paths {
  const paths = { script: join(directory, id), file: join(directory, `${id}.${FILE}`) };
  return { ...paths, remove: () => removeAll(Object.values(paths)) };
}

async function filesElsewhere({ directory, id }: Place): Promise<Paths> {
  const elsewhere = await mkdtemp(join(tmpdir(), 'cn-agent-'));
  const link = join(directory, `${id}${LINK}`);
  await symlink(elsewhere, link);
  await chmod(elsewhere, 0o711);
  return {
    script: join(elsewhere, SCRIPT),
    file: join(elsewhere, FILE),
    remove: () => removeElsewhere(elsewhere, link),
  };
}

async function removeElsewhere(elsewhere: string, link: string): Promise<void> {
  await emptyOwn(elsewhere);
  // Fails for a link, and for a directory that is not empty.
  await rmdir(elsewhere).catch(() => undefined);
  await removeAll([link]);
}

/**
 * A restart or a cron job may have removed this directory from among the temporary files, and then
 * any user may have made a directory or a link with its name. So files are deleted only in a
 * directory that the agent owns and in which nobody else can write, and only in the directory that
 * was checked, even if its name leads elsewhere by then.
 */
async function emptyOwn(path: string): Promise<void> {
  const directory = await open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW).catch(() => undefined);
  if (directory === undefined) return;
  try {
    const { uid, mode } = await directory.stat();
    if (uid !== process.geteuid?.() || (mode & WRITABLE_BY_OTHERS) !== 0) return;
    await removeAll([SCRIPT, FILE].map((name) => join(`/proc/self/fd/${directory.fd}`, name)));
  } finally {
    await directory.close();
  }
}

async function removeAll(paths: readonly string[]): Promise<void> {
  for (const path of paths) await unlink(path).catch(() => undefined);
}

async function writeFor(
  account: Account | undefined,
  path: string,
  { contents, mode }: { contents: string | Buffer; mode: number },
): Promise<void> {
  await writeFile(path, contents, { mode });
  if (account !== undefined) await chown(path, account.uid, account.gid);
}
