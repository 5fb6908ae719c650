/**
 * The one Postgres of the simulated world: PGlite with the product's own migrations, its clock the
 * virtual one, and a trigger on each table of coordination that tells the checks of every change as
 * it commits. It can be away, frozen, slow, and can fail statements before or after it has carried
 * them out.
 *
 * PGlite has one connection: statements run one after the other, in the order in which they reach
 * it. Races within Postgres are for test/interleavings. One thing about locks is simulated:
 * Postgres keeps what a statement has locked until its client has read the whole answer, and an
 * answer that does not fit the buffers waits for its client (`unread-answers.ts`).
 */
import { type PGlite, types } from '@electric-sql/pglite';
import { serversBucket } from '../../lib/control/servers/server-bucket.ts';
import { migrations } from '../../lib/control/subsystem-list.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { BucketStore } from '../../lib/platform/moray/bucket-store.ts';
import { type Database, parseInt8, type QueryResult } from '../../lib/platform/postgres/database.ts';
import { migrate } from '../../lib/platform/postgres/migrations.ts';
import { PgliteDatabase } from '../support/pglite.ts';
import { openPglite } from '../support/pglite-image.ts';
import { PreparedPglite } from '../support/prepared-pglite.ts';
import type { Change } from './changes.ts';
import { CHANGES_CHANNEL, changesSql, parseChange } from './changes.ts';
import { makeDefective } from './defects.ts';
import type { SeededRandom } from './seeded-random.ts';
import { EPOCH_MS } from './sim-process.ts';
import type { Story } from './story.ts';
import { isWide, namesOf, type UnreadAnswer, UnreadAnswers } from './unread-answers.ts';
import { PHASE, type VirtualTime } from './virtual-time.ts';

/** Faults of the server or of the network to it. */
export interface PostgresTrouble {
  state: 'up' | 'down' | 'frozen';
  /** Added to the time of each statement, at random up to twice as much. */
  slowMs: number;
  /** The probability for each statement that it is refused and not executed. */
  failing: number;
  /**
   * The probability for each statement that it is executed without an answer; the caller may be
   * informed that the connection broke.
   */
  losingAnswers: number;
}

export interface Statement<Result> {
  /** The process of the statement, for the story and for cuts. */
  who: string;
  label: string;
  /** Undefined for a transaction. */
  text: string | undefined;
  values: readonly unknown[] | undefined;
  run: (database: Database) => Promise<Result>;
  /**
   * The answer arrives. If it is wide, `read` is called when the client has read it, and says
   * whether it was complete.
   */
  answered: (result: Result, read: (() => boolean) | undefined) => void;
  failed: (error: unknown) => void;
}

export interface PostgresWorld {
  time: VirtualTime;
  random: SeededRandom;
  story: Story;
  /** `who`: the process whose statement it was. */
  changed: (change: Change, who: string) => void;
  /** Called after the changes of one statement. */
  committed: () => void;
  /** A statement had to wait for rows that another one has locked whose answer was not read. */
  heldUp: (held: HeldUp) => void;
}

export interface HeldUp {
  who: string;
  label: string;
  by: string;
  ms: number;
}

/** The product's `lock_timeout`. */
const LOCK_TIMEOUT_MS = 2_000;
/** The product's `tcp_user_timeout`. */
const UNREAD_MS = 4_000;
/** How long a wide answer takes when its client reads. */
const WIDE_ANSWER_MS = [20, 200] as const;

const HEALTHY: PostgresTrouble = { state: 'up', slowMs: 0, failing: 0, losingAnswers: 0 };

/**
 * Empties everything but the records of the migrations and of the bucket of servers. Other buckets
 * are dropped: instances create them in each world, as on a new database, and a world would
 * otherwise differ from the same world later.
 */
const emptyAll = `
do $$ declare names text; begin
  with dropped as (delete from cnapi_buckets where name <> '${serversBucket.name}' returning quote_ident(name) as name)
  select string_agg(name, ', ') into names from dropped;
  if names is not null then execute 'drop table ' || names; end if;
  select string_agg(quote_ident(tablename), ', ') into names from pg_tables
  where schemaname = 'public' and tablename like 'cnapi_%' and tablename not in ('cnapi_migrations', 'cnapi_buckets');
  execute 'truncate ' || names || ' restart identity cascade';
end $$;
select setval(quote_ident(sequencename)::regclass, 1, false) from pg_sequences where schemaname = 'public';
insert into cnapi_event_log default values;
insert into cnapi_event_numberings (id, last_id, read_id, dropped_id) values (1, 0, 0, 0)`;

