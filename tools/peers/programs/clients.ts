/**
 * Common code of the programs that hold a peer's clients: they connect the requested number at a
 * steady rate, count the heartbeats that went both ways, and report connections that were lost
 * without being closed here.
 */
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { answerQuestions } from '../../bench/asked.ts';
import { machineMs } from '../../bench/machine-clock.ts';

export interface ConnectOrder {
  /** Clients are distributed over these in turn. */
  urls: readonly string[];
  clients: number;
  perSecond: number;
}

export interface Connected {
  ids: string[];
  /** Time from the first step until the client is present, for each client, in ms. */
  times: number[];
}

export interface Beats {
  answered: number;
  lost: number;
}

/** Events of a client while it is connected. */
export interface Events {
  beat(): void;
  lost(): void;
}

/** Resolves when the client is present and others can see it. */
export type Connect = (url: string, id: string, events: Events) => Promise<unknown>;

export type Observe = (url: string, onGone: (id: string) => void) => Promise<unknown>;

const STEP_MS = 5;

export function serveClients({ connect, observe }: { connect: Connect; observe: Observe }): void {
  const beats: Beats = { answered: 0, lost: 0 };
  const goneAt: Record<string, number> = {};
  const events: Events = {
    beat: () => {
      beats.answered += 1;
    },
    lost: () => {
      beats.lost += 1;
    },
  };
  const arrive = async (url: string, id: string): Promise<number> => {
    const startedAt = clock.now();
    await connect(url, id, events);
    return clock.now() - startedAt;
  };
  answerQuestions({
    async connect({ urls, clients, perSecond }: ConnectOrder): Promise<Connected> {
      const startedAt = clock.now();
      const ids: string[] = [];
      const arrivals: Promise<number>[] = [];
      while (ids.length < clients) {
        const due = Math.min(clients, Math.ceil(((clock.now() - startedAt) / 1000) * perSecond) + 1);
        for (; ids.length < due; arrivals.push(arrive(urls[ids.length % urls.length] ?? '', ids.at(-1) ?? '')))
          ids.push(systemRandom.uuid());
        await clock.sleep(STEP_MS);
      }
      return { ids, times: await Promise.all(arrivals) };
    },
    beats: (): Beats => beats,
    async observe({ url }: { url: string }) {
      await observe(url, (id) => {
        goneAt[id] ??= machineMs();
      });
    },
    /** When each client was reported as gone, on the machine's clock. */
    gone: (): Record<string, number> => goneAt,
  });
}
