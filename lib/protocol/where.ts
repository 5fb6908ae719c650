/**
 * The filter language over servers: `hostname=web-*`, `traits.rack=r1`, `status!=running`. The name
 * is a property of GET /servers, or the path to a part of one; `*` stands for any text. A missing
 * property counts as an empty text. Pure.
 */
export interface WhereCondition {
  path: readonly string[];
  isNot: boolean;
  /** The texts between the `*`. */
  parts: readonly string[];
}

/** Returns undefined if the text is not a condition. */
export function parseWhere(text: string): WhereCondition | undefined {
  const [, name, not, value] = /^([A-Za-z_][\w.-]*?)(!?)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined) return undefined;
  return { path: name.split('.'), isNot: not === '!', parts: value.split('*') };
}