/** Starts in some seconds; used for one seed after the other. */
export class SimPostgres {
  readonly #pglite: PGlite;
  readonly #prepared: PreparedPglite;
  readonly #database: PgliteDatabase;
  #world: PostgresWorld | undefined;
  #changes: Change[] = [];
  #held: { who: string; arrive: () => void }[] = [];
  /** Answers that wait for the way back. */
  #unanswered: { who: string; answer: () => void }[] = [];
  /** Statements are executed one after the other. */
  #tail: Promise<void> = Promise.resolve();
  readonly #cutOff = new Set<string>();
  readonly #unread = new UnreadAnswers();
  #onceWide: ((who: string) => void) | undefined;
  /** Statements that change or lock rows, by name. */
  #volatileFunctions: readonly string[] = [];
  trouble: PostgresTrouble = { ...HEALTHY };

  private constructor(pglite: PGlite) {
    this.#pglite = pglite;
    this.#prepared = new PreparedPglite(pglite);
    this.#database = new PgliteDatabase(this.#prepared);
  }

  static async open(): Promise<SimPostgres> {
    const pglite = await openPglite({ parsers: { [types.INT8]: parseInt8 } });
    // One plan for each statement of a world: planning it five times would cost more than a worse
    // plan does.
    await pglite.exec(`set timezone = 'UTC'; set synchronous_commit = off; set plan_cache_mode = force_generic_plan`);
    const postgres = new SimPostgres(pglite);
    makeDefective(migrations);
    await migrate(new PgliteDatabase(pglite), migrations, { log: silentLogger });
    // Its changes are watched, so it must exist before the first world.
    await new BucketStore({ database: postgres.#database }).ensureBucket(serversBucket);
    await pglite.exec(changesSql);
    const functions = await pglite.query<{ name: string }>(
      `select distinct proname as name from pg_proc where proname like 'cnapi\\_%' and provolatile = 'v'`,
    );
    postgres.#volatileFunctions = functions.rows.map(({ name }) => name);
    await pglite.listen(CHANGES_CHANNEL, (payload) => postgres.#changes.push(parseChange(payload)));
    return postgres;
  }

  /** An empty database for the next world; it knows no statements of the last one. */
  async begin(world: PostgresWorld): Promise<void> {
    this.#world = world;
    this.trouble = { ...HEALTHY };
    this.#held = [];
    this.#unanswered = [];
    this.#cutOff.clear();
    this.#unread.clear();
    this.#onceWide = undefined;
    await this.#atVirtualTime(() => this.#pglite.exec(emptyAll));
    await this.#prepared.forget();
    this.#changes = [];
  }

  async close(): Promise<void> {
    await this.#pglite.close();
  }

  /** Reads rows for the checks, outside of virtual time and faults. */
  read<Row>(text: string, values: readonly unknown[] = []): Promise<QueryResult<Row>> {
    return this.#database.query<Row>(text, values);
  }

  /** No process of this name reaches the server; data sent meanwhile arrives later. */
  cutOff(who: string, isCut: boolean): void {
    if (isCut) this.#cutOff.add(who);
    else this.#cutOff.delete(who);
    this.#release();
  }

  set(trouble: Partial<PostgresTrouble>): void {
    this.trouble = { ...this.trouble, ...trouble };
    this.#release();
  }

  /**
   * Calls back at the next wide answer, before any of it has arrived; the returned function cancels
   * this.
   */
  onceWide(tell: (who: string) => void): () => void {
    this.#onceWide = tell;
    return () => {
      if (this.#onceWide === tell) this.#onceWide = undefined;
    };
  }

  /** Called when the statement was sent. */
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
    if (this.#waits(statement)) return;
    void time.during(() => {
      this.#tail = this.#tail.then(() => this.#execute(statement));
      return this.#tail;
    });
  }

  /**
   * Whether it needs rows that an unread answer keeps locked; then it continues when that has been
   * read, or gives up.
   */
  #waits<Result>(statement: Statement<Result>): boolean {
    const { time, heldUp } = this.#known;
    const holder = this.#locks(statement) ? this.#unread.holderOf(namesOf(statement.values)) : undefined;
    if (holder === undefined) return false;
    const { who, label } = statement;
    const since = time.now;
    const timer = time.schedule(LOCK_TIMEOUT_MS, PHASE.input, () => {
      stopWaiting();
      heldUp({ who, label, by: holder.who, ms: time.now - since });
      statement.failed(Object.assign(new Error('canceling statement due to lock timeout'), { code: '55P03' }));
    });
    const stopWaiting = this.#unread.whenReleased(holder, () => {
      timer.cancel();
      heldUp({ who, label, by: holder.who, ms: time.now - since });
      this.#arrive(statement);
    });
    return true;
  }

  /** Nothing is known about transactions; those of the bucket store use no coordination row. */
  #locks({ text = '' }: Pick<Statement<unknown>, 'text'>): boolean {
    return (
      /\b(insert|update|delete)\b|\bfor (share|update|no key update)\b/i.test(text) ||
      this.#volatileFunctions.some((name) => text.includes(`${name}(`))
    );
  }

