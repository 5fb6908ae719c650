/**
 * Carries out the work on a duty until it ends, fails or is aborted. A slow or unreachable database
 * is not a failure of the work (law 9): the handler is called again under the same generation after
 * a short pause. Called by `duty-keeper.ts`.
 */
import { isTemporary, messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import type { DutyHandlers, HeldDuty } from './duty.ts';

/** Doubles while there are only errors. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 1_000;

interface WorkDeps {
  clock: Clock;
  log: Logger;
  handlers: DutyHandlers;
  onRetry: () => void;
}

/** @throws the error of the handler, and what `signal` aborts with */
export async function carryOutWithRetries(
  { clock, log, handlers, onRetry }: WorkDeps,
  duty: HeldDuty,
  signal: AbortSignal,
): Promise<void> {
  const { id: duty_id, kind, generation } = duty;
  const handler = handlers[kind];
  if (handler === undefined) throw new Error(`no handler for duties of kind ${kind}`);
  for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS)) {
    signal.throwIfAborted();
    const beganAt = clock.now();
    try {
      return await handler.carryOut(duty, signal);
    } catch (error) {
      if (signal.aborted || !isTemporary(error)) throw error;
      if (clock.now() - beganAt > LONGEST_PAUSE_MS) pauseMs = FIRST_PAUSE_MS;
      // Once for errors in a row.
      if (pauseMs === FIRST_PAUSE_MS)
        log.warn({ duty_id, kind, generation, reason: messageOf(error) }, 'duty: work waits for the database');
    }
    onRetry();
    await clock.sleep(pauseMs, signal);
  }
}
