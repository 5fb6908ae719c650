/**
 * Takes authority for servers whose agents connect to this instance. Most need one statement, which
 * agents that arrive concurrently share. If the row rejects the hello, the instance reads it, and
 * probes another incarnation of the same uuid that holds it. A bounded number of accepts is in
 * flight; the rest wait in a queue, and those whose socket closed meanwhile are dropped.
 * docs/design/roster.md, "Accept".
 *
 *     hello ──▶ pending ──accept applied──▶ session
 *                  ├─row rejects it──▶ refused
 *                  ├─other incarnation──probe──▶ accept again, or refused
 *                  ├─socket closed in the queue──▶ gone
 *                  └─socket closed while the statement ran──▶ its row is ownerless
 */
import type { Bus } from '../../../platform/bus/bus.ts';
import { Semaphore } from '../../../platform/limiting/semaphore.ts';
import type { Logger } from '../../../platform/log.ts';
import { Batcher, LOCKED } from '../../../platform/postgres/batches/batcher.ts';
import type { Queryable } from '../../../platform/postgres/database.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import type { HelloFrame } from '../../../protocol/link/frames.ts';
import { runTopic } from '../../run-topic.ts';
import { isLive } from '../membership/instance-store.ts';
import type { RunMessage } from '../run-message.ts';
import type { Session, SessionSocket, SessionTable } from '../sessions/session.ts';
import type { SessionLosses } from '../sessions/session-losses.ts';
import { decideHello, type HeldRow, type HelloRefusal, incarnationAlive } from '../status/authority-row.ts';
import {
  type AcceptedSession,
  acceptSession,
  acceptSessions,
  type RunIdentity,
  readRow,
  recordInventories,
} from '../status/roster-store.ts';
import { CapabilitySets } from './capabilities.ts';
import type { ProbeCaller, ProbeTarget } from './probe.ts';

interface AuthorityDeps {
  database: Queryable;
  /**
   * Runs the statements that admit agents, so that they do not queue behind other work. An agent
   * that waits too long disconnects, and the accept is wasted.
   */
  arrivalDatabase: Queryable;
  sessions: SessionTable;
  sessionLosses: SessionLosses;
  probes: Pick<ProbeCaller, 'isAlive'>;
  bus: Bus;
  writer: () => RunIdentity;
  clock: Clock;
  log: Logger;
}

interface Candidate {
  hello: HelloFrame;
  socket: SessionSocket;
  isOpen(): boolean;
}

type Acceptance =
  | { kind: 'accepted'; session: Session }
  | { kind: 'refused'; refusal: HelloRefusal }
  | { kind: 'gone' };

interface Taken {
  writer: RunIdentity;
  accepted: AcceptedSession;
}

const MAX_IN_FLIGHT = 200;
/** Rows of one statement: bounds its locks and its time. */
const MAX_BATCH = 100;
/**
 * A locked row of one server must not delay other accepts, nor make the database look slow
 * (`admission.ts`).
 */
const ACCEPT_LOCK_TIMEOUT_MS = 200;
const MAX_ROUNDS = 5;

export class Authority {
  readonly #deps: AuthorityDeps;
  readonly #acceptSlots = new Semaphore(MAX_IN_FLIGHT);
  readonly #capabilities = new CapabilitySets();
  readonly #accepts: Batcher<HelloFrame, Taken>;
  readonly #inventories: Batcher<Session, true>;
  /** When each unanswered statement that admits agents was sent; the oldest first. */
  readonly #sent = new Set<{ at: number }>();
  /**
   * Accepts that took a row back from the incarnation that had just taken it: two machines share a
   * uuid.
   */
  alternations = 0;
  /** Agents that were refused because they reconnected too often. */
  returnsRefused = 0;

