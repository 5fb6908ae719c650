/**
 * Values read from the database for a metrics scrape: how many servers have which status, and the
 * times of the tasks and locks whose ends this instance has announced since the last scrape. A
 * scrape never waits long: late values are left out, and only one read is in progress at a time.
 */
import { type Clock, settlesWithin } from '../ports/clock.ts';

export interface ScrapeSources {
  /** Of the whole zone, by status. */
  servers(): Promise<Record<string, number>>;
  /** In seconds, for ended tasks: from creation to start, and from start to end. */
  taskTimes(): Promise<readonly { wait: number | null; run: number | null }[]>;
  /** In seconds, for tickets that had queued and became active. */
  lockWaits(): Promise<readonly number[]>;
}

export interface Scraped {
  servers: Record<string, number>;
  taskTimes: readonly { wait: number | null; run: number | null }[];
  lockWaits: readonly number[];
}

const WITHIN_MS = 1_000;
/** Several scrapers ask for the same figures. */
const SERVERS_FRESH_MS = 5_000;

export class Scrape {
  readonly #sources: ScrapeSources;
  readonly #clock: Clock;
  #reading: Promise<Scraped> | undefined;
  #servers: { at: number; counts: Record<string, number> } | undefined;

  constructor(sources: ScrapeSources, clock: Clock) {
    this.#sources = sources;
    this.#clock = clock;
  }

  /** Undefined if the database did not answer in time. Returns each time of a task or lock once. */
  async read(): Promise<Scraped | undefined> {
    if (this.#reading !== undefined) return undefined;
    const reading = this.#read();
    this.#reading = reading;
    let scraped: Scraped | undefined;
    const done = reading
      .then(
        (read) => {
          scraped = read;
        },
        () => undefined,
      )
      .finally(() => {
        this.#reading = undefined;
      });
    await settlesWithin(this.#clock, WITHIN_MS, done);
    return scraped;
  }

  async #read(): Promise<Scraped> {
    const [servers, taskTimes, lockWaits] = await Promise.all([
      this.#countServers(),
      this.#sources.taskTimes(),
      this.#sources.lockWaits(),
    ]);
    return { servers, taskTimes, lockWaits };
  }

  async #countServers(): Promise<Record<string, number>> {
    const known = this.#servers;
    if (known !== undefined && this.#clock.now() - known.at < SERVERS_FRESH_MS) return known.counts;
    const counts = await this.#sources.servers();
    this.#servers = { at: this.#clock.now(), counts };
    return counts;
  }
}
