/**
 * What a copy runs at the other end, of `cnapi cp` or `docker-copy`: with sh, the usual small
 * programs, tar, and /proc. Works with those of GNU and of BusyBox. Paths are arguments, so nothing
 * in them is read by the shell.
 *
 * Other users of that machine may own the directories on the way to the target, or in it, and
 * change them at any time. So RECEIVE follows a symbolic link only on the way to the target, and
 * only where nobody but root and its own user can change what the path leads to. It enters a
 * directory, and then compares it with what it has found before. What arrives is written into a new
 * directory of its own, which only it may enter, and which is on the file system of the target.
 * When all of it has arrived it is renamed into the target, which descriptor 9 holds. No link is
 * followed then.
 */
import { readFileSync } from 'node:fs';

const read = (name: string): string => readFileSync(new URL(name, import.meta.url), 'utf8');

export const RECEIVE = read('receive.sh');
export const SEND_FILE = read('send-file.sh');
export const SEND_TREE = read('send-tree.sh');
export const DOCKER_COPY = `${read('docker-copy.sh')}${RECEIVE}`;

/**
 * What the archive of a tree contains: the tree, and at the end a file. An archive without it is a
 * part of one.
 */
export const ARCHIVED_TREE = 'tree';
export const ARCHIVE_END = 'end';

/** The exit code of SEND_TREE when all was sent, but something has changed meanwhile. */
export const SENT_CHANGED = 3;

/**
 * How the head of DOCKER_COPY begins when it has found nothing to copy: with a code and a sentence.
 */
export const NOT_FOUND_HEAD = 'not-found';
