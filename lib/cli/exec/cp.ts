/** `cnapi cp`: copies files between this machine and a server, over a stream. */
import { spawn } from 'node:child_process';
import { createReadStream, createWriteStream } from 'node:fs';
import { chmod, mkdir, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import { PassThrough, type Readable, Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { Command } from 'commander';
import { messageOf } from '../../platform/errors.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT, RefusedError, UsageError } from '../terminal/usage-error.ts';
import { RECEIVE_FILE, RECEIVE_TREE, SEND_FILE, SEND_TREE } from './copy-scripts.ts';
import { startExec } from './exec-stream.ts';
import { saidOf } from './streamed-exec.ts';

interface Options {
  recursive?: boolean;
}

/** A path on a server, as an argument has it. */
interface RemotePath {
  server: string;
  path: string;
}

/** What one copy runs, and with which input and output. */
interface Copy {
  script: string;
  args: readonly string[];
  input: Readable | undefined;
  output: Writable;
}

const MAX_HEAD_BYTES = 100;

const MORE = `
A path on a server is written SERVER:PATH; SERVER is a uuid, the beginning of one, or a hostname. One of the two paths is on a \
server. A local path with a colon is written ./a:b. A target that is a directory, or ends in /, takes the file under its own name.

A file appears under its name when all of it has arrived, with its mode, and replaces one that is there. With -r what a directory \
holds is copied into the target, by the program tar at both ends; what has arrived before a copy fails stays.

The copy runs as the user of the agent. It is a task (cnapi tasks), whose content is not recorded.
`;

export function cpCommand(runner: CommandRunner): Command {
  const command = new Command('cp')
    .description('Copies a file or a directory from or to a server.')
    .usage('[options] <source> <target>')
    .argument('<source>', 'PATH or SERVER:PATH')
    .argument('<target>', 'SERVER:PATH or PATH')
    .option('-r, --recursive', 'copy what a directory holds')
    .action(runner.action(cp));
  return withExamples(withExplanation(command, MORE), [
    'cnapi cp nginx.conf web-1:/etc/nginx/',
    'cnapi cp web-1:/var/log/syslog .',
    'cnapi cp /srv/site web-1:/srv/site --recursive',
  ]);
}

async function cp(context: Context, [source, target]: readonly unknown[], options: Options): Promise<number> {
  const [from, to] = [remoteIn(source as string), remoteIn(target as string)];
  if (typeof from === 'string' && typeof to !== 'string') return send(context, from, to, options.recursive === true);
  if (typeof from !== 'string' && typeof to === 'string') return receive(context, from, to, options.recursive === true);
  throw new UsageError('one of the two paths must be on a server, as SERVER:PATH, and the other one on this machine');
}

/** A path of this machine as text. A colon after a slash belongs to the path. */
function remoteIn(text: string): string | RemotePath {
  const [, server, rest] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (server === undefined || rest === undefined) return text;
  if (rest === '') throw new UsageError(`${text} names no path on the server; write ${text}/PATH`);
  return { server, path: rest };
}

async function send(context: Context, source: string, target: RemotePath, isRecursive: boolean): Promise<number> {
  const about = await stat(source).catch((error: unknown) => {
    throw new UsageError(`${source} cannot be read: ${messageOf(error)}`);
  });
  if (about.isDirectory() !== isRecursive)
    throw new UsageError(
      isRecursive ? `${source} is not a directory; leave -r out` : `${source} is a directory; give -r`,
    );
  if (isRecursive) {
    const tar = spawn('tar', ['-cf', '-', '-C', source, '.'], { stdio: ['ignore', 'pipe', 'inherit'] });
    const packed = endOf(tar, source);
    const copy = { script: RECEIVE_TREE, args: [target.path], input: tar.stdout, output: nowhere() };
    const [code] = await Promise.all([run(context, target.server, copy), packed]);
    return code;
  }
  if (!about.isFile()) throw new UsageError(`${source} is neither a file nor a directory`);
  const mode = (about.mode & 0o777).toString(8);
  const args = [target.path, path.basename(source), mode, String(about.size)];
  const input = createReadStream(source, { end: Math.max(about.size - 1, 0) });
  return run(context, target.server, { script: RECEIVE_FILE, args, input, output: nowhere() });
}

async function receive(context: Context, source: RemotePath, target: string, isRecursive: boolean): Promise<number> {
  if (isRecursive) {
    await mkdir(target, { recursive: true });
    const tar = spawn('tar', ['-xf', '-', '-C', target, '--no-same-owner'], { stdio: ['pipe', 'inherit', 'inherit'] });
    const unpacked = endOf(tar, target);
    const copy = { script: SEND_TREE, args: [source.path], input: undefined, output: tar.stdin };
    const code = await run(context, source.server, copy).finally(() => tar.stdin.end());
    if (code === EXIT.ok) await unpacked;
    return code;
  }
  const isDirectory = target.endsWith('/') || (await stat(target).catch(() => undefined))?.isDirectory() === true;
  const file = isDirectory ? path.join(target, path.basename(source.path)) : target;
  const part = `${file}.${process.pid}.cnapi-part`;
  const output = createWriteStream(part, { mode: 0o600 });
  const arrived = new ArrivingFile(output);
  try {
    const code = await run(context, source.server, {
      script: SEND_FILE,
      args: [source.path],
      input: undefined,
      output: arrived,
    });
    arrived.end();
    await finished(arrived);
    output.end();
    await finished(output);
    if (code !== EXIT.ok) return code;
    const { mode, bytes } = arrived;
    if (mode === undefined || bytes !== output.bytesWritten)
      throw new RefusedError(`${file} was not written: only a part of ${source.path} arrived`);
    await chmod(part, mode);
    await rename(part, file);
    return EXIT.ok;
  } finally {
    output.destroy();
    await rm(part, { force: true });
  }
}

/** Returns the exit code. */
async function run(context: Context, server: string, { script, args, input, output }: Copy): Promise<number> {
  const { uuid: serverUuid } = await findServer(context.client, server);
  const { stderr } = context.streams;
  const stopped = Promise.withResolvers<number>();
  const params = { script, args: [...args] };
  const running = await startExec(context, { serverUuid, params }, { input, stdout: output, stderr });
  const stop = onEndingSignal((signal) => {
    running.close();
    stopped.resolve(exitCodeOfSignal(signal));
  });
  try {
    const end = await Promise.race([running.ended, stopped.promise]);
    if (typeof end === 'number') return end;
    const { message, exitCode } = saidOf(end);
    if (message !== undefined) context.output.complain(`${message}; see cnapi task ${running.id.slice(0, 8)}`);
    return exitCode;
  } finally {
    input?.destroy();
    running.close();
    stop();
  }
}

/** Takes the line that SEND_FILE writes first; the rest is the file. */
class ArrivingFile extends Writable {
  mode: number | undefined;
  bytes: number | undefined;
  #head = Buffer.alloc(0);
  readonly #file: Writable;

  constructor(file: Writable) {
    super();
    this.#file = file;
  }

  override _write(piece: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    if (this.mode !== undefined) return void this.#file.write(piece, done);
    this.#head = Buffer.concat([this.#head, piece]);
    const end = this.#head.indexOf('\n');
    if (end < 0 && this.#head.length <= MAX_HEAD_BYTES) return done();
    const [, mode, bytes] = /^([0-7]{1,4}) (\d{1,15})$/.exec(this.#head.subarray(0, Math.max(end, 0)).toString()) ?? [];
    if (mode === undefined) return done(new RefusedError('the server sent something other than a file'));
    this.mode = Number.parseInt(mode, 8) & 0o777;
    this.bytes = Number(bytes);
    this.#file.write(this.#head.subarray(end + 1), done);
  }
}

const nowhere = (): Writable => new PassThrough().resume();

/** @throws RefusedError if this machine's tar failed */
async function endOf(tar: ReturnType<typeof spawn>, about: string): Promise<void> {
  const code = await new Promise<number | string>((resolve) => {
    tar.once('error', (error) => resolve(error.message));
    tar.once('close', (exitCode, signal) => resolve(exitCode ?? signal ?? 'an unknown reason'));
  });
  if (code !== 0) throw new RefusedError(`tar of ${about} ended with ${code}`);
}
