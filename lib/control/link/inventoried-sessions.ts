/**
 * The live sessions of this instance that tasks and push jobs may use: those whose inventory has
 * arrived.
 */
import type { Session, SessionTable } from '../roster/sessions/session.ts';
import type { TaskSessions } from '../tasks/sessions.ts';
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

  get(serverUuid: string): Session | undefined {
    const session = this.#sessions.get(serverUuid);
    return session?.isInventoried ? session : undefined;
  }
}
