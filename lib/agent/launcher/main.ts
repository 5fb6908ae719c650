/**
 * The program that the service manager starts: it runs the agent of this machine, with the
 * arguments that it is given, in the version that was last installed. Exits as the agent does; 2 if
 * another launcher uses the data directory.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir } from 'node:fs/promises';
import { constants } from 'node:os';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { createLogger } from '../../platform/log.ts';
import { systemClock as clock } from '../../platform/time/clock.ts';
import { VERSION } from '../../platform/version.ts';
import { takeDirectoryLock } from '../directory-lock.ts';
import { runProgram } from '../program.ts';
import { AgentUsageError } from '../usage-error.ts';
import { VersionsFile } from '../versions/versions-file.ts';
import { type AgentExit, Launcher } from './launcher.ts';
import { parseLauncherOptions } from './launcher-options.ts';

const base = { version: VERSION, program: fileURLToPath(new URL('../main.ts', import.meta.url)) };

async function main(): Promise<void> {
  const args = process.argv.slice(2);
  const { data, trialMs } = parseLauncherOptions(args);
  const exit = data === undefined ? await runOnly(args) : await launch(resolve(data), { args, trialMs });
  process.exit(exit.code ?? 128 + (constants.signals[exit.signal ?? 'SIGKILL'] ?? 0));
}

/** Runs an agent that exits by itself: it shows its help, or says that --data is missing. */
async function runOnly(args: string[]): Promise<AgentExit> {
  const child = spawn(process.execPath, [...process.execArgv, base.program, ...args], { stdio: 'inherit' });
  const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
  return { code, signal };
}

async function launch(data: string, { args, trialMs }: { args: string[]; trialMs: number }): Promise<AgentExit> {
  const directory = join(data, 'agent-versions');
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const { holder, release } = await takeDirectoryLock(directory);
  if (holder !== undefined)
    throw new AgentUsageError(`Another launcher (pid ${holder}) runs on ${data}; stop it or give another --data`);
  const log = createLogger('cn-agent-launcher', 'info', {});
  const versions = await VersionsFile.open(data, base.version);
  const launcher = new Launcher({ clock, log, versions, data, base, args, trialMs });
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => launcher.stop(signal));
  try {
    return await launcher.run();
  } finally {
    await release();
  }
}

runProgram('cn-agent', main);
