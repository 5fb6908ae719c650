/**
 * What every root file system must have for the runtime: directories to mount on, and files on
 * which those of the container are mounted. No link of the image is followed. No process of the
 * container runs meanwhile.
 */
import { chmod, lchown, mkdir, unlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ContainerError } from '../container-errors.ts';
import { lstatIfAny } from './lstat.ts';

/** The runtime mounts on these directories; /etc contains the files below. */
const DIRECTORIES = ['proc', 'sys', 'dev', 'etc'];
const FILES = ['etc/hosts', 'etc/hostname', 'etc/resolv.conf'];

/** @param owner id on the machine of the container's root. @throws ContainerError */
export async function makeStandardFiles(root: string, owner: number): Promise<void> {
  for (const name of DIRECTORIES) {
    const found = await lstatIfAny(join(root, name));
    if (found === undefined) await makeDirectory(join(root, name), { mode: 0o755, owner });
    else if (!found.isDirectory()) throw new ContainerError(`/${name} of the image is not a directory; it must be one`);
  }
  // A link is left as it is: nothing is mounted here.
  if ((await lstatIfAny(join(root, 'tmp'))) === undefined)
    await makeDirectory(join(root, 'tmp'), { mode: 0o1777, owner });
  for (const name of FILES) await makeFile(root, { name, owner });
}

async function makeDirectory(path: string, { mode, owner }: { mode: number; owner: number }): Promise<void> {
  await mkdir(path);
  await lchown(path, owner, owner);
  await chmod(path, mode);
}

/** A link is replaced. Images have links to files of a resolver that runs on a whole machine. */
async function makeFile(root: string, { name, owner }: { name: string; owner: number }): Promise<void> {
  const path = join(root, name);
  const found = await lstatIfAny(path);
  if (found?.isFile()) return;
  if (found?.isDirectory()) throw new ContainerError(`The image has a directory at /${name}, where a file must be`);
  if (found !== undefined) await unlink(path);
  await writeFile(path, '', { flag: 'wx', mode: 0o644 });
  await lchown(path, owner, owner);
}
