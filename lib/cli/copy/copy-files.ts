/**
 * Copies files between this machine and another one, over a stream. Used by `cnapi cp` and
 * `cnapi vm cp`.
 */
import { constants } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import path from 'node:path';
import { Readable } from 'node:stream';
import { getSystemErrorMessage } from 'node:util';
import { messageOf } from '../../platform/errors.ts';
import { RECEIVE, SEND_FILE, SEND_TREE } from '../../protocol/streams/copy/copy-scripts.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT, RefusedError, UsageError } from '../terminal/command-errors.ts';
import { ArrivingFile } from './arriving-file.ts';
import { packTree } from './pack-tree.ts';
import { discard, EndingSignals, runScript, type StartScript } from './run-script.ts';
import { Staging } from './staging.ts';
import { ArrivingTree } from './unpack-tree.ts';

export interface CopyOptions {
  recursive?: boolean;
}

/** The end of a copy that is not this machine. */
export interface OtherEnd {
  /** `on a server`, for texts. */
  where: string;
  /** What stands for its name there: `SERVER`. */
  word: string;
  /** Finds what the user calls so. @throws UsageError */
  starterOf(context: Context, name: string): Promise<StartScript>;
}

interface Copy {
  isRecursive: boolean;
  other: OtherEnd;
}

/** A path at the other end, as an argument has it. */
interface RemotePath {
  name: string;
  path: string;
}

/**
 * Copies a file, or with `recursive` what a directory holds. One of the two paths is at the other
 * end.
 */
export async function copyFiles(
  context: Context,
  [source, target]: readonly unknown[],
  { recursive: isRecursive = false, other }: CopyOptions & { other: OtherEnd },
): Promise<number> {
  const [from, to] = [remoteIn(source as string, other), remoteIn(target as string, other)];
  if (typeof from === 'string' && typeof to !== 'string')
    return send(context, from, to, { isRecursive, other }).catch(explain(from));
  if (typeof from !== 'string' && typeof to === 'string')
    return receive(context, from, to, { isRecursive, other }).catch(explain(to));
  throw new UsageError(
    `one of the two paths must be ${other.where}, as ${other.word}:PATH, and the other one on this machine`,
  );
}

/** A path of this machine as text. A colon after a slash belongs to the path. */
function remoteIn(text: string, other: OtherEnd): string | RemotePath {
  const [, name, rest] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (name === undefined || rest === undefined) return text;
  if (rest === '') throw new UsageError(`${text} names no path ${other.where}; write ${text}/PATH`);
  return { name, path: rest };
}

async function send(
  context: Context,
  source: string,
  target: RemotePath,
  { isRecursive, other }: Copy,
): Promise<number> {
  const about = await stat(source).catch((error: unknown) => {
    throw new UsageError(`${source} cannot be read: ${messageOf(error)}`);
  });
  if (about.isDirectory() !== isRecursive)
    throw new UsageError(
      isRecursive ? `${source} is not a directory; leave -r out` : `${source} is a directory; give -r`,
    );
  const start = await other.starterOf(context, target.name);
  if (isRecursive) {
    using signals = new EndingSignals();
    const input = Readable.from(packTree(source), { objectMode: false });
    return await runScript(context, start, {
      script: RECEIVE,
      args: ['tree', target.path, '', '', ''],
      input,
      output: discard(),
      signals,
    });
  }
  // Opening a named pipe waits for its writer.
  const file = await open(source, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return await sendFile(context, file, { start, source, target: target.path });
  } finally {
    await file.close();
  }
}

async function sendFile(
  context: Context,
  file: FileHandle,
  { start, source, target }: { start: StartScript; source: string; target: string },
): Promise<number> {
  using signals = new EndingSignals();
  const about = await file.stat();
  if (!about.isFile()) throw new UsageError(`${source} is neither a file nor a directory`);
  const args = [
    'file',
    target,
    path.basename(path.resolve(source)),
    (about.mode & 0o777).toString(8),
    String(about.size),
  ];
  const input =
    about.size === 0 ? Readable.from([]) : file.createReadStream({ start: 0, end: about.size - 1, autoClose: false });
  return await runScript(context, start, { script: RECEIVE, args, input, output: discard(), signals });
}

async function receive(
  context: Context,
  source: RemotePath,
  target: string,
  { isRecursive, other }: Copy,
): Promise<number> {
  const start = await other.starterOf(context, source.name);
  const name = path.posix.basename(source.path);
  if (!isRecursive && (name === '' || name === '.' || name === '..'))
    throw new UsageError(`${source.path} is a directory; give -r`);
  using signals = new EndingSignals();
  await using staging = await Staging.open(target, isRecursive ? { kind: 'tree' } : { kind: 'file', name });
  const output = isRecursive ? new ArrivingTree(staging.place) : new ArrivingFile(staging.place);
  const script = isRecursive ? SEND_TREE : SEND_FILE;
  return await runScript(
    context,
    start,
    { script, args: [source.path], input: undefined, output, signals },
    async (code) => {
      await staging.settle();
      return code === EXIT.ok ? EXIT.ok : EXIT.failed;
    },
  );
}

/**
 * Errors of the file system of this machine, in a sentence. What is named by a descriptor is in
 * `about`.
 */
const explain =
  (about: string) =>
  (error: NodeJS.ErrnoException): never => {
    if (typeof error.errno !== 'number' || error.syscall === undefined) throw error;
    const place = error.path === undefined || error.path.startsWith('/proc/self/') ? about : error.path;
    throw new RefusedError(`${place}: ${getSystemErrorMessage(error.errno)}`, { cause: error });
  };

/** How `cp` copies, for help texts. */
export const COPY_TEXT = `What is copied appears when all of it has arrived, with its mode, and replaces files of the same name. With -r what a directory \
holds is copied into the target. Symbolic links are copied as links. Those that are in the target are replaced, and not followed.

At both ends the copy is written into a new directory in the target, or where the target will be, whose name begins with .cnapi-cp, \
and renamed from there. Where another file system is mounted in the target, copy into it by itself.`;
