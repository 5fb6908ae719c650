/**
 * Sixteen clients that make all calls of the table at random on the same few rows, and the
 * invariants checked meanwhile. The database's clock runs so fast that times of hours and days are
 * due within seconds.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Servers } from '../../lib/control/servers/servers.ts';
import { messageOf } from '../../lib/platform/errors.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import type { Database, Queryable } from '../../lib/platform/postgres/database.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { complaintsSince } from './invariants.ts';
import { type Knowledge, readKnowledge, worldFrom } from './knowledge.ts';
import { recordIntents } from './lab-schema.ts';
import type { Call } from './statement.ts';
import { writingCalls } from './statements.ts';

export interface MixDeps {
  /** Connections for the clients' statements. */
  clients: Queryable;
  /** Reads what clients know, and maintains the world. */
  keeper: Database;
  /** Reads the invariants. */
  checker: Queryable;
  servers: readonly string[];
  seed: number;
  runMs: number;
}

export const CLIENTS = 16;
/** Half an hour of the database's time passes in a second. */
const CLOCK_SPEED = 1800;
const READ_EVERY_MS = 10;
const CHECK_EVERY_MS = 3_000;
/** Beyond that, clients would hardly conflict. */
const MOST_QUEUED = 60;
const MOST_WAITING = 40;
const MOST_DUTIES = 30;
const MOST_RUNS = 6;
const OLD_SERVERS = 2;
const MOST_VIOLATIONS = 20;

export const fastClock = `create or replace function cnapi_now() returns timestamptz language sql stable as $$
  select timestamptz '2030-01-01' + (clock_timestamp() - timestamptz '2026-01-01') * ${CLOCK_SPEED}
$$;
create or replace function cnapi_tick() returns bigint language sql stable as $$
  select extract(epoch from cnapi_now())::bigint
$$`;

export class Mix {
  readonly violations: string[] = [];
  /** How often each call was made. */
  readonly counts = new Map<string, number>();
  checks = 0;
  readonly #deps: MixDeps;
  readonly #exclusive = new Set<string>();
  #known: Knowledge | undefined;
  #isOver = false;

  constructor(deps: MixDeps) {
    this.#deps = deps;
  }

  /** Runs until the time is over or there are too many violations. */
  async run(): Promise<void> {
    const { keeper, servers, runMs } = this.#deps;
    this.#known = await readKnowledge(keeper, servers);
    void sleep(runMs, undefined, { ref: false }).then(() => this.#end());
    const reading = this.#keepReading();
    const checking = this.#keepChecking();
    await Promise.all(Array.from({ length: CLIENTS }, (_, n) => this.#client(n)));
    await Promise.all([reading, checking]);
  }

  #end(): void {
    this.#isOver = true;
  }

  #complain(...complaints: readonly string[]): void {
    this.violations.push(...complaints);
    if (this.violations.length >= MOST_VIOLATIONS) this.#end();
  }

  async #client(n: number): Promise<void> {
    const { clients, seed } = this.#deps;
    const fraction = chanceOf(seed * CLIENTS + n);
    while (!this.#isOver) {
      const call = this.#choose(fraction);
      const prepared = call.prepare(worldFrom(this.#knownTo(call, fraction), fraction));
      if (prepared === undefined) {
        await sleep(0);
        continue;
      }
      try {
        await recordIntents(clients, prepared.intents);
        this.#checkExclusive(await prepared.run(clients));
        this.counts.set(call.name, (this.counts.get(call.name) ?? 0) + 1);
      } catch (error) {
        this.#complain(`${call.name} failed: ${messageOf(error)}`);
      }
    }
  }

  /** Some servers have legacy agents: they get sessions only now and then. */
  #knownTo({ statement }: Call, fraction: () => number): Knowledge {
    const known = this.#known as Knowledge;
    const isRare = statement.startsWith('accept') && fraction() < 0.9;
    return isRare ? { ...known, seats: known.seats.slice(OLD_SERVERS) } : known;
  }

  /** Chooses by weight; objects of which there are enough are not created. */
  #choose(fraction: () => number): Call {
    const { tasks, tickets, duties, live } = this.#known as Knowledge;
    const isEnough: Record<string, boolean> = {
      createTask: tasks.filter(({ kinds }) => kinds.includes('queued')).length > MOST_QUEUED,
      addTicket: tickets.filter(({ status }) => status === 'queued').length > MOST_WAITING,
      createDuties: duties.length > MOST_DUTIES,
      insertRun: live.length > MOST_RUNS,
      declareLapsed: live.length < 3,
      endRun: live.length < 3,
    };
    for (;;) {
      const call = weighted[Math.floor(fraction() * weighted.length)] as Call;
      if (!isEnough[call.statement]) return call;
    }
  }

  #checkExclusive(exclusive: readonly string[]): void {
    for (const one of exclusive) {
      if (this.#exclusive.has(one)) this.#complain(`two callers received ${one}`);
      this.#exclusive.add(one);
    }
  }

  /** What clients know; removed servers are created again. */
  async #keepReading(): Promise<void> {
    const { keeper, servers } = this.#deps;
    const documents = new Servers({ database: keeper, clock: systemClock, log: silentLogger, datacenter: 'dc' });
    while (!this.#isOver) {
      this.#known = await readKnowledge(keeper, servers);
      for (const uuid of this.#known.removed) await documents.recordSysinfo(uuid, { UUID: uuid, Hostname: 'again' });
      await sleep(READ_EVERY_MS);
    }
    await documents.stop();
  }

  /** Transactions that were uncommitted at the previous check are checked again. */
  async #keepChecking(): Promise<void> {
    const { checker } = this.#deps;
    let [from, last] = [0, 0];
    while (!this.#isOver) {
      const { rows } = await checker.query<{ last: number }>('select last_value as last from lab.changes');
      [from, last] = [last, rows[0]?.last ?? 0];
      this.#complain(...(await complaintsSince(checker, from)));
      this.checks += 1;
      await sleep(CHECK_EVERY_MS, undefined, { ref: false });
    }
  }
}

const weighted: readonly Call[] = writingCalls.flatMap((call) => Array<Call>(call.weight).fill(call));

/** mulberry32: small, and the same on each machine. */
export function chanceOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
