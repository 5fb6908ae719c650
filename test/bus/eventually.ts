import { setTimeout as sleep } from 'node:timers/promises';
import { HANG_MS } from '../support/patience.ts';

/** Waits until `condition` holds; rejects after `patienceMs`, which is generous because the machine may be busy. */
export async function eventually(condition: () => boolean | Promise<boolean>, patienceMs = HANG_MS): Promise<void> {
  const deadline = performance.now() + patienceMs;
  while (!(await condition())) {
    if (performance.now() > deadline) throw new Error(`never came true: ${condition}`);
    await sleep(5);
  }
}
