/**
 * `npm start -- --stop`: sends SIGTERM to the running supervisor, waits until it is gone, and sends
 * SIGKILL if it does not end.
 */
import type { Clock } from '../../lib/platform/time/clock.ts';
import { type DescribedProcess, isAlive } from '../setup/processes.mjs';
import { Refusal } from './refusal.ts';

const patienceMs = 12_000;
const pollMs = 50;

/**
 * Resolves to a description of what happened.
 * @throws Refusal when this user may not stop it or it does not end
 */
export async function stopRunning(supervisor: DescribedProcess, clock: Clock): Promise<string> {
  for (const signal of ['SIGTERM', 'SIGKILL'] as const) {
    send(supervisor.pid, signal);
    const deadline = clock.now() + patienceMs;
    while (isAlive(supervisor) && clock.now() < deadline) await clock.sleep(pollMs);
    if (!isAlive(supervisor)) return `stopped (pid ${supervisor.pid})`;
  }
  throw new Refusal(`pid ${supervisor.pid} does not end`);
}

function send(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EPERM') throw new Refusal(`pid ${pid} belongs to another user; stop it as that user`, 1, error);
    if (code !== 'ESRCH') throw error;
  }
}
