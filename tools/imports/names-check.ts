/**
 * Finds names of lib that have two meanings: two files export the same name, or a file declares a
 * type for itself that has the name of a type that another file exports. A re-export is no
 * declaration. Reads the same forms as `exports-check.ts`, and `export { one as other }`. Finds ids
 * that have the name of the object: `job: string` is written `jobId: string`. The protocol and rows
 * of the database keep their names.
 */
import { codeOf, declarationsOf, readSources } from './source.ts';

const RENAMED = /(?:^|[\n;])\s*export\s+(?:type\s+)?\{([^}]*)\}/g;

/** A row is recognized by its column that may be null, or by its place in `query<…>`. */
const BARE_ID = /(?<![\w.'])(job|socket)\??: (?:string|number)\b(?! \| null)/g;
const ROW_TYPE = /query<\{[^}]*\}/g;

interface Declared {
  files: Set<string>;
  hasType: boolean;
}

export function checkNames(root: string): string[] {
  const exported = new Map<string, Declared>();
  const ownTypes: { name: string; symbol: string }[] = [];
  for (const source of readSources(root, ['lib'])) {
    const { name } = source;
    const code = codeOf(source);
    for (const { symbol, isType, isExported } of declarationsOf(code)) {
      if (isExported) add(exported, { name, symbol, isType });
      else if (isType) ownTypes.push({ name, symbol });
    }
    for (const symbol of renamedIn(code)) add(exported, { name, symbol, isType: false });
  }
  const twice = [...exported].flatMap(([symbol, { files }]) =>
    files.size > 1 ? [`${[...files].join(', ')}: each exports ${symbol}: one name, one meaning`] : [],
  );
  const hidden = ownTypes.flatMap(({ name, symbol }) => {
    const other = exported.get(symbol);
    if (!other?.hasType || other.files.has(name)) return [];
    return [`${name}: its type ${symbol} has the name of an export of ${[...other.files].join(', ')}: rename one`];
  });
  return [...twice, ...hidden, ...checkIds(root)];
}

function checkIds(root: string): string[] {
  const sources = readSources(root, ['lib']).filter(({ name }) => !name.startsWith('lib/protocol/'));
  return sources.flatMap((source) =>
    [...codeOf(source).replace(ROW_TYPE, '').matchAll(BARE_ID)].map(
      ([declared, object]) => `${source.name}: ${declared}: write ${object}Id, for it is not the ${object} itself`,
    ),
  );
}

function add(
  exported: Map<string, Declared>,
  { name, symbol, isType }: { name: string; symbol: string; isType: boolean },
): void {
  const declared = exported.get(symbol) ?? { files: new Set(), hasType: false };
  declared.files.add(name);
  declared.hasType ||= isType;
  exported.set(symbol, declared);
}

/** The new names of `export { one as other }`, with and without `from`. */
function renamedIn(code: string): string[] {
  return [...code.matchAll(RENAMED)].flatMap(([, names = '']) =>
    [...names.matchAll(/\bas\s+([\w$]+)/g)].map(([, symbol = '']) => symbol),
  );
}
