/**
 * Takes authority for servers whose agents come to this instance: nearly all by one statement, those that come at once by
 * the same one; a look at the row when it stands against them, a probe when another incarnation of the same uuid holds it.
 * Bounded: so many accepts in flight, the rest wait in line, and those whose socket closed meanwhile are dropped.
 * docs/design.md section 5, "Accept".
 *
 *     hello ──▶ pending ──accept applied──▶ session
 *                  ├─row says no──▶ refused          ├─other incarnation──probe──▶ accept again, or refused
 *                  └─socket closed, in line──▶ gone; while the statement ran──▶ its row is ownerless
 */
import type { Bus } from '../bus/bus.ts';
import { type RunMessage, runTopic } from '../bus/topics.ts';
import type { Logger } from '../log.ts';
import { Batcher } from '../moray/batcher.ts';
import type { Queryable } from '../moray/database.ts';
import type { Clock } from '../ports/clock.ts';
import type { HelloFrame } from '../wire/frames.ts';
import { CapabilitySets } from './capabilities.ts';
import type { ProbeCaller } from './probe.ts';
import { decideHello, incarnationAlive, type Refusal } from './roster.ts';
import {
  type Accepted,
  acceptSession,
  acceptSessions,
  readRow,
  recordInventories,
  type Writer,
} from './roster-store.ts';
import type { Session, SessionSocket, SessionTable } from './session.ts';
import type { Verdicts } from './verdicts.ts';

export interface AuthorityDeps {
  database: Queryable;
  sessions: SessionTable;
  verdicts: Verdicts;
  probes: ProbeCaller;
  bus: Bus;
  writer: () => Writer;
  clock: Clock;
  log: Logger;
}

export interface Candidate {
  hello: HelloFrame;
  socket: SessionSocket;
  isOpen(): boolean;
}

export type Acceptance =
  | { kind: 'accepted'; session: Session }
  | { kind: 'refused'; refusal: Refusal }
  | { kind: 'gone' };

interface Taken {
  writer: Writer;
  accepted: Accepted;
}

const MAX_IN_FLIGHT = 200;
/** Rows of one statement: bounds its locks and its time. */
const MAX_BATCH = 100;
const MAX_ROUNDS = 5;

export class Authority {
  readonly #deps: AuthorityDeps;
  readonly #line: (() => void)[] = [];
  readonly #capabilities = new CapabilitySets();
  readonly #accepts: Batcher<HelloFrame, Taken>;
  readonly #inventories: Batcher<Session, Session>;
  #inFlight = 0;
  /** Accepts that took a row back from the incarnation that had just taken it: two machines share a uuid. */
  alternations = 0;

