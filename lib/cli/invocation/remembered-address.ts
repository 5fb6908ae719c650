/**
 * Keeps in a file, for ten minutes, which address answered after others had failed. Otherwise each
 * command would wait for a frozen instance. An error when reading or writing the file is ignored.
 */
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { z } from 'zod';
import type { Discovery } from '../../client/address.ts';
import type { Clock } from '../../platform/time/clock.ts';

const KEEP_MS = 10 * 60_000;

const kept = z.object({ place: z.string(), address: z.string(), until: z.number() });

export class RememberedAddress {
  /** Undefined when no address is remembered. */
  readonly first: string | undefined;
  readonly #file: string;
  readonly #place: string;
  readonly #clock: Clock;

  constructor(discovery: Discovery, { env, clock }: { env: NodeJS.ProcessEnv; clock: Clock }) {
    const cache = env.XDG_CACHE_HOME?.startsWith('/') ? env.XDG_CACHE_HOME : join(env.HOME ?? homedir(), '.cache');
    this.#file = join(cache, 'cnapi', 'answered.json');
    this.#place = JSON.stringify(discovery);
    this.#clock = clock;
    this.first = this.#read();
  }

  onAnswer(address: string): void {
    const own = `${this.#file}.${process.pid}`;
    try {
      mkdirSync(dirname(this.#file), { recursive: true, mode: 0o700 });
      const value = { place: this.#place, address, until: this.#clock.wallTime() + KEEP_MS };
      writeFileSync(own, JSON.stringify(value), { mode: 0o600 });
      renameSync(own, this.#file);
    } catch {
      // The next command tries the addresses in the usual order.
    }
  }

  #read(): string | undefined {
    try {
      const { place, address, until } = kept.parse(JSON.parse(readFileSync(this.#file, 'utf8')));
      const leftMs = until - this.#clock.wallTime();
      return place === this.#place && leftMs > 0 && leftMs <= KEEP_MS ? address : undefined;
    } catch {
      return undefined;
    }
  }
}
