/**
 * A small image in two layers, from the static busybox of the distribution: the lower one is a
 * whole root file system, the upper one changes it and removes /etc/motd and what was in /opt.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { promisify } from 'node:util';
import { programFile } from './debian-programs.ts';
import { gzipArchiveOf, type TestEntry } from './layer-archive.ts';

/** A layer archive: tar with gzip. @throws when there is no busybox */
export async function busyboxLayer(): Promise<Buffer> {
  const busybox = programFile('busybox');
  const { stdout } = await promisify(execFile)(busybox, ['--list']);
  const names = stdout.split('\n').filter((name) => /^[\w[-]+$/.test(name) && name !== 'busybox');
  const links = names.map((name): TestEntry => ({ path: `bin/${name}`, type: 'SymbolicLink', target: 'busybox' }));
  const program = { path: 'bin/busybox', contents: await readFile(busybox), mode: 0o755 };
  return gzipArchiveOf([{ path: './' }, { path: 'bin/' }, program, ...links, ...FILES]);
}

/** On top of `busyboxLayer`. */
export const upperLayer = (): Buffer =>
  gzipArchiveOf([
    { path: 'etc/' },
    { path: 'etc/.wh.motd' },
    { path: 'etc/release', contents: 'upper\n' },
    { path: 'opt/' },
    { path: 'opt/.wh..wh..opq' },
    { path: 'opt/new', contents: 'new\n' },
  ]);

const FILES: TestEntry[] = [
  { path: 'etc/' },
  { path: 'etc/passwd', contents: 'root:x:0:0:root:/root:/bin/sh\nguest:x:1000:1000:guest:/home/guest:/bin/sh\n' },
  { path: 'etc/group', contents: 'root:x:0:\nguest:x:1000:\n' },
  { path: 'etc/motd', contents: 'lower\n' },
  { path: 'etc/release', contents: 'lower\n' },
  { path: 'opt/' },
  { path: 'opt/old', contents: 'old\n' },
  { path: 'root/', mode: 0o700 },
  { path: 'home/' },
  { path: 'home/guest/', uid: 1000, gid: 1000 },
  { path: 'tmp/', mode: 0o1777 },
  { path: 'var/' },
];
