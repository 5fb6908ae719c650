/**
 * Limits on what callers use of this instance: memory for answers, long-lasting requests, the cost
 * of bodies, and log lines. The listener passes this one object to each exchange, and the metrics
 * read its counters.
 */

import { MIB } from '../../../platform/byte-units.ts';
import type { MemoryBudget } from '../../../platform/limiting/memory-budget.ts';
import type { Logger } from '../../../platform/log.ts';
import type { Clock } from '../../../platform/time/clock.ts';
import { answerBudget } from './answer-budget.ts';
import { BodyCosts } from './body-costs.ts';
import { bodyMemory } from './body-memory.ts';
import { type CallerQuotaOptions, CallerQuotas } from './caller-quotas.ts';
import { RequestLog } from './request-log.ts';

export interface CallerLimitsConfig extends CallerQuotaOptions {
  access: 'open' | 'tokens';
  answerMemoryMiB: number;
  answerMemoryPerCallerMiB: number;
  logLinesPerSource: number;
  requestsPerSecond: number;
}

export class CallerLimits {
  readonly answers: MemoryBudget;
  readonly quotas: CallerQuotas;
  readonly bodies: BodyCosts;
  readonly bodyMemory = bodyMemory();
  readonly requestLog: RequestLog;
  /**
   * No token is required: all callers on this machine count as one, without quotas
   * (docs/decisions/open-access-limits-no-caller.md).
   */
  readonly isOpen: boolean;
  #slowReaders = 0;

  constructor(config: CallerLimitsConfig, { clock, log }: { clock: Clock; log: Logger }) {
    const { access, answerMemoryMiB, answerMemoryPerCallerMiB } = config;
    this.isOpen = access === 'open';
    this.quotas = new CallerQuotas(config);
    this.bodies = new BodyCosts(config);
    this.requestLog = new RequestLog({ linesPerSecond: config.logLinesPerSource, clock, log });
    this.answers = answerBudget({
      maxBytes: answerMemoryMiB * MIB,
      maxBytesPerCaller: answerMemoryPerCallerMiB * MIB,
    });
  }

  /** A caller did not read its answer in time and was cut off. */
  noteSlowReader(): void {
    this.#slowReaders += 1;
  }

  /** Callers that were cut off because they did not read their answers. */
  get slowReaders(): number {
    return this.#slowReaders;
  }
}
