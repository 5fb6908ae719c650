/** Runs `ip` of iproute2, on the machine or in the network namespace of a process. */
import { executablePath } from '../../machine/run-as.ts';
import { ContainerError } from '../container-errors.ts';
import { findProgram, runToEnd } from '../linux/programs.ts';

interface IpCommands {
  /** Arguments of `ip`, one list for each command; the first command that fails ends the batch. */
  lines: readonly (readonly string[])[];
  /** Runs the commands in the network namespace of this process; on the machine if absent. */
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
/**
 * `nsenter` looks for `ip` there, because Debian keeps programs for root off the PATH of others.
 */
const MORE_PLACES = '/usr/sbin:/sbin';

/** @throws ContainerError with what `ip` says */
export async function runIp(commands: IpCommands): Promise<void> {
  const { isDone, stderr } = await batch(commands);
  if (!isDone) throw failed(stderr);
}

/** Deletes what exists of these links. @throws ContainerError if one cannot be deleted */
export async function deleteLinks(names: readonly string[]): Promise<void> {
  const lines = names.map((name) => ['link', 'delete', 'dev', name]);
  const { isDone, stderr } = await batch({ lines, force: true });
  if (isDone) return;
  const others = stderr.split('\n').filter((line) => !/^(Cannot find device .*|Command failed -:\d+)?$/.test(line));
  if (others.length > 0) throw failed(others.join('\n'));
}

/** Undefined if there is no such link. */
export async function findLink(name: string): Promise<NetworkLink | undefined> {
  const { isDone, stdout, stderr } = await run(['ip', '-json', '-details', 'link', 'show', 'dev', name], '');
  if (isDone) return (JSON.parse(stdout) as NetworkLink[]).find(({ ifname }) => ifname === name);
  if (stderr.includes('does not exist')) return undefined;
  throw failed(stderr);
}

/**
 * No argument holds white space or quotes: they are names, numbers and addresses that were checked.
 */
function batch({ lines, pid, force }: IpCommands): Promise<IpEnd> {
  const enter = pid === undefined ? [] : ['nsenter', `--net=/proc/${pid}/ns/net`];
  const options = force === true ? ['-force'] : [];
  const text = lines.map((line) => `${line.join(' ')}\n`).join('');
  return run([...enter, 'ip', ...options, '-batch', '-'], text);
}

async function run([name = '', ...args]: string[], input: string): Promise<IpEnd> {
  const file = await findProgram(name);
  if (file === undefined)
    return { isDone: false, stdout: '', stderr: `${name} is not installed; install ${packageOf(name)}` };
  const env = { PATH: `${executablePath(process.env)}:${MORE_PLACES}`, LC_ALL: 'C' };
  const { exitCode, stdout, stderr } = await runToEnd(file, args, {
    timeoutMs: WITHIN_MS,
    env,
    input: [Buffer.from(input)],
  });
  return { isDone: exitCode === 0, stdout, stderr: stderr.trim() };
}

const packageOf = (name: string): string => (name === 'ip' ? 'the package iproute2' : 'the package util-linux');

function failed(said: string): ContainerError {
  if (/Operation not permitted|Permission denied/.test(said))
    return new ContainerError(
      'This agent may not set up network interfaces here; run it as root with CAP_NET_ADMIN, or ask for no nics',
    );
  const [reason = 'it does not say why'] = said.split('\n').filter((line) => line !== '');
  return new ContainerError(`The network cannot be set up: ${reason.slice(0, 300)}`);
}
