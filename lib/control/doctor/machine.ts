/** Checks this machine: its Node, its clock, file descriptors and memory. */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { promisify } from 'node:util';
import type { Config } from '../config.ts';
import { descriptorsFor } from '../descriptors/descriptors.ts';
import { type Finding, findings } from './finding.ts';

/** Measured and rounded up: docs/operating.md, "Sizing". */
const BASE_MB = 200;
const AGENT_KB = 30;
const TLS_KB = 50;
const ASK_WITHIN_MS = 3000;

export async function checkMachine(config: Config): Promise<Finding[]> {
  return [await checkNode(), await checkSynchronised(), await checkDescriptors(config), checkMemory(config)];
}

/**
 * Checks the Node that `node server.ts` starts. This program may run under another one, which
 * tools/run chose.
 */
export async function checkNode(program = 'node'): Promise<Finding> {
  const part = findings('node');
  const found = await outputOf(program, ['--version']);
  const todo = 'install Node 22.18 or newer, or start an instance with: sh tools/run server.ts --config FILE';
  if (found === undefined) return part.warn('there is no node on the PATH', todo);
  if (runsTypeScript(found)) return part.ok(`node on the PATH is ${found}`);
  return part.warn(`node on the PATH is ${found}, and node server.ts needs 22.18 or newer`, todo);
}

/** Repeats the rule of tools/setup, which runs before anything is installed. */
function runsTypeScript(version: string): boolean {
  const [major = 0, minor = 0] = version.replace(/^v/, '').split('.').map(Number);
  if (major === 22) return minor >= 18;
  return major === 23 ? minor >= 6 : major > 23;
}

/** Asks systemd or chrony, whichever is installed. */
async function checkSynchronised(): Promise<Finding> {
  const part = findings('clock');
  const answer = (await outputOf('timedatectl', ['show', '-p', 'NTPSynchronized', '--value'])) ?? (await askChrony());
  if (answer === 'yes') return part.ok('this machine says that its clock is synchronised');
  if (answer === 'no')
    return part.warn('this machine says that its clock is not synchronised', 'switch on systemd-timesyncd or chrony');
  return part.warn(
    'cannot find out whether it is synchronised (neither timedatectl nor chronyc answers)',
    'make sure that something on this machine, or on its host if it is a container, keeps its clock right',
  );
}

async function askChrony(): Promise<string | undefined> {
  const tracking = await outputOf('chronyc', ['-n', 'tracking']);
  if (tracking === undefined) return undefined;
  return /Leap status\s*:\s*Normal/.test(tracking) ? 'yes' : 'no';
}

async function outputOf(program: string, args: string[]): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(program, args, { timeout: ASK_WITHIN_MS });
    return stdout.trim() || undefined;
  } catch {
    return undefined;
  }
}

/**
 * Checks the limit of the shell that runs the doctor. A service has its own limit, which cannot be
 * read from here.
 */
async function checkDescriptors({ maxAgents }: Config): Promise<Finding> {
  const part = findings('limits');
  const limits = await readFile('/proc/self/limits', 'utf8').catch(() => '');
  const most = /^Max open files\s+\S+\s+(\S+)/m.exec(limits)?.[1];
  if (most === undefined) return part.ok('cannot find out how many files may be open');
  const wanted = descriptorsFor(maxAgents);
  const text = `this shell may open ${most} files; an instance with ${maxAgents} agents (maxAgents) wants ${wanted}`;
  if (most === 'unlimited' || Number(most) >= wanted) return part.ok(text);
  return part.warn(
    text,
    'if the instance is started from a shell: ulimit -n there, or a lower maxAgents; a service has a limit of its own (systemd: LimitNOFILE)',
  );
}

function checkMemory({ maxAgents, tlsCertFile }: Config): Finding {
  const part = findings('limits');
  const agentKb = AGENT_KB + (tlsCertFile === undefined ? 0 : TLS_KB);
  const constrained = process.constrainedMemory();
  const hasMb = Math.round(Math.min(totalmem(), constrained > 0 ? constrained : Number.POSITIVE_INFINITY) / 2 ** 20);
  const wantsMb = Math.round(BASE_MB + (maxAgents * agentKb) / 1024);
  const text = `${hasMb} MB of memory; an instance with ${maxAgents} agents (maxAgents) wants about ${wantsMb}`;
  if (hasMb >= wantsMb) return part.ok(text);
  return part.warn(text, 'give it more, or lower maxAgents');
}
