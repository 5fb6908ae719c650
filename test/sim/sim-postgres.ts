/**
 * The one Postgres of the simulated world: PGlite with the product's own migrations, its clock the virtual one, and a trigger
 * on each table of coordination that tells the checks of every change as it commits. It can be away, frozen, slow, and
 * can fail statements before or after it has carried them out.
 *
 * PGlite has one connection: statements run one after the other, in the order in which they reach it. Races within
 * Postgres are for test/interleavings.
 */
import { PGlite, types } from '@electric-sql/pglite';
import { migrations } from '../../lib/core.ts';
import { silentLogger } from '../../lib/log.ts';
import { BucketStore } from '../../lib/moray/bucket-store.ts';
import { type Database, parseInt8, type QueryResult } from '../../lib/moray/database.ts';
import { migrate } from '../../lib/moray/migrations.ts';
import { serversBucket } from '../../lib/servers/server-schema.ts';
import { PgliteDatabase } from '../support/pglite.ts';
import type { Change } from './changes.ts';
import { CHANGES_CHANNEL, changesSql, parseChange } from './changes.ts';
import type { SeededRandom } from './seeded-random.ts';
import { EPOCH_MS } from './sim-process.ts';
import type { Story } from './story.ts';
import { PHASE, type VirtualTime } from './virtual-time.ts';

/** What is wrong with the server or the way to it. */
export interface PostgresTrouble {
  state: 'up' | 'down' | 'frozen';
  /** Added to the time of each statement, by chance up to twice as much. */
  slowMs: number;
  /** Of each statement: it is refused, and was not carried out. */
  failing: number;
  /** Of each statement: it is carried out, and its answer never comes; the caller may hear that the connection broke. */
  losingAnswers: number;
}

export interface Statement<Result> {
  /** Whose it is, for the story and for who is cut off. */
  who: string;
  label: string;
  run: (database: Database) => Promise<Result>;
  answered: (result: Result) => void;
  failed: (error: unknown) => void;
}

export interface PostgresWorld {
  time: VirtualTime;
  random: SeededRandom;
  story: Story;
  changed: (change: Change) => void;
  /** After the changes of one statement. */
  committed: () => void;
}

const HEALTHY: PostgresTrouble = { state: 'up', slowMs: 0, failing: 0, losingAnswers: 0 };

/** Everything but what the migrations and the bucket store keep of themselves. */
const emptyAll = `
do $$ declare names text; begin
  select string_agg(quote_ident(tablename), ', ') into names from pg_tables
  where schemaname = 'public' and tablename like 'cnapi_%' and tablename not in ('cnapi_migrations', 'cnapi_buckets');
  execute 'truncate ' || names || ' restart identity cascade';
end $$;
select setval(quote_ident(sequencename)::regclass, 1, false) from pg_sequences where schemaname = 'public';
insert into cnapi_event_log (last_id, numbered_at) values (0, cnapi_now());
discard plans`;

/** Boots in some seconds; used for one seed after the other. */
export class SimPostgres {
  readonly #pglite: PGlite;
  readonly #database: PgliteDatabase;
  #world: PostgresWorld | undefined;
  #changes: Change[] = [];
  #held: { who: string; arrive: () => void }[] = [];
  /** Of the answers that wait for the way back. */
  #unanswered: { who: string; answer: () => void }[] = [];
  /** Statements are carried out one after the other. */
  #tail: Promise<void> = Promise.resolve();
  readonly #cutOff = new Set<string>();
  trouble: PostgresTrouble = { ...HEALTHY };

  private constructor(pglite: PGlite) {
    this.#pglite = pglite;
    this.#database = new PgliteDatabase(pglite);
  }

