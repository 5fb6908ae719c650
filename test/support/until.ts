/** Waits for a condition by looking at it, with a limit no busy machine reaches. */
export async function until<Value>(
  look: () => Value | undefined | false | Promise<Value | undefined | false>,
  what: string,
  withinMs = 20_000,
): Promise<Value> {
  const end = Date.now() + withinMs;
  for (;;) {
    const value = await look();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > end) throw new Error(`waited ${withinMs} ms in vain for ${what}`);
    await new Promise((done) => setTimeout(done, 5));
  }
}
