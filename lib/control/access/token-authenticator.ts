/**
 * Authenticates a token, and ends what was opened with a token that is no longer valid. Called by
 * `authenticator.ts`. Nothing waits for the bus. A token is read from the database again when the
 * last read is 400 ms old. The tokens of what lasts longer (links, waits, streams) are in a list
 * that is checked every 400 ms. So a revoked token stops working within a second on every instance.
 * What is large or not urgent has a loop and a connection of its own, and never delays that check.
 * While the database does not answer, no new caller is authenticated, and no open connection is
 * closed.
 */

import { chunksOf } from '../../platform/chunks.ts';
import { DatabaseBusyError, DatabaseUnavailableError, isTemporary, messageOf } from '../../platform/errors.ts';
import { BoundedMap } from '../../platform/limiting/bounded-map.ts';
import type { Logger } from '../../platform/log.ts';
import { BatchLimit } from '../../platform/postgres/batches/batch-limit.ts';
import { Batcher } from '../../platform/postgres/batches/batcher.ts';
import { TimedDatabase } from '../../platform/postgres/batches/timed-database.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { Loop } from '../../platform/time/loop.ts';
import { type Actor, matchesHash, parseToken, type TokenText } from './token.ts';
import {
  type KnownToken,
  readEndedTokens,
  readTokens,
  readTokensEndedSince,
  readValidTokens,
  recordTokenUses,
} from './token-store.ts';

interface TokenAuthenticatorDeps {
  /** Reads tokens that callers present, and which ones have just ended. */
  database: Queryable;
  /** Runs statements that nobody waits for; must not share a connection with `database`. */
  backgroundDatabase: Queryable;
  clock: Clock;
  log: Logger;
}

interface Remembered extends KnownToken {
  readAt: number;
}

const FRESH_MS = 400;
const WATCH_MS = 400;
/**
 * Period of checking all held tokens by uuid. Reading only the last changes misses some ends: after
 * a step of the database's clock, or if a revocation's commit waited for a standby.
 */
const FULL_CHECK_MS = 5_000;
const FULL_CHECK_RETRY_MS = 1_000;
const NOTE_USED_MS = 20_000;
const MAX_REMEMBERED = 50_000;
const MAX_BATCH = 1_000;

/**
 * Each question has its own number: a repeated question must not wait for a statement that hangs.
 */
interface Question {
  uuid: string;
  number: number;
}

const keyOf = ({ uuid, number }: Question): string => `${uuid} ${number}`;

export class TokenAuthenticator {
  readonly #deps: TokenAuthenticatorDeps;
  /** The least recently read comes first. */
  readonly #remembered = new BoundedMap<string, Remembered>(MAX_REMEMBERED);
  readonly #held = new Map<string, Set<() => void>>();
  readonly #used = new Set<string>();
  readonly #reading: Batcher<Question, KnownToken>;
  #questions = 0;
  /** Reads in flight, so many requests of one caller ask once. */
  readonly #asked = new Map<string, { at: number; answer: Promise<KnownToken | undefined> }>();
  readonly #checks: Loop;
  readonly #fullChecks: Loop;
  readonly #notes: Loop;
  #knownUntil: string | null = null;
  /** Tokens that the current pass of the full check has not come to. */
  #unchecked: string[] = [];
  /** Unchecked tokens whose batch failed in this pass; each was moved to the pass's end once. */
  readonly #failed = new Set<string>();
  readonly #fullCheckLimit = new BatchLimit<string>({ maxBatch: MAX_BATCH });

