import { HANG_MS } from './patience.ts';

/**
 * Waits until a condition holds, with a limit that no busy machine reaches. A slow check runs less
 * often. Without `what` the error shows the check's source.
 */
export async function until<Value>(
  look: () => Value | undefined | false | Promise<Value | undefined | false>,
  what = String(look),
  withinMs = HANG_MS,
): Promise<Value> {
  const end = performance.now() + withinMs;
  for (;;) {
    const lookedAt = performance.now();
    const value = await look();
    if (value !== undefined && value !== false) return value;
    const now = performance.now();
    if (now > end) throw new Error(`waited ${withinMs} ms in vain: ${what}`);
    const pauseMs = Math.min(Math.max(5, 2 * (now - lookedAt)), 50);
    await new Promise((done) => setTimeout(done, pauseMs));
  }
}
