/**
 * Runs npm and Node for set-up: silent on success; on failure prints their last lines and advice.
 */
import { spawn } from 'node:child_process';
import { failure, SetupError } from './failure.mjs';

const keptBytes = 16384;

/**
 * With npm's default pauses a user without network would wait for more than a minute without a
 * message.
 */
const patience = ['--fetch-retry-mintimeout=2000', '--fetch-retry-maxtimeout=10000'];

/** Runs `npm ARGS` in `folder` and adds its pid to `lock`. Throws SetupError when it fails. */
export async function runNpm(folder, args, lock) {
  await run(folder, 'npm', [...args, ...patience, '--no-audit', '--no-fund', '--loglevel=error'], lock);
}

/** Runs `node ARGS` in `folder` with the Node at `node`. Throws SetupError when it fails. */
export async function runNode(folder, node, args, lock) {
  await run(folder, node, args, lock);
}

function run(folder, command, args, lock) {
  const doing = `${command} ${args[0]}`;
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: folder, stdio: ['ignore', 'pipe', 'pipe'] });
    if (child.pid !== undefined) lock.add(child.pid);
    const release = passSignals(child);
    let output = '';
    const keep = (chunk) => {
      output = (output + chunk).slice(-keptBytes);
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    child.on('error', (error) => reject(spawnFailure(doing, command, error)));
    child.on('close', (code, signal) => {
      release();
      if (code === 0) resolve();
      else reject(failure(doing, output || `it ended with ${signal ?? `exit code ${code}`}`));
    });
  });
}

/**
 * Forwards signals to `child` and ends this process with it. Returns a function that undoes this.
 */
function passSignals(child) {
  const handlers = ['SIGINT', 'SIGTERM', 'SIGHUP'].map((signal) => {
    const handler = () => {
      child.kill(signal);
      child.once('close', () => process.exit(130));
    };
    process.on(signal, handler);
    return () => process.off(signal, handler);
  });
  return () => {
    for (const undo of handlers) undo();
  };
}

function spawnFailure(doing, command, error) {
  if (error.code !== 'ENOENT') return failure(doing, error.message);
  return new SetupError(`there is no ${command} on the PATH; install Node.js 18 or newer together with npm`);
}
