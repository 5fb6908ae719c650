/**
 * What the audit records about one request that may change something. Made by the request
 * pipeline, which tells it with the handler of the route how far the request is.
 */
import type { AuditRecordPart } from '../audit-part.ts';
import type { AuditLog, AuditSubject } from './audit-log.ts';
import type { AuditOutcome } from './audit-store.ts';
import { mayHaveChanged, type RecordEvent, type RecordState, stepRecord } from './record-state.ts';

/** The status of a refusal because of a caller's limit. */
const LIMITED = 429;

export class RequestAudit {
  readonly #log: AuditLog;
  readonly #subject: AuditSubject;
  #state: RecordState = 'new';
  #createdObject: string | undefined;

  constructor(log: AuditLog, subject: AuditSubject) {
    this.#log = log;
    this.#subject = subject;
  }

  setActor(actor: Pick<AuditSubject, 'actor' | 'roles' | 'tokenUuid' | 'principalUuid'>): void {
    Object.assign(this.#subject, actor);
  }

  get mayHaveChanged(): boolean {
    return mayHaveChanged(this.#state);
  }

  /** The handler has checked the rights and tried the change, which may have failed. */
  get isRefusedByStatement(): boolean {
    return this.#state === 'writing';
  }

  /** Called when all rules are met: what follows may change something. */
  handlerStarted(): void {
    this.#step({ type: 'handle' });
  }

  /** The object that the request creates, for a request without an answer. */
  setAuditedObject(object: string): void {
    this.#createdObject = object;
  }

  /**
   * Called when the parameters are valid, before anything is changed. @throws
   * DatabaseUnavailableError
   */
  async begin(): Promise<void> {
    this.#step({ type: 'begin' });
    await this.#log.begin(this.#subject);
    this.#step({ type: 'written' });
  }

  /** Instead of `begin`: `work` writes the record together with the change. */
  async beginWith<Result>(
    work: (record: AuditRecordPart) => Promise<Result>,
    object: string | undefined,
  ): Promise<Result> {
    const part = this.#log.part({ ...this.#subject, object: object ?? this.#subject.object });
    const result = await work((...about) => {
      // The statement writes the record also if it refuses the change.
      this.#step({ type: 'write' });
      return part(...about);
    });
    this.#step({ type: 'written' });
    return result;
  }

  end(outcome: AuditOutcome): void {
    for (const effect of this.#step({ type: 'end', isLimited: outcome.status === LIMITED }))
      if (effect.do === 'end')
        this.#log.end(this.#subject, { ...outcome, object: outcome.object ?? this.#createdObject });
      else this.#log.refuse(this.#subject, outcome, { mayHaveBegun: effect.mayHaveBegun });
  }

  #step(event: RecordEvent): ReturnType<typeof stepRecord>['effects'] {
    const { state, effects } = stepRecord(this.#state, event);
    this.#state = state;
    return effects;
  }
}
