/**
 * The live sessions of this instance as tasks and the listeners of agents see them: those with an
 * inventory.
 */
import type { Session, SessionTable } from '../roster/sessions/session.ts';
import type { TaskSessions } from '../tasks/sessions.ts';
import type { AgentSession } from './agent-listener.ts';
import type { UnsentFrames } from './unsent-frames.ts';

interface InventoriedSessionsDeps {
  sessions: SessionTable;
  run: () => string;
  unsent: Pick<UnsentFrames, 'isFull'>;
}

export class InventoriedSessions implements TaskSessions {
  readonly #sessions: SessionTable;
  readonly #run: () => string;
  readonly #unsent: Pick<UnsentFrames, 'isFull'>;
  readonly #views = new WeakMap<Session, AgentSession>();

  constructor({ sessions, run, unsent }: InventoriedSessionsDeps) {
    this.#sessions = sessions;
    this.#run = run;
    this.#unsent = unsent;
  }

  get isFull(): boolean {
    return this.#unsent.isFull;
  }

  run(): string {
    return this.#run();
  }

  get(serverUuid: string): AgentSession | undefined {
    const session = this.session(serverUuid);
    return session && this.view(session);
  }

  /** The same session as the link sees it. */
  session(serverUuid: string): Session | undefined {
    const session = this.#sessions.get(serverUuid);
    return session?.isInventoried ? session : undefined;
  }

  /** Returns the same view for the same session, so views can be compared. */
  view(session: Session): AgentSession {
    const known = this.#views.get(session);
    if (known !== undefined) return known;
    const view = new SessionView(session);
    this.#views.set(session, view);
    return view;
  }
}

/** There is one for each agent, so it stores nothing but the session. */
class SessionView implements AgentSession {
  readonly #session: Session;

  constructor(session: Session) {
    this.#session = session;
  }

  get serverUuid(): string {
    return this.#session.serverUuid;
  }

  get epoch(): number {
    return this.#session.epoch;
  }

  get incarnation(): string {
    return this.#session.incarnation;
  }

  get journalId(): string {
    return this.#session.journalId;
  }

  get capabilities(): ReadonlySet<string> {
    return this.#session.capabilities;
  }

  get isBackedUp(): boolean {
    return this.#session.socket.isBackedUp;
  }

  get unsentBytes(): number {
    return this.#session.socket.unsentBytes;
  }

  send(frame: Parameters<AgentSession['send']>[0]): boolean {
    const { isEnded, socket } = this.#session;
    return !isEnded && socket.send(frame);
  }
}