  constructor(deps: TokenAuthenticatorDeps) {
    this.#deps = deps;
    this.#reading = new Batcher({
      ...deps,
      what: 'reading of tokens',
      keyOf,
      ask: async (questions, database) => {
        const read = await readTokens(database, [...new Set(questions.map(({ uuid }) => uuid))]);
        return new Map(
          questions.flatMap((question) => {
            const token = read.get(question.uuid);
            return token === undefined ? [] : [[keyOf(question), token] as const];
          }),
        );
      },
      maxBatch: MAX_BATCH,
      minIntervalMs: 0,
    });
    this.#checks = new Loop({
      ...deps,
      what: 'access: check for revoked tokens (what is open stays open)',
      work: () => this.#check(),
      pauseMs: (tookMs) => WATCH_MS - tookMs,
      first: 'pause',
    });
    this.#fullChecks = new Loop({
      ...deps,
      what: 'access: check of all held tokens (what is open stays open)',
      work: () => this.#checkNextBatch(),
      pauseMs: () => (this.#unchecked.length > 0 ? 0 : FULL_CHECK_MS),
      retryMs: FULL_CHECK_RETRY_MS,
      first: 'pause',
    });
    this.#notes = new Loop({
      ...deps,
      what: 'access: record of the last uses of tokens',
      work: () => this.#noteUsed(),
      pauseMs: NOTE_USED_MS,
      first: 'pause',
    });
  }

  start(): void {
    void this.#attempt('access: could not preload tokens; each is read when it is first used', () =>
      this.#rememberAll(),
    );
    this.#checks.start();
    this.#fullChecks.start();
    this.#notes.start();
  }

  async stop(): Promise<void> {
    await Promise.all([this.#checks.stop(), this.#fullChecks.stop(), this.#notes.stop()]);
    await this.#attempt('access: the last uses of tokens were not recorded', () => this.#noteUsed());
  }

  /** The owner of a token that this instance has found valid before; it may have ended since. */
  remembered(text: string): Actor | undefined {
    const token = parseToken(text);
    const known = token === undefined ? undefined : this.#remembered.get(token.uuid);
    return token !== undefined && known !== undefined && matchesHash(token.secret, known.secretHash)
      ? actorOf(known)
      : undefined;
  }

  /**
   * Returns the token's owner; undefined if the token is not valid. With `mayBeStale`, a token that
   * was valid stays valid until the database answers again. @throws DatabaseUnavailableError
   */
  async authenticate(text: string, { mayBeStale = false } = {}): Promise<Actor | undefined> {
    const token = parseToken(text);
    if (token === undefined) return undefined;
    const known = await this.#known(token, mayBeStale);
    if (known === undefined || !matchesHash(token.secret, known.secretHash) || known.isOver) return undefined;
    this.#used.add(known.uuid);
    return actorOf(known);
  }

  /**
   * Calls `onEnded` once when the actor's token ends, unless the returned function was called
   * before.
   */
  onTokenEnd({ tokenUuid }: Actor, onEnded: () => void): () => void {
    if (tokenUuid === undefined) return () => undefined;
    const holders = this.#held.get(tokenUuid) ?? new Set();
    this.#held.set(tokenUuid, holders);
    const holder = () => onEnded();
    holders.add(holder);
    return () => {
      holders.delete(holder);
      if (holders.size === 0 && this.#held.get(tokenUuid) === holders) this.#held.delete(tokenUuid);
    };
  }

  /**
   * Loads valid tokens at start, so a neighbour's invalid tokens do not lock out owners that this
   * instance has not met yet.
   */
  async #rememberAll(): Promise<void> {
    for (const token of await readValidTokens(this.#deps.backgroundDatabase, MAX_REMEMBERED))
      if (this.#remembered.get(token.uuid) === undefined)
        this.#remembered.set(token.uuid, { ...token, readAt: Number.NEGATIVE_INFINITY });
  }

  async #known(token: TokenText, mayBeStale: boolean): Promise<KnownToken | undefined> {
    const remembered = this.#remembered.get(token.uuid);
    if (remembered !== undefined && this.#deps.clock.now() - remembered.readAt <= FRESH_MS) return remembered;
    try {
      return await this.#ask(token);
    } catch (error) {
      if (mayBeStale && remembered !== undefined && isTemporary(error)) return remembered;
      throw error;
    }
  }

  #ask(token: TokenText): Promise<KnownToken | undefined> {
    const asked = this.#asked.get(token.uuid);
    const at = this.#deps.clock.now();
    // A late answer may be older than a revocation that this instance must know of.
    if (asked !== undefined && at - asked.at <= FRESH_MS) return asked.answer;
    const question = { at, answer: this.#read(token, at) };
    this.#asked.set(token.uuid, question);
    const forget = () => this.#asked.get(token.uuid) === question && this.#asked.delete(token.uuid);
    question.answer.then(forget, forget);
    return question.answer;
  }

  /** `readAt`: the time of the question, from which the age of the answer counts. */
  async #read(token: TokenText, readAt: number): Promise<KnownToken | undefined> {
    this.#questions += 1;
    const read = await this.#reading.ask({ uuid: token.uuid, number: this.#questions });
    this.#remember(token, read === undefined ? undefined : { ...read, readAt });
    return read;
  }

  /** Keeps only what the owner asked for: a caller that merely knows a uuid cannot keep it here. */
  #remember(token: TokenText, known: Remembered | undefined): void {
    const isGood = known !== undefined && !known.isOver && matchesHash(token.secret, known.secretHash);
    if (known === undefined || known.isOver) this.#remembered.delete(token.uuid);
    else if (isGood) this.#remembered.set(token.uuid, known);
  }

  async #check(): Promise<void> {
    if (this.#held.size === 0) {
      this.#knownUntil = null;
      return;
    }
    const { until, uuids } = await readTokensEndedSince(this.#deps.database, this.#knownUntil);
    this.#knownUntil = until;
    this.#end(uuids);
  }

  /**
   * A batch that fails comes again at the end of the pass, so it does not hold up the others (law
   * 9). If it fails again, the next pass has it.
   */
  async #checkNextBatch(): Promise<void> {
    if (this.#unchecked.length === 0) {
      this.#unchecked = [...this.#held.keys()];
      this.#failed.clear();
    }
    const batch = this.#unchecked.splice(0, this.#fullCheckLimit.count(this.#unchecked));
    if (batch.length === 0) return;
    const database = new TimedDatabase(this.#deps.backgroundDatabase, this.#deps.clock);
    try {
      const ended = await readEndedTokens(database, batch);
      this.#fullCheckLimit.answered(batch, database.tookMs);
      this.#end(ended);
    } catch (error) {
      if (isOutOfTime(error)) this.#fullCheckLimit.unanswered(batch, database.tookMs);
      const again = batch.filter((uuid) => !this.#failed.has(uuid));
      for (const uuid of again) this.#failed.add(uuid);
      this.#unchecked.push(...again);
      throw error;
    }
  }

  #end(uuids: readonly string[]): void {
    for (const uuid of uuids) {
      this.#remembered.delete(uuid);
      const holders = this.#held.get(uuid);
      if (holders === undefined) continue;
      this.#held.delete(uuid);
      this.#deps.log.info(
        { token_uuid: uuid, open: holders.size },
        'access: token revoked or expired; closing its connections',
      );
      for (const holder of [...holders]) holder();
    }
  }

  async #noteUsed(): Promise<void> {
    const uuids = [...this.#used];
    this.#used.clear();
    const left = new Set(uuids);
    try {
      await inBatches(uuids, async (batch) => {
        await recordTokenUses(this.#deps.backgroundDatabase, batch);
        for (const uuid of batch) left.delete(uuid);
      });
    } finally {
      for (const uuid of left) this.#used.add(uuid);
    }
  }

  /** Logs a failure as `message`. */
  async #attempt(message: string, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (isTemporary(error)) this.#deps.log.warn({ reason: messageOf(error.cause) }, message);
      else this.#deps.log.error({ err: error }, message);
    }
  }
}

/** Whether the statement ran out of time, so that a smaller batch may succeed. */
function isOutOfTime(error: unknown): boolean {
  return error instanceof DatabaseBusyError && (error.condition === 'slow' || error.condition === 'unanswered');
}

/**
 * A batch that fails alone does not hold up the others (law 9); while the database is down, all
 * would fail. @throws the first failure
 */
async function inBatches(uuids: readonly string[], work: (batch: string[]) => Promise<void>): Promise<void> {
  const failures: unknown[] = [];
  for (const batch of chunksOf(uuids, MAX_BATCH)) {
    try {
      await work(batch);
    } catch (error) {
      if (error instanceof DatabaseUnavailableError) throw error;
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
}

function actorOf({ name, role, uuid, serverUuid }: KnownToken): Actor {
  return { name, roles: [role], tokenUuid: uuid, ...(serverUuid === null ? {} : { serverUuid }) };
}
