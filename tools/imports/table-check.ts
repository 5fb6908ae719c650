/**
 * Checks that SQL names only tables of its own part of lib, apart from the uses in `tables.ts`. It
 * reads words, not grammar: in TypeScript a table counts as used where a word of SQL precedes its
 * name, in a migration wherever its name occurs outside comments.
 */
import { layerOf } from './check.ts';
import { readSources, type SourceFile } from './source.ts';
import { foreignReads, foreignWrites, type TableUse } from './tables.ts';

const CREATED = /\bcreate table (?:if not exists )?(cnapi_\w+)|\bdocumentBucket\(\{\s*name: '(cnapi_\w+)'/g;
const WRITTEN =
  /\b(?:insert\s+into|update|delete\s+from|truncate(?:\s+table)?|(?:alter|drop)\s+table(?:\s+if\s+exists)?)\s+(?:only\s+)?(cnapi_\w+)/g;
const NAMED_IN_STATEMENT =
  /\b(?:from|join|into|update|table|using|on|only)\s+(cnapi_\w+)|,\s*(cnapi_\w+)\s+[a-z]|\bto_regclass\('(cnapi_\w+)'/g;
const NAMED = /\b(cnapi_\w+)/g;

interface Uses {
  reads: Map<string, string>;
  writes: Map<string, string>;
}

export function checkTableUses(root: string, { reads = foreignReads, writes = foreignWrites } = {}): string[] {
  const sources = readSources(root, ['lib']);
  const owners = ownersOf(sources);
  const uses = usesOf(sources, owners);
  return [...compare('read', uses.reads, reads, owners), ...compare('write', uses.writes, writes, owners)];
}

/** The part that creates each table. */
function ownersOf(sources: readonly SourceFile[]): Map<string, string> {
  const created = sources.flatMap((source) => find(CREATED, textOf(source)).map((table) => [table, source] as const));
  return new Map(created.map(([table, { name }]) => [table, layerOf(name)]));
}

/** The uses of others' tables: `part table`, with the first file that has it. */
function usesOf(sources: readonly SourceFile[], owners: ReadonlyMap<string, string>): Uses {
  const uses: Uses = { reads: new Map(), writes: new Map() };
  for (const source of sources) {
    const part = layerOf(source.name);
    const isForeign = (table: string) => owners.has(table) && owners.get(table) !== part;
    const text = textOf(source);
    const note = (found: Map<string, string>, table: string) => {
      const key = `${part} ${table}`;
      if (isForeign(table) && !found.has(key)) found.set(key, source.name);
    };
    for (const table of find(WRITTEN, text)) note(uses.writes, table);
    const rest = text.replace(WRITTEN, '');
    for (const table of find(source.name.endsWith('.sql') ? NAMED : NAMED_IN_STATEMENT, rest)) note(uses.reads, table);
  }
  // Whoever may write a table may read it.
  for (const key of uses.writes.keys()) uses.reads.delete(key);
  return uses;
}

function compare(
  verb: 'read' | 'write',
  found: ReadonlyMap<string, string>,
  listed: readonly TableUse[],
  owners: ReadonlyMap<string, string>,
): string[] {
  const allowed = new Set(listed.map(({ part, table }) => `${part} ${table}`));
  const wrong = [...found].filter(([key]) => !allowed.has(key));
  const idle = listed.filter(({ part, table }) => !found.has(`${part} ${table}`));
  return [
    ...wrong.map(([key, file]) => {
      const [part = '', table = ''] = key.split(' ');
      return `${file}: ${part} ${verb}s ${table}, which ${owners.get(table)} owns: call a function of its owner, or name the use in tools/imports/tables.ts`;
    }),
    ...idle.map(
      ({ part, table }) => `tools/imports/tables.ts: ${part} may ${verb} ${table}, and does not: take it out`,
    ),
  ];
}

/** Without comments. */
function textOf({ name, lines }: SourceFile): string {
  const text = lines.join('\n');
  return name.endsWith('.sql')
    ? text.replace(/--.*/g, '')
    : text.replace(/\/\*[\s\S]*?\*\//g, ' ').replace(/(^|\s)\/\/.*/g, '$1');
}

function find(form: RegExp, text: string): string[] {
  return [...text.matchAll(form)].map((match) => match.slice(1).find((group) => group !== undefined) ?? '');
}
