/** The events by which the work of the runtime ends. */
import { messageOf } from '../../platform/errors.ts';
import type { ContainerEvent } from './lifecycle.ts';

interface OutcomeEvents {
  done: ContainerEvent;
  failed(reason: string): ContainerEvent;
}

export const preparationEvents: OutcomeEvents = {
  done: { type: 'prepared' },
  failed: (reason) => ({ type: 'preparation-failed', reason }),
};

export const startEvents = (run: number): OutcomeEvents => ({
  done: { type: 'started', run },
  failed: (reason) => ({ type: 'start-failed', run, reason }),
});

export async function runForEvent(work: () => Promise<void>, { done, failed }: OutcomeEvents): Promise<ContainerEvent> {
  try {
    await work();
    return done;
  } catch (error) {
    return failed(messageOf(error));
  }
}
