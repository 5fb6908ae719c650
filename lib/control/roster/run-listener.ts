import type { BusMessage } from '../../platform/bus/bus.ts';

/** What happens to the run of an instance, for the nouns whose work depends on it. */
export interface RunListener {
  /** A message to this run (`run-topic.ts`). */
  onMessage?(message: BusMessage): void;
  /** Messages to this run arrive from now on; earlier ones may have been lost. */
  onSubscriptionConfirmed?(): void;
  /** This instance has a new run, because the old one was found dead. */
  onRunRenewed?(): void;
  /** Runs that were live are not live any more. */
  onRunsEnded?(): void;
  /** This instance is healthy again. */
  onRecovered?(): void;
}
