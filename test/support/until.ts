import { HANG_MS } from './patience.ts';

/**
 * Waits for a condition by looking at it, with a limit no busy machine reaches. A look that takes its time is taken more rarely.
 * Without `what` the error says what the look asked.
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