  constructor(deps: AuthorityDeps) {
    this.#deps = deps;
    const { arrivalDatabase: database, clock, log } = deps;
    const keyOf = ({ serverUuid }: { serverUuid: string }) => serverUuid;
    this.#accepts = new Batcher<HelloFrame, Taken>({
      clock,
      log,
      database,
      what: 'accepts of agents',
      keyOf,
      maxBatch: MAX_BATCH,
      lockTimeoutMs: ACCEPT_LOCK_TIMEOUT_MS,
      ask: (hellos, connection) => this.#acceptAll(hellos, connection),
    });
    this.#inventories = new Batcher<Session, true>({
      clock,
      log,
      database,
      what: 'inventories of agents',
      keyOf,
      maxBatch: MAX_BATCH,
      ask: (sessions, connection) => this.#recordAll(sessions, connection),
    });
  }

  /** How long the oldest unanswered statement that admits an agent has been running. */
  get statementMs(): number {
    const [oldest] = this.#sent;
    return oldest === undefined ? 0 : this.#deps.clock.now() - oldest.at;
  }

  get waiting(): number {
    return this.#acceptSlots.waiting;
  }

  /**
   * @throws DatabaseUnavailableError; then the state of the row is unknown. If this run has it, a
   * slow poll will find it ownerless.
   */
  async accept(candidate: Candidate): Promise<Acceptance> {
    const { serverUuid } = candidate.hello;
    this.#deps.sessions.addPending(serverUuid);
    try {
      return await this.#acceptSlots.run(() => this.#acceptInRounds(candidate));
    } finally {
      this.#deps.sessions.removePending(serverUuid);
    }
  }

  /**
   * Records that the session's agent sent its inventory. Returns false and ends the session if the
   * row does not belong to it any more.
   */
  async confirmInventory(session: Session): Promise<boolean> {
    const isMine = (await this.#inventories.ask(session)) !== undefined;
    if (!isMine) this.#deps.sessionLosses.supersede(session, 'the roster names another session');
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
      if (await this.#isConnected(candidate.hello.serverUuid, decision))
        return this.#refuse(candidate, incarnationAlive);
      replaces = decision.incarnation;
    }
    return this.#refuse(candidate, {
      code: 'superseded',
      message: "the server's authority changed repeatedly; reconnect",
      retryAfterMs: 1000,
    });
  }

  /** A dead run does not answer probes. */
  async #isConnected(serverUuid: string, target: ProbeTarget): Promise<boolean> {
    const { database, probes, writer } = this.#deps;
    if (target.run !== writer().run && !(await isLive(database, target.run))) return false;
    return probes.isAlive(serverUuid, target);
  }

  async #take(hello: HelloFrame, replaces: string | null): Promise<Taken | undefined> {
    if (replaces === null) return this.#accepts.ask(hello);
    const writer = this.#deps.writer();
    const accepted = await acceptSession(this.#deps.database, writer, hello, replaces);
    return accepted && { writer, accepted };
  }

  async #acceptAll(hellos: readonly HelloFrame[], database: Queryable): Promise<Map<string, Taken>> {
    const writer = this.#deps.writer();
    const all = await this.#timed(acceptSessions(database, writer, hellos));
    return new Map([...all].map(([serverUuid, accepted]) => [serverUuid, { writer, accepted }]));
  }

  async #recordAll(sessions: readonly Session[], database: Queryable): Promise<Map<string, true | typeof LOCKED>> {
    const asked = sessions.map(({ serverUuid, run, epoch }) => ({ serverUuid, run, epoch }));
    const answers = await this.#recordInventories(asked, database);
    // A row can move to a new run before its session knows of it.
    const { run } = this.#deps.writer();
    const moved = asked
      .filter((one) => !answers.has(one.serverUuid) && one.run !== run)
      .map((one) => ({ ...one, run }));
    if (moved.length === 0) return answers;
    return new Map([...answers, ...(await this.#recordInventories(moved, database))]);
  }

  async #recordInventories(rows: readonly HeldRow[], database: Queryable): Promise<Map<string, true | typeof LOCKED>> {
    const { applied, locked } = await this.#timed(recordInventories(database, rows));
    const answers = new Map<string, true | typeof LOCKED>(applied.map((serverUuid) => [serverUuid, true]));
    for (const serverUuid of locked) answers.set(serverUuid, LOCKED);
    return answers;
  }

  async #timed<Answer>(asked: Promise<Answer>): Promise<Answer> {
    const sent = { at: this.#deps.clock.now() };
    this.#sent.add(sent);
    return await asked.finally(() => this.#sent.delete(sent));
  }

  #register({ hello, socket, isOpen }: Candidate, { writer, accepted }: Taken): Acceptance {
    this.#notifyPrevious(hello.serverUuid, writer, accepted);
    if (accepted.isAlternating) this.#noteAlternation(hello, socket);
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
    this.#deps.sessionLosses.forget(hello.serverUuid);
    if (added.replaced !== undefined)
      this.#deps.sessionLosses.supersede(added.replaced, `replaced by epoch ${accepted.epoch}`);
    const { serverUuid: server_uuid, incarnation, conn } = hello;
    const { epoch, previousRun: previous_run } = accepted;
    if (socket.mayLog())
      this.#deps.log.info({ server_uuid, epoch, incarnation, conn, previous_run }, 'session: pending -> live');
    return { kind: 'accepted', session: added.session };
  }

  #notifyPrevious(serverUuid: string, writer: RunIdentity, { previousRun, epoch }: AcceptedSession): void {
    if (previousRun === null || previousRun === writer.run) return;
    this.#deps.bus.publish(runTopic(previousRun), {
      kind: 'roster',
      server_uuid: serverUuid,
      epoch,
    } satisfies RunMessage);
  }

  #noteAlternation({ serverUuid, incarnation }: HelloFrame, socket: SessionSocket): void {
    this.alternations += 1;
    if (!socket.mayLog()) return;
    this.#deps.log.error(
      { server_uuid: serverUuid, incarnation },
      'session: two agents take turns with one server uuid: give one of the machines its own',
    );
  }

  #refuse({ hello, socket }: Candidate, refusal: HelloRefusal): Acceptance {
    if (refusal.code === 'returns-too-often') this.returnsRefused += 1;
    const fields = { server_uuid: hello.serverUuid, conn: hello.conn, code: refusal.code };
    if (socket.mayLog()) this.#deps.log.info(fields, 'session: pending -> refused');
    return { kind: 'refused', refusal };
  }
}
