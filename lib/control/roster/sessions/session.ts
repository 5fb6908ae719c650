/**
 * A session: one accepted connection of one agent to this instance; and the table of the sessions
 * that this instance holds.
 *
 *     pending ──accept statement applied──▶ live ──inventory recorded──▶ live, inventoried
 *        └─refused, or its socket closed──▶ gone            any live ──end()──▶ ended, for good
 *
 * The table is plain data: the authority adds sessions, `SessionLosses` ends them, the link reads
 * them.
 */
import type { InstanceAddress, InstanceFrame } from '../../../protocol/link/frames.ts';
import type { LossReason } from '../status/authority-row.ts';
import type { PeerSilence } from './silence.ts';

/** What an instance may do with the connection of a session. */
export interface SessionSocket {
  /** This instance has paused reading from it, so silence does not show that its agent is dead. */
  readonly isUnread: boolean;
  /** Many sent bytes are still buffered in this instance: delay every frame that can wait. */
  readonly isBackedUp: boolean;
  /** Bytes sent that have not left this instance. */
  readonly unsentBytes: number;
  /**
   * Whether the log may have another line about what its peer does; if not, the line is counted.
   */
  mayLog(): boolean;
  /**
   * Queues the frame; false when the connection is closed or its peer takes no more bytes. `text`:
   * the encoded frame, if many are sent the same one.
   */
  send(frame: InstanceFrame, text?: string): boolean;
  /** Sends a probe, which the peer's WebSocket library answers. */
  probe(): void;
  /** Resolves true as soon as the peer answers a probe sent now, false after `withinMs`. */
  answersProbe(withinMs: number): Promise<boolean>;
  /** Asks the agent to move to another instance. It may stay, or must leave `withinMs`. */
  askToLeave(reason: string, addresses: InstanceAddress[], withinMs?: number): void;
  /** Closes immediately, with the reason for the peer's log. */
  terminate(reason: string): void;
}

/** What is known of a session when its row is accepted. */
export interface NewSession {
  serverUuid: string;
  epoch: number;
  incarnation: string;
  journalId: string;
  capabilities: ReadonlySet<string>;
  socket: SessionSocket;
  /** The run on its row. */
  run: string;
  /** This process's monotonic clock at the last byte received. */
  heardAt: number;
}

export class Session implements PeerSilence {
  readonly serverUuid: string;
  readonly epoch: number;
  readonly incarnation: string;
  readonly journalId: string;
  readonly capabilities: ReadonlySet<string>;
  readonly socket: SessionSocket;
  /** The run on its row; changes when the instance takes a new run. */
  run: string;
  /**
   * Counts registrations at this instance: a poll compares the session only if it was registered
   * before the poll was sent.
   */
  registration: number;
  /** This process's monotonic clock at the last byte received. */
  heardAt: number;
  quietMs = 0;
  isProbed = false;
  isInventoried = false;
  isEnded = false;
  /** Why it was lost, if it was. */
  lostFor: LossReason | undefined = undefined;

  constructor(accepted: NewSession, registration: number) {
    this.serverUuid = accepted.serverUuid;
    this.epoch = accepted.epoch;
    this.incarnation = accepted.incarnation;
    this.journalId = accepted.journalId;
    this.capabilities = accepted.capabilities;
    this.socket = accepted.socket;
    this.run = accepted.run;
    this.registration = registration;
    this.heardAt = accepted.heardAt;
  }

  get isBackedUp(): boolean {
    return this.socket.isBackedUp;
  }

  get unsentBytes(): number {
    return this.socket.unsentBytes;
  }

  /** Queues the frame; false if the session has ended or its peer takes no more bytes. */
  send(frame: InstanceFrame, text?: string): boolean {
    return !this.isEnded && this.socket.send(frame, text);
  }
}

export class SessionTable {
  readonly #live = new Map<string, Session>();
  readonly #pending = new Map<string, number>();
  #registrations = 0;

  get size(): number {
    return this.#live.size;
  }

  /** Registrations so far; later ones have higher numbers. */
  get registrations(): number {
    return this.#registrations;
  }

  get(serverUuid: string): Session | undefined {
    return this.#live.get(serverUuid);
  }

  all(): Iterable<Session> {
    return this.#live.values();
  }

  /** An accept for this server has been sent to the database. */
  addPending(serverUuid: string): void {
    this.#registrations += 1;
    this.#pending.set(serverUuid, (this.#pending.get(serverUuid) ?? 0) + 1);
  }

  removePending(serverUuid: string): void {
    const left = (this.#pending.get(serverUuid) ?? 1) - 1;
    if (left === 0) this.#pending.delete(serverUuid);
    else this.#pending.set(serverUuid, left);
  }

  isPending(serverUuid: string): boolean {
    return this.#pending.has(serverUuid);
  }

  /**
   * Registers an accepted session unless one of a higher epoch exists. Returns it and the session
   * that it replaces.
   */
  add(fields: NewSession): { session: Session; replaced: Session | undefined } | undefined {
    const replaced = this.#live.get(fields.serverUuid);
    if (replaced !== undefined && replaced.epoch > fields.epoch) return undefined;
    this.#registrations += 1;
    const session = new Session(fields, this.#registrations);
    this.#live.set(fields.serverUuid, session);
    return { session, replaced };
  }

  /** The session's row has moved to another run; a poll that was sent before does not know that. */
  moveToRun(session: Session, run: string): void {
    this.#registrations += 1;
    session.registration = this.#registrations;
    session.run = run;
  }

  /** Ends the session; false when it had already ended. */
  end(session: Session): boolean {
    if (session.isEnded) return false;
    session.isEnded = true;
    if (this.#live.get(session.serverUuid) === session) this.#live.delete(session.serverUuid);
    return true;
  }
}