  async #execute<Result>(statement: Statement<Result>): Promise<void> {
    const { random, story, changed, committed } = this.#known;
    const isAnswered = !random.chance(this.trouble.losingAnswers);
    let outcome: () => void;
    let unread: UnreadAnswer | undefined;
    try {
      const result = await this.#atVirtualTime(() => statement.run(this.#database));
      unread = isAnswered ? await this.#unreadAnswer(statement, result) : undefined;
      const read = unread && this.#unread.release.bind(this.#unread, unread);
      outcome = () => statement.answered(result, read);
    } catch (error) {
      outcome = () => statement.failed(error);
    }
    const changes = this.#changes;
    this.#changes = [];
    story.note(statement.who, `sql ${statement.label}${isAnswered ? '' : ' (its answer is lost)'}`);
    for (const change of changes) changed(change, statement.who);
    if (changes.length > 0) committed();
    if (isAnswered) this.#answer(statement.who, outcome, unread === undefined ? 0 : random.between(...WIDE_ANSWER_MS));
    else if (random.chance(0.5)) statement.failed(lost('the connection broke before the answer'));
  }

  /**
   * Returns an answer that does not fit the buffers. It is given up if its client does not read it
   * in time.
   */
  async #unreadAnswer<Result>(statement: Statement<Result>, result: Result): Promise<UnreadAnswer | undefined> {
    // A transaction has no text, and may have no result.
    if (statement.text === undefined) return undefined;
    const { rows = [] } = result as Partial<QueryResult<unknown>>;
    if (!isWide(rows)) return undefined;
    const { time } = this.#known;
    const names = this.#locks(statement) ? [...namesOf(statement.values), ...namesOf(rows)] : [];
    const unread = this.#unread.add(statement.who, await this.#rowsNamed(names));
    time.schedule(UNREAD_MS, PHASE.input, () => this.#unread.release(unread));
    const tell = this.#onceWide;
    this.#onceWide = undefined;
    tell?.(statement.who);
    return unread;
  }

  /** A statement of an instance names its own run as well, whose row it does not lock. */
  async #rowsNamed(names: readonly string[]): Promise<string[]> {
    const { rows } = await this.#database.query<{ name: string }>(
      `select server_uuid as name from cnapi_roster_authority where server_uuid = any ($1::uuid[])
       union select id from cnapi_tasks where id = any ($1::uuid[])
       union select uuid from cnapi_waitlist_tickets where uuid = any ($1::uuid[])`,
      [names],
    );
    return rows.map(({ name }) => name);
  }

  /** All processes see the change before its caller gets the answer. */
  #answer(who: string, answer: () => void, extraMs: number): void {
    const { random, time } = this.#known;
    time.schedule(this.#tripMs(random) + extraMs, PHASE.input, () => {
      if (this.#isUnreachable(who)) this.#unanswered.push({ who, answer });
      else answer();
    });
  }

  /** Postgres in this process asks JavaScript for the time; nothing else does meanwhile. */
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
