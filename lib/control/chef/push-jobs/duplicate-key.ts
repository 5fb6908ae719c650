/** Finds what `JSON.parse` hides: a name that an object has twice. Pure. */

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]:]/g;

/**
 * The first name that the object `member` of the outermost object has twice. `text` is valid JSON,
 * of bounded length.
 */
export function duplicateKeyIn(text: string, member: string): string | undefined {
  const names = new Set<string>();
  let depth = 0;
  let path = '';
  let last = '';
  for (const [token] of text.matchAll(TOKEN)) {
    if (token === '{' || token === '[') depth += 1;
    else if (token === '}' || token === ']') depth -= 1;
    else if (token === ':' && depth <= 2) {
      const name: string = JSON.parse(last);
      if (depth === 1) {
        path = name;
        names.clear();
      } else if (path === member && names.has(name)) return name;
      else if (path === member) names.add(name);
    }
    last = token;
  }
  return undefined;
}
