/** What the rules found: how often each was held against something, how often that proved nothing, and what must not be. */
import type { Workload } from './history.ts';

export interface Judgement {
  rule: string;
  at: number;
  workload: Workload;
  /** `void`: nothing can be said, because the machine or a fault stood in the way. */
  verdict: 'held' | 'void' | 'violated';
  /** Of violations. */
  text?: string;
}

export class SessionLosses {
  readonly all: Judgement[] = [];
  readonly rule: string;
  readonly #workload: Workload;

  constructor(rule: string, workload: Workload) {
    this.rule = rule;
    this.#workload = workload;
  }

  /** Was it so? `text` says what was, if it was not. */
  holds(isSo: boolean, at: number, text: () => string, workload = this.#workload): void {
    const head = { rule: this.rule, at, workload };
    this.all.push(isSo ? { ...head, verdict: 'held' } : { ...head, verdict: 'violated', text: text() });
  }

  void(at: number, workload = this.#workload): void {
    this.all.push({ rule: this.rule, at, workload, verdict: 'void' });
  }
}
