/**
 * Which JSON the database can keep: no NUL, no half of a surrogate pair, no number that a double cannot hold, no deeper
 * than anything real. Pure; asked once, of all that comes in, so that no text of a caller's can make a statement fail
 * further in, or be kept as something else.
 */
export const MAX_JSON_DEPTH = 64;

/** Why `value` cannot be kept; undefined when it can. */
export function reasonNotStorable(value: unknown): string | undefined {
  const open: { value: unknown; depth: number }[] = [{ value, depth: 0 }];
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    const { value: one, depth } = next;
    if (typeof one === 'string') {
      if (!isText(one)) return 'contains a NUL character or half of a surrogate pair';
    } else if (typeof one === 'number') {
      if (!Number.isFinite(one)) return 'contains a number that is too large';
    } else if (typeof one === 'object' && one !== null) {
      if (depth === MAX_JSON_DEPTH) return `is nested more than ${MAX_JSON_DEPTH} levels deep`;
      for (const [key, inner] of Object.entries(one))
        open.push({ value: key, depth }, { value: inner, depth: depth + 1 });
    }
  }
  return undefined;
}

function isText(value: string): boolean {
  return !value.includes('\0') && value.isWellFormed();
}
