/**
 * The results of the rules: how often each was applied, how often that proved nothing, and the
 * violations.
 */
import type { Workload } from './history.ts';

export interface CheckResult {
  rule: string;
  at: number;
  workload: Workload;
  /** `void`: nothing can be concluded, because of the machine or a fault. */
  outcome: 'held' | 'void' | 'violated';
  /** What happened, for violations only. */
  text?: string;
}

export class Findings {
  readonly all: CheckResult[] = [];
  readonly rule: string;
  readonly #workload: Workload;

  constructor(rule: string, workload: Workload) {
    this.rule = rule;
    this.#workload = workload;
  }

  /** Records whether a rule held. `text` describes a violation. */
  holds(isSo: boolean, at: number, text: () => string, workload = this.#workload): void {
    const head = { rule: this.rule, at, workload };
    this.all.push(isSo ? { ...head, outcome: 'held' } : { ...head, outcome: 'violated', text: text() });
  }

  void(at: number, workload = this.#workload): void {
    this.all.push({ rule: this.rule, at, workload, outcome: 'void' });
  }
}
