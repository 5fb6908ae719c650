/**
 * How a command becomes another user of this server, and enters its directory: the arguments to put
 * in front of its own. The user is changed by setpriv of util-linux and looked up by getent, both
 * found on the agent's PATH. Used by command.ts, and by linux-machine.ts to tell in advance what
 * cannot work.
 */
import { execFile } from 'node:child_process';
import { isAbsolute } from 'node:path';
import { type Clock, settlesWithin } from '../../platform/time/clock.ts';
import { TaskFailure } from '../task-failure.ts';
import { findExecutable } from './find-executable.ts';
import type { Command } from './machine.ts';

export interface Account {
  name: string;
  uid: number;
  gid: number;
  home: string;
}

export interface Launch {
  /** Undefined: the command runs as the user of the agent. */
  account: Account | undefined;
  /** The arguments before those of the command. */
  prefix: string[];
}

/** What decides whether the agent may become another user. */
interface OwnProcess {
  isRoot: boolean;
  path: string;
}

const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** Exit code of ENTER when the directory cannot be entered. */
const CANNOT_ENTER = 126;
const ENTER = `cd -- "$0" || exit ${CANNOT_ENTER}; exec "$@"`;
/** Begins names of variables that the dynamic loader ignores. */
const CARRIED = 'CN_AGENT_ENV_';
/** A directory service or a file server that does not answer must not keep a vote waiting. */
const LOOKUP_MS = 5_000;

export const executablePath = (env: NodeJS.ProcessEnv): string => env.PATH ?? DEFAULT_PATH;

export const ownProcess = (): OwnProcess => ({
  isRoot: process.geteuid?.() === 0,
  path: executablePath(process.env),
});

/** @throws TaskFailure with a sentence when this agent cannot run a command like that */
export async function prepareLaunch(clock: Clock, command: Command, own: OwnProcess = ownProcess()): Promise<Launch> {
  const { user, directory } = command;
  if (directory !== undefined && (!isAbsolute(directory) || directory.includes('\0')))
    throw cannot(`the directory ${quoted(directory)} is not an absolute path`);
  const enter = directory === undefined ? [] : ['/bin/sh', '-c', ENTER, directory];
  if (user === undefined) return { account: undefined, prefix: enter };
  if (!own.isRoot) throw cannot(`the agent does not run as root, so it cannot run commands as user ${quoted(user)}`);
  const setpriv = await onPath('setpriv', own.path);
  const account = await accountOf(clock, user, own.path);
  const { uid, gid } = account;
  return { account, prefix: [setpriv, `--reuid=${uid}`, `--regid=${gid}`, '--init-groups', '--', ...enter] };
}

interface Start {
  /** The environment of the first process. */
  env: Record<string, string>;
  /** The arguments before those of the command. */
  prefix: string[];
}

/**
 * Gives the command its environment. Until the user is changed, the processes run as root, and a
 * variable such as LD_PRELOAD could make them load a library of the user. So the variables have
 * other names until then, and the user's shell exports them under their own. Their values are not
 * in arguments, because everybody on the machine can read those.
 */
export function prepareStart({ account, prefix }: Launch, env: Record<string, string>, own: NodeJS.ProcessEnv): Start {
  if (account === undefined) return { env, prefix };
  const all = Object.entries(env);
  const carried = all.map(([name, value], index) => [`${CARRIED}${index}`, `${name}=${value}`] as const);
  // With `command`, the shell continues after a variable that is read-only.
  const take = carried.map(([name]) => `command export "$${name}"; unset ${name}`);
  return {
    env: { PATH: executablePath(own), ...Object.fromEntries(carried) },
    prefix: [...prefix, '/bin/sh', '-c', [...take, 'exec "$0" "$@"'].join('\n')],
  };
}

/** Tries the whole start without the command itself. Returns why the command cannot run. */
export async function launchRefusal(clock: Clock, command: Command, own?: OwnProcess): Promise<string | undefined> {
  try {
    const { prefix } = await prepareLaunch(clock, command, own);
    if (prefix.length === 0) return undefined;
    const { code, stderr } = await outputOf(clock, [...prefix, '/bin/sh', '-c', ':']);
    if (code === 0) return undefined;
    return code === CANNOT_ENTER ? cannotEnter(command) : `setpriv cannot become user ${command.user}: ${stderr}`;
  } catch (error) {
    if (error instanceof TaskFailure) return error.message;
    throw error;
  }
}

function cannotEnter({ directory = '', user }: Command): string {
  const who = user === undefined ? 'the agent' : `user ${quoted(user)}`;
  return `the directory ${quoted(directory)} does not exist, or ${who} may not enter it`;
}

async function accountOf(clock: Clock, user: string, path: string): Promise<Account> {
  const unknown = () => cannot(`this server has no user ${quoted(user)}`);
  // Other texts are not user names. Numbers are refused below, because getent also finds users by
  // number.
  if (!/^[^-\s:\0][^\s:\0]*$/.test(user)) throw unknown();
  const { stdout } = await outputOf(clock, [await onPath('getent', path), 'passwd', user]);
  const [name, , uid, gid, , home = '/'] = stdout.split('\n')[0]?.split(':') ?? [];
  if (name !== user || !/^\d+$/.test(uid ?? '') || !/^\d+$/.test(gid ?? '')) throw unknown();
  return { name, uid: Number(uid), gid: Number(gid), home };
}

async function onPath(program: string, path: string): Promise<string> {
  const file = await findExecutable(program, path.split(':').filter(isAbsolute));
  if (file !== undefined) return file;
  throw cannot(`${program} is not on the agent's PATH, so it cannot run commands as another user`);
}

interface ProgramOutput {
  code: number | string | null;
  stdout: string;
  stderr: string;
}

async function outputOf(clock: Clock, [file = '', ...args]: string[]): Promise<ProgramOutput> {
  const late = new AbortController();
  const options = { cwd: '/', signal: late.signal, killSignal: 'SIGKILL', maxBuffer: 64 * 1024 } as const;
  let output: ProgramOutput | undefined;
  const ended = new Promise<void>((done) => {
    execFile(file, args, options, (error, stdout, stderr) => {
      output = { code: error === null ? 0 : (error.code ?? null), stdout, stderr: stderr.trim().slice(0, 500) };
      done();
    });
  });
  const isInTime = await settlesWithin(clock, LOOKUP_MS, ended);
  if (!isInTime) late.abort();
  if (!isInTime || output === undefined)
    throw cannot(`user and directory of the command could not be checked within ${LOOKUP_MS / 1000} s`);
  return output;
}

const cannot = (reason: string) => new TaskFailure('SpawnFailed', reason);

const quoted = (text: string) => JSON.stringify(text.slice(0, 200));
