import { HANG_MS } from './patience.ts';

/** Waits for a condition by looking at it, with a limit no busy machine reaches. */
export async function until<Value>(
  look: () => Value | undefined | false | Promise<Value | undefined | false>,
  what: string,
  withinMs = HANG_MS,
): Promise<Value> {
  const end = Date.now() + withinMs;
  for (;;) {
    const value = await look();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > end) throw new Error(`waited ${withinMs} ms in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}