  constructor(deps: AuthorityDeps) {
    this.#deps = deps;
    const { clock } = deps;
    const keyOf = ({ serverUuid }: { serverUuid: string }) => serverUuid;
    this.#accepts = new Batcher<HelloFrame, Taken>({
      clock,
      keyOf,
      maxBatch: MAX_BATCH,
      ask: (hellos) => this.#takeAll(hellos),
    });
    this.#inventories = new Batcher<Session, Session>({
      clock,
      keyOf,
      maxBatch: MAX_BATCH,
      ask: (sessions) => this.#recordAll(sessions),
    });
  }

  get waiting(): number {
    return this.#line.length;
  }

  /** @throws DatabaseUnavailableError; nothing is known then of the row, which a slow poll will find ownerless if it is mine. */
  async accept(candidate: Candidate): Promise<Acceptance> {
    const { serverUuid } = candidate.hello;
    this.#deps.sessions.addPending(serverUuid);
    try {
      await this.#takePlace();
      try {
        return await this.#acceptInRounds(candidate);
      } finally {
        this.#givePlace();
      }
    } finally {
      this.#deps.sessions.removePending(serverUuid);
    }
  }

  /** The session's agent gave its inventory; false when the row is not the session's any more (it is ended then). */
  async confirmInventory(session: Session): Promise<boolean> {
    const isMine = (await this.#inventories.ask(session)) !== undefined;
    if (!isMine) this.#deps.verdicts.supersede(session, 'the roster names another session');
    else if (!session.isEnded) session.isInventoried = true;
    return isMine && !session.isEnded;
  }

  async #acceptInRounds(candidate: Candidate): Promise<Acceptance> {
    let replaces: string | null = null;
    for (let round = 0; round < MAX_ROUNDS; round += 1) {
      if (!candidate.isOpen()) return { kind: 'gone' };
      const taken = await this.#take(candidate.hello, replaces);
      if (taken !== undefined) return this.#register(candidate, taken);
      const row = await readRow(this.#deps.database, candidate.hello.serverUuid);
      const decision = decideHello(row, candidate.hello, replaces);
      if (decision.kind === 'refuse') return this.#refuse(candidate, decision.refusal);
      if (decision.kind === 'again') continue;
      if (await this.#deps.probes.isAlive(candidate.hello.serverUuid, decision))
        return this.#refuse(candidate, incarnationAlive);
      replaces = decision.incarnation;
    }
    return this.#refuse(candidate, {
      code: 'superseded',
      message: 'the row kept changing; come again',
      retryAfterMs: 1000,
    });
  }

  async #take(hello: HelloFrame, replaces: string | null): Promise<Taken | undefined> {
    if (replaces === null) return this.#accepts.ask(hello);
    const writer = this.#deps.writer();
    const accepted = await acceptSession(this.#deps.database, writer, hello, replaces);
    return accepted && { writer, accepted };
  }

  async #takeAll(hellos: readonly HelloFrame[]): Promise<Map<string, Taken>> {
    const writer = this.#deps.writer();
    const all = await acceptSessions(this.#deps.database, writer, hellos);
    return new Map([...all].map(([serverUuid, accepted]) => [serverUuid, { writer, accepted }]));
  }

  async #recordAll(sessions: readonly Session[]): Promise<Map<string, Session>> {
    const held = new Set(await recordInventories(this.#deps.database, sessions));
    return new Map(
      sessions.flatMap((session) => (held.has(session.serverUuid) ? [[session.serverUuid, session]] : [])),
    );
  }

  #register({ hello, socket, isOpen }: Candidate, { writer, accepted }: Taken): Acceptance {
    this.#tellPrevious(hello.serverUuid, writer, accepted);
    if (accepted.isAlternating) this.#noteAlternation(hello);
    if (!isOpen()) return { kind: 'gone' };
    const added = this.#deps.sessions.add({
      serverUuid: hello.serverUuid,
      epoch: accepted.epoch,
      incarnation: hello.incarnation,
      journalId: hello.journalId,
      capabilities: this.#capabilities.of(hello.capabilities),
      socket,
      run: writer.run,
      heardAt: this.#deps.clock.now(),
    });
    if (added === undefined)
      return this.#refuse(
        { hello, socket, isOpen },
        { code: 'superseded', message: 'a later connection was accepted' },
      );
    this.#deps.verdicts.forget(hello.serverUuid);
    if (added.replaced !== undefined)
      this.#deps.verdicts.supersede(added.replaced, `replaced by epoch ${accepted.epoch}`);
    this.#deps.log.info(
      {
        server_uuid: hello.serverUuid,
        epoch: accepted.epoch,
        incarnation: hello.incarnation,
        conn: hello.conn,
        previous_run: accepted.previousRun,
      },
      'session: pending -> live',
    );
    return { kind: 'accepted', session: added.session };
  }

  #tellPrevious(serverUuid: string, writer: Writer, { previousRun, epoch }: Accepted): void {
    if (previousRun === null || previousRun === writer.run) return;
    this.#deps.bus.publish(runTopic(previousRun), {
      kind: 'roster',
      server_uuid: serverUuid,
      epoch,
    } satisfies RunMessage);
  }

  #noteAlternation({ serverUuid, incarnation }: HelloFrame): void {
    this.alternations += 1;
    this.#deps.log.error(
      { server_uuid: serverUuid, incarnation },
      'two agents take turns with one server uuid: give one of the machines its own',
    );
  }

  #refuse({ hello }: Candidate, refusal: Refusal): Acceptance {
    this.#deps.log.info(
      { server_uuid: hello.serverUuid, conn: hello.conn, code: refusal.code },
      'session: pending -> refused',
    );
    return { kind: 'refused', refusal };
  }

  async #takePlace(): Promise<void> {
    if (this.#inFlight < MAX_IN_FLIGHT) {
      this.#inFlight += 1;
      return;
    }
    await new Promise<void>((resolve) => this.#line.push(resolve));
  }

  #givePlace(): void {
    const next = this.#line.shift();
    if (next === undefined) this.#inFlight -= 1;
    else next();
  }
}
