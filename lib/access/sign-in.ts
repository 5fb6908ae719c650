/**
 * From a token's text to who signs in with it, and the end of what was opened with one that is good no more. Called by
 * `gate.ts`. Nothing waits for the bus: what is known of a token is read again when it is 400 ms old, and whatever lasts longer (links,
 * waits, streams) is held in a list that is looked through as often. So a revoked token is worth nothing within a second, on every
 * instance, by the database's word alone. While that does not answer, nobody new signs in, and nobody is cut off.
 */
import { DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import { Batcher } from '../moray/batcher.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock, Timer } from '../ports/clock.ts';
import { type Actor, isSecret, parseToken, type TokenText } from './token.ts';
import { type KnownToken, noteUsed, readEnded, readEndedSince, readGood, readTokens } from './token-store.ts';

export interface SignInDeps {
  database: Queryable;
  clock: Clock;
  log: Logger;
}

interface Remembered extends KnownToken {
  readAt: number;
}

const FRESH_MS = 400;
const WATCH_MS = 400;
/**
 * Everything that is held, by uuid: for what a look at the last changes cannot see, as after a step of the database's clock, or of a
 * revocation whose commit waited for a standby.
 */
const FULL_LOOK_MS = 5_000;
const NOTE_USED_MS = 20_000;
const MAX_REMEMBERED = 50_000;
const MAX_BATCH = 1_000;

export class SignIn {
  readonly #deps: SignInDeps;
  /** The one not read for longest comes first. */
  readonly #remembered = new Map<string, Remembered>();
  readonly #held = new Map<string, Set<() => void>>();
  readonly #used = new Set<string>();
  readonly #reading: Batcher<string, KnownToken>;
  /** Being read, so that many requests of one caller ask once. */
  readonly #asked = new Map<string, { at: number; answer: Promise<KnownToken | undefined> }>();
  #timers: Timer[] = [];
  #looking: Promise<void> | undefined;
  #knownUntil: string | null = null;
  #fullLookAt = 0;
  #isFailing = false;

  constructor(deps: SignInDeps) {
    this.#deps = deps;
    this.#reading = new Batcher({
      clock: deps.clock,
      keyOf: (uuid) => uuid,
      ask: (uuids) => readTokens(deps.database, uuids),
      maxBatch: MAX_BATCH,
      gapMs: 0,
    });
  }

  start(): void {
    const { clock } = this.#deps;
    this.#fullLookAt = clock.now() + FULL_LOOK_MS;
    void this.#rememberAll();
    this.#timers = [
      clock.every(WATCH_MS, () => this.#lookSoon()),
      clock.every(NOTE_USED_MS, () => void this.#noteUsed()),
    ];
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers.splice(0)) timer.cancel();
    await this.#looking;
    await this.#noteUsed();
  }

  /** Whose token it is, if this instance has seen it to be good, however long ago: worth a question to the database. */
  remembered(text: string): Actor | undefined {
    const token = parseToken(text);
    const known = token === undefined ? undefined : this.#remembered.get(token.uuid);
    return token !== undefined && known !== undefined && isSecret(token.secret, known.secretHash)
      ? actorOf(known)
      : undefined;
  }

  /**
   * Who that is; undefined when the token is not good. With `mayBeOld` a token that was good is so until the database answers
   * again. @throws DatabaseUnavailableError
   */
  async whoIs(text: string, { mayBeOld = false } = {}): Promise<Actor | undefined> {
    const token = parseToken(text);
    if (token === undefined) return undefined;
    const known = await this.#known(token, mayBeOld);
    if (known === undefined || !isSecret(token.secret, known.secretHash) || known.isOver) return undefined;
    this.#used.add(known.uuid);
    return actorOf(known);
  }

  /** Calls `onEnded` once when the actor's token ends, unless the returned function was called before. */
  hold({ tokenUuid }: Actor, onEnded: () => void): () => void {
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

  /** So that a neighbour's bad tokens lock out nobody whom this instance has not met since it started. */
  async #rememberAll(): Promise<void> {
    try {
      for (const token of await readGood(this.#deps.database, MAX_REMEMBERED))
        if (!this.#remembered.has(token.uuid))
          this.#remembered.set(token.uuid, { ...token, readAt: Number.NEGATIVE_INFINITY });
    } catch (error) {
      this.#note(error, 'access: the tokens that there are were not read; each will be when it is used');
    }
  }

  async #known(token: TokenText, mayBeOld: boolean): Promise<KnownToken | undefined> {
    const remembered = this.#remembered.get(token.uuid);
    if (remembered !== undefined && this.#deps.clock.now() - remembered.readAt <= FRESH_MS) return remembered;
    try {
      return await this.#ask(token);
    } catch (error) {
      if (mayBeOld && remembered !== undefined && error instanceof DatabaseUnavailableError) return remembered;
      throw error;
    }
  }

  #ask(token: TokenText): Promise<KnownToken | undefined> {
    const asked = this.#asked.get(token.uuid);
    const at = this.#deps.clock.now();
    // One that is late may have been answered before a revocation that we are to know of.
    if (asked !== undefined && at - asked.at <= FRESH_MS) return asked.answer;
    const question = { at, answer: this.#read(token, at) };
    this.#asked.set(token.uuid, question);
    const forget = () => this.#asked.get(token.uuid) === question && this.#asked.delete(token.uuid);
    question.answer.then(forget, forget);
    return question.answer;
  }

  /** As old as the question, not as the answer. */
  async #read(token: TokenText, readAt: number): Promise<KnownToken | undefined> {
    const read = await this.#reading.ask(token.uuid);
    this.#remember(token, read === undefined ? undefined : { ...read, readAt });
    return read;
  }

  /** Only what its owner asked for: a stranger who knows a uuid cannot keep it here. */
  #remember(token: TokenText, known: Remembered | undefined): void {
    const isGood = known !== undefined && !known.isOver && isSecret(token.secret, known.secretHash);
    if (known === undefined || known.isOver || isGood) this.#remembered.delete(token.uuid);
    if (isGood) this.#remembered.set(token.uuid, known);
    if (this.#remembered.size <= MAX_REMEMBERED) return;
    const [oldest] = this.#remembered.keys();
    if (oldest !== undefined) this.#remembered.delete(oldest);
  }

  #lookSoon(): void {
    if (this.#held.size === 0) {
      this.#knownUntil = null;
      return;
    }
    this.#looking ??= this.#look().finally(() => {
      this.#looking = undefined;
    });
  }

  async #look(): Promise<void> {
    try {
      const { until, uuids } = await readEndedSince(this.#deps.database, this.#knownUntil);
      this.#knownUntil = until;
      this.#end(uuids);
      if (this.#deps.clock.now() >= this.#fullLookAt) await this.#lookAtAll();
      this.#isFailing = false;
    } catch (error) {
      this.#note(error, 'access: revoked tokens cannot be looked for; what is open stays open');
    }
  }

  async #lookAtAll(): Promise<void> {
    const held = [...this.#held.keys()];
    for (let at = 0; at < held.length; at += MAX_BATCH)
      this.#end(await readEnded(this.#deps.database, held.slice(at, at + MAX_BATCH)));
    this.#fullLookAt = this.#deps.clock.now() + FULL_LOOK_MS;
  }

  #end(uuids: readonly string[]): void {
    for (const uuid of uuids) {
      this.#remembered.delete(uuid);
      const holders = this.#held.get(uuid);
      if (holders === undefined) continue;
      this.#held.delete(uuid);
      this.#deps.log.info({ token_uuid: uuid, open: holders.size }, 'access: token ended, and what it has open');
      for (const holder of [...holders]) holder();
    }
  }

  async #noteUsed(): Promise<void> {
    const uuids = [...this.#used];
    this.#used.clear();
    try {
      for (let at = 0; at < uuids.length; at += MAX_BATCH)
        await noteUsed(this.#deps.database, uuids.slice(at, at + MAX_BATCH));
    } catch (error) {
      this.#note(error, 'access: last uses of tokens were not noted');
    }
  }

  #note(error: unknown, what: string): void {
    if (!(error instanceof DatabaseUnavailableError)) this.#deps.log.error({ err: error }, what);
    else if (!this.#isFailing) this.#deps.log.warn({ reason: messageOf(error.cause) }, what);
    this.#isFailing = true;
  }
}

function actorOf({ name, role, uuid, serverUuid }: KnownToken): Actor {
  return { name, roles: [role], tokenUuid: uuid, ...(serverUuid === null ? {} : { serverUuid }) };
}
