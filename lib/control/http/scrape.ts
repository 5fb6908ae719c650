/**
 * Values read from the database for a metrics scrape: how many servers have which status, and the
 * times of the tasks and locks whose ends this instance has announced since the last scrape. A
 * scrape never waits long: late values are left out. Concurrent scrapes share one count of the
 * servers; the times go to one of them, which adds them to the histograms that all of them show.
 */
import { type Clock, settlesWithin } from '../../platform/clock.ts';

export interface ScrapeSources {
  /** Of the whole zone, by status. */
  servers(): Promise<Record<string, number>>;
  /** In seconds, for ended tasks: from creation to start, and from start to end. */
  taskTimes(): Promise<readonly { wait: number | null; run: number | null }[]>;
  /** In seconds, for tickets that had queued and became active. */
  lockWaits(): Promise<readonly number[]>;
}

interface Scraped {
  /** Undefined if the database did not answer in time. */
  servers: Record<string, number> | undefined;
  taskTimes: readonly { wait: number | null; run: number | null }[];
  lockWaits: readonly number[];
}

const WITHIN_MS = 1_000;
/** Several scrapers ask for the same figures. */
const SERVERS_FRESH_MS = 5_000;

export class Scrape {
  readonly #sources: ScrapeSources;
  readonly #clock: Clock;
  #counting: Promise<Record<string, number>> | undefined;
  #servers: { at: number; counts: Record<string, number> } | undefined;
  #isReadingTimes = false;

  constructor(sources: ScrapeSources, clock: Clock) {
    this.#sources = sources;
    this.#clock = clock;
  }

  /** Returns each time of a task or lock once. */
  async read(): Promise<Scraped> {
    const scraped: Scraped = { servers: undefined, taskTimes: [], lockWaits: [] };
    const work = Promise.allSettled([
      this.#countServers().then((counts) => {
        scraped.servers = counts;
      }),
      this.#readTimes().then((times) => Object.assign(scraped, times)),
    ]);
    await settlesWithin(this.#clock, WITHIN_MS, work);
    return { ...scraped };
  }

  async #readTimes(): Promise<Partial<Scraped>> {
    if (this.#isReadingTimes) return {};
    this.#isReadingTimes = true;
    try {
      const [taskTimes, lockWaits] = await Promise.all([this.#sources.taskTimes(), this.#sources.lockWaits()]);
      return { taskTimes, lockWaits };
    } finally {
      this.#isReadingTimes = false;
    }
  }

  async #countServers(): Promise<Record<string, number>> {
    const known = this.#servers;
    if (known !== undefined && this.#clock.now() - known.at < SERVERS_FRESH_MS) return known.counts;
    this.#counting ??= this.#sources.servers().finally(() => {
      this.#counting = undefined;
    });
    const counts = await this.#counting;
    this.#servers = { at: this.#clock.now(), counts };
    return counts;
  }
}
