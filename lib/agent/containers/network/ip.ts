/** Runs `ip` of iproute2, on the machine or in the network namespace of a process. */
import { spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import type { Clock } from '../../../platform/clock.ts';
import { executablePath } from '../../machine/run-as.ts';
import { ContainerError } from '../container-errors.ts';

interface IpCommands {
  /** As arguments of `ip`, one command after the other; the first that fails ends it. */
  lines: readonly (readonly string[])[];
  /** In the network namespace of this process; on the machine if absent. */
  pid?: number;
  /** Carries out the other commands also if one fails. */
  force?: boolean;
}

interface IpEnd {
  isDone: boolean;
  stderr: string;
  stdout: string;
}

export interface NetworkLink {
  ifname: string;
  mtu: number;
  linkinfo?: { info_kind?: string };
}

const WITHIN_MS = 10_000;
const MAX_OUTPUT_CHARS = 256 * 1024;
/** Debian keeps programs for root off the PATH of others. */
const MORE_PLACES = '/usr/sbin:/sbin';

/** @throws ContainerError with what `ip` says */
export async function runIp(clock: Clock, commands: IpCommands): Promise<void> {
  const { isDone, stderr } = await batch(clock, commands);
  if (!isDone) throw failed(stderr);
}

/** Deletes what exists of these links. @throws ContainerError if one cannot be deleted */
export async function deleteLinks(clock: Clock, names: readonly string[]): Promise<void> {
  const lines = names.map((name) => ['link', 'delete', 'dev', name]);
  const { isDone, stderr } = await batch(clock, { lines, force: true });
  if (isDone) return;
  const others = stderr.split('\n').filter((line) => !/^(Cannot find device .*|Command failed -:\d+)?$/.test(line));
  if (others.length > 0) throw failed(others.join('\n'));
}

/** Undefined if there is no such link. */
export async function findLink(clock: Clock, name: string): Promise<NetworkLink | undefined> {
  const { isDone, stdout, stderr } = await run(clock, ['ip', '-json', '-details', 'link', 'show', 'dev', name], '');
  if (isDone) return (JSON.parse(stdout) as NetworkLink[]).find(({ ifname }) => ifname === name);
  if (stderr.includes('does not exist')) return undefined;
  throw failed(stderr);
}

/** No argument holds white space or quotes: they are names, numbers and addresses that were checked. */
function batch(clock: Clock, { lines, pid, force }: IpCommands): Promise<IpEnd> {
  const enter = pid === undefined ? [] : ['nsenter', `--net=/proc/${pid}/ns/net`];
  const options = force === true ? ['-force'] : [];
  const text = lines.map((line) => `${line.join(' ')}\n`).join('');
  return run(clock, [...enter, 'ip', ...options, '-batch', '-'], text);
}

function run(clock: Clock, [file = '', ...args]: string[], input: string): Promise<IpEnd> {
  return new Promise((resolve) => {
    const PATH = `${executablePath(process.env)}:${MORE_PLACES}`;
    const child = spawn(file, args, { cwd: '/', env: { PATH, LC_ALL: 'C' }, stdio: 'pipe' });
    const late = clock.after(WITHIN_MS, () => {
      end({ isDone: false, stdout: '', stderr: `${file} did not end within ${WITHIN_MS / 1000} s` });
      child.kill('SIGKILL');
    });
    const end = (one: IpEnd) => {
      late.cancel();
      resolve(one);
    };
    const [stdout, stderr] = [collected(child.stdout), collected(child.stderr)];
    child.on('error', (error: NodeJS.ErrnoException) => {
      const reason = error.code === 'ENOENT' ? `${file} is not installed; install ${packageOf(file)}` : error.message;
      end({ isDone: false, stdout: '', stderr: reason });
    });
    child.on('close', (code) => end({ isDone: code === 0, stdout: stdout.text, stderr: stderr.text.trim() }));
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
  });
}

const packageOf = (file: string): string => (file === 'ip' ? 'the package iproute2' : 'the package util-linux');

/** Its `text` grows to a limit while the stream is read. */
function collected(stream: Readable): { text: string } {
  const read = { text: '' };
  stream.setEncoding('utf8');
  stream.on('data', (chunk: string) => {
    read.text = (read.text + chunk).slice(0, MAX_OUTPUT_CHARS);
  });
  return read;
}

function failed(said: string): ContainerError {
  if (/Operation not permitted|Permission denied/.test(said))
    return new ContainerError(
      'This agent may not set up network interfaces here; run it as root with CAP_NET_ADMIN, or ask for no nics',
    );
  const [reason = 'it does not say why'] = said.split('\n').filter((line) => line !== '');
  return new ContainerError(`The network cannot be set up: ${reason.slice(0, 300)}`);
}