  static async open(): Promise<SimPostgres> {
    const pglite = await PGlite.create({ parsers: { [types.INT8]: parseInt8 } });
    await pglite.exec(`set timezone = 'UTC'; set synchronous_commit = off`);
    const postgres = new SimPostgres(pglite);
    await migrate(new PgliteDatabase(pglite), migrations, { log: silentLogger });
    // Else the first world of a process would be another one than the same world later.
    await new BucketStore({ database: postgres.#database }).ensureBucket(serversBucket);
    await pglite.exec(changesSql);
    await pglite.listen(CHANGES_CHANNEL, (payload) => postgres.#changes.push(parseChange(payload)));
    return postgres;
  }

  /** An empty database for the next world; statements of the last one are not known any more. */
  async begin(world: PostgresWorld): Promise<void> {
    this.#world = world;
    this.trouble = { ...HEALTHY };
    this.#held = [];
    this.#unanswered = [];
    this.#cutOff.clear();
    await this.#atVirtualTime(() => this.#pglite.exec(emptyAll));
    this.#changes = [];
  }

  async close(): Promise<void> {
    await this.#pglite.close();
  }

  /** For the checks: outside of time and trouble. */
  read<Row>(text: string, values: readonly unknown[] = []): Promise<QueryResult<Row>> {
    return this.#database.query<Row>(text, values);
  }

  /** Nobody of this name reaches the server; what is sent meanwhile arrives afterwards. */
  cutOff(who: string, isCut: boolean): void {
    if (isCut) this.#cutOff.add(who);
    else this.#cutOff.delete(who);
    this.#release();
  }

  set(trouble: Partial<PostgresTrouble>): void {
    this.trouble = { ...this.trouble, ...trouble };
    this.#release();
  }

  /** The statement was sent now. */
  send<Result>(statement: Statement<Result>): void {
    const { time, random } = this.#known;
    time.schedule(this.#tripMs(random), PHASE.input, () => this.#arrive(statement));
  }

  #tripMs(random: SeededRandom): number {
    return random.between(0.1, 1) + random.between(0, this.trouble.slowMs);
  }

  #isUnreachable(who: string): boolean {
    return this.#cutOff.has(who) || this.trouble.state === 'frozen';
  }

  #arrive<Result>(statement: Statement<Result>): void {
    const { who } = statement;
    if (this.#isUnreachable(who)) return void this.#held.push({ who, arrive: () => this.#arrive(statement) });
    const { random, story, time } = this.#known;
    if (this.trouble.state === 'down') return statement.failed(lost('connection refused'));
    if (random.chance(this.trouble.failing)) {
      story.note(statement.who, `sql refused: ${statement.label}`);
      return statement.failed(lost('terminating connection'));
    }
    void time.during(() => {
      this.#tail = this.#tail.then(() => this.#execute(statement));
      return this.#tail;
    });
  }

  async #execute<Result>(statement: Statement<Result>): Promise<void> {
    const { random, story, changed, committed } = this.#known;
    const isAnswered = !random.chance(this.trouble.losingAnswers);
    let outcome: () => void;
    try {
      const result = await this.#atVirtualTime(() => statement.run(this.#database));
      outcome = () => statement.answered(result);
    } catch (error) {
      outcome = () => statement.failed(error);
    }
    const changes = this.#changes;
    this.#changes = [];
    story.note(statement.who, `sql ${statement.label}${isAnswered ? '' : ' (its answer is lost)'}`);
    for (const change of changes) changed(change);
    if (changes.length > 0) committed();
    if (isAnswered) this.#answer(statement.who, outcome);
    else if (random.chance(0.5)) statement.failed(lost('the connection broke before the answer'));
  }

  /** What was done is seen by everybody before its caller hears of it. */
  #answer(who: string, answer: () => void): void {
    const { random, time } = this.#known;
    time.schedule(this.#tripMs(random), PHASE.input, () => {
      if (this.#isUnreachable(who)) this.#unanswered.push({ who, answer });
      else answer();
    });
  }

  /** Postgres in this process asks JavaScript for the time; nothing else asks for it meanwhile. */
  async #atVirtualTime<Result>(work: () => Promise<Result>): Promise<Result> {
    const realNow = Date.now;
    const now = EPOCH_MS + this.#known.time.now;
    Date.now = () => now;
    try {
      return await work();
    } finally {
      Date.now = realNow;
    }
  }

  #release(): void {
    const isFree = ({ who }: { who: string }) => !this.#isUnreachable(who);
    const arriving = this.#held.filter(isFree);
    const answering = this.#unanswered.filter(isFree);
    this.#held = this.#held.filter((one) => !isFree(one));
    this.#unanswered = this.#unanswered.filter((one) => !isFree(one));
    for (const { answer } of answering) answer();
    for (const { arrive } of arriving) arrive();
  }

  get #known(): PostgresWorld {
    if (this.#world === undefined) throw new Error('no world has begun');
    return this.#world;
  }
}

function lost(what: string): Error {
  return Object.assign(new Error(what), { code: '57P01' });
}
