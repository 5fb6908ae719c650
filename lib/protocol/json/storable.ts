/**
 * Decides which JSON the database can store: no NUL, no half of a surrogate pair, no number that a
 * double cannot hold, and no nesting deeper than MAX_JSON_DEPTH. Pure. Called once for each value
 * that goes to the database, so that no input makes a statement fail later or is stored changed.
 * The number of values is limited before (`bounded-json.ts`).
 */
export const MAX_JSON_DEPTH = 64;

/**
 * Returns why `value`, a result of `JSON.parse`, cannot be stored; undefined when it can. Walks it
 * in place, without a copy.
 */
export function reasonNotStorable(value: unknown): string | undefined {
  return reasonAt(value, MAX_JSON_DEPTH);
}

function reasonAt(value: unknown, levelsLeft: number): string | undefined {
  if (typeof value === 'string') return reasonNotText(value);
  if (typeof value === 'number') return Number.isFinite(value) ? undefined : 'contains a number that is too large';
  if (typeof value !== 'object' || value === null) return undefined;
  if (levelsLeft === 0) return `is nested more than ${MAX_JSON_DEPTH} levels deep`;
  if (Array.isArray(value)) {
    for (let at = 0; at < value.length; at += 1) {
      const reason = reasonAt(value[at], levelsLeft - 1);
      if (reason !== undefined) return reason;
    }
    return undefined;
  }
  // `JSON.parse` creates own members only; `for in` allocates no list of pairs.
  for (const name in value) {
    const reason = reasonNotText(name) ?? reasonAt((value as Record<string, unknown>)[name], levelsLeft - 1);
    if (reason !== undefined) return reason;
  }
  return undefined;
}

/** The text with what the database cannot store replaced by U+FFFD. */
export function toStorableText(text: string): string {
  return text.toWellFormed().replaceAll('\0', '\uFFFD');
}

function reasonNotText(text: string): string | undefined {
  const isText = !text.includes('\0') && text.isWellFormed();
  return isText ? undefined : 'contains a NUL character or half of a surrogate pair';
}
