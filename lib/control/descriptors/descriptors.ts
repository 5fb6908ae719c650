/**
 * File descriptors of this process: how many it may have, and whether one is left. When they run
 * out, the system cuts connections off before this process learns of them, so it opens one
 * periodically. Read by the doctor as well.
 */
import { close, open, readFileSync } from 'node:fs';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';

/** Descriptors needed besides those for agents: callers, listening sockets, the database, files. */
const FURTHER_DESCRIPTORS = 1600;

export const descriptorsFor = (maxAgents: number): number => maxAgents + FURTHER_DESCRIPTORS;

/** Infinity without a limit; undefined if it cannot be read. */
export function descriptorLimit(): number | undefined {
  try {
    const most = /^Max open files\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
    return most === undefined ? undefined : most === 'unlimited' ? Number.POSITIVE_INFINITY : Number(most);
  } catch {
    return undefined;
  }
}

interface DescriptorWatchDeps {
  maxAgents: number;
  clock: Clock;
  log: Logger;
  limit?: () => number | undefined;
  /** Resolves to the error's code when no descriptor can be opened. */
  probe?: () => Promise<string | undefined>;
}

const LOOK_MS = 5_000;
const SAY_AGAIN_MS = 60_000;
const RUN_OUT = ['EMFILE', 'ENFILE'];

export class DescriptorWatch {
  readonly #deps: DescriptorWatchDeps;
  readonly #loop: Loop;
  #sayAgainAt: number | undefined;

  constructor(deps: DescriptorWatchDeps) {
    this.#deps = deps;
    this.#loop = new Loop({
      ...deps,
      what: 'descriptors: look for a free one',
      work: () => this.#poll(),
      pauseMs: LOOK_MS,
      first: 'pause',
    });
  }

  start(): void {
    const { maxAgents, log, limit = descriptorLimit } = this.#deps;
    const [has, wanted] = [limit(), descriptorsFor(maxAgents)];
    if (has !== undefined && has < wanted)
      log.warn(
        { limit: has, wanted, max_agents: maxAgents },
        'descriptors: too few for maxAgents; raise the limit (systemd: LimitNOFILE, shell: ulimit -n) or lower maxAgents',
      );
    this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #poll(): Promise<void> {
    const { clock, log, probe = openOne } = this.#deps;
    const code = (await probe()) ?? '';
    const now = clock.now();
    if (!RUN_OUT.includes(code)) {
      if (this.#sayAgainAt !== undefined) log.info('descriptors: available again');
      this.#sayAgainAt = undefined;
    } else if (this.#sayAgainAt === undefined || now >= this.#sayAgainAt) {
      this.#sayAgainAt = now + SAY_AGAIN_MS;
      log.error({ code }, 'descriptors: none are left; new connections are closed');
    }
  }
}

function openOne(): Promise<string | undefined> {
  return new Promise((resolve) => {
    open('/dev/null', (error, fd) => {
      if (error === null) close(fd, () => resolve(undefined));
      else resolve(error.code);
    });
  });
}
