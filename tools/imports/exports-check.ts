/**
 * Finds exports of lib that the product does not need: what no other file imports, and what only
 * tests import although no declaration that the product needs uses it. A rule that statements
 * follow in SQL may be used by tests alone, which compare both: its comment says
 * `In SQL: function`. Reads the forms of export and import that this project uses: declarations,
 * named imports, `import * as`, and `import(…)`.
 */
import path from 'node:path';
import { codeOf, declarationsOf, readSources, type SourceFile } from './source.ts';

const NAMED = /(?:^|[\n;])\s*(?:import|export)\s+(?:type\s+)?\{([^}]*)\}\s*from\s*['"](\.[^'"]+)['"]/g;
const WHOLE = /\bimport\s+(?:type\s+)?\*\s+as\s+[\w$]+\s+from\s*['"](\.[^'"]+)['"]|\bimport\s*\(\s*['"](\.[^'"]+)['"]/g;
const IN_SQL =
  /\/\*\*(?:(?!\*\/)[\s\S])*?\bIn SQL: (\w+)(?:(?!\*\/)[\s\S])*?\*\/\s*export\s+(?:const|function)\s+([\w$]+)/g;

/** A line that begins a declaration or a statement at the top level. */
const TOP_LEVEL = /^(?!import\b|export \{)[\w$(].*/gm;

export function checkExports(root: string): string[] {
  const sources = readSources(root, ['server.ts', 'lib', 'tools', 'test']);
  const texts = new Map(sources.map((source) => [source.name, codeOf(source)]));
  const product = importersOf(texts, (name) => !name.startsWith('test/'));
  const tests = importersOf(texts, (name) => name.startsWith('test/'));
  const rules = rulesInSql(sources);
  return [...texts].flatMap(([name, text]) => {
    if (!name.startsWith('lib/')) return [];
    return declarationsOf(text).flatMap(({ symbol, isExported }) => {
      if (!isExported || product.has(`${name} ${symbol}`) || product.has(name)) return [];
      if (!tests.has(`${name} ${symbol}`) && !tests.has(name)) {
        return [`${name}: no other file imports ${symbol}: do not export it, or delete it`];
      }
      if (neededIn(text, (one) => product.has(`${name} ${one}`)).has(symbol) || rules.has(`${name} ${symbol}`))
        return [];
      return [`${name}: only tests use ${symbol}: delete it, or move it to test/`];
    });
  });
}

/** `file symbol` for each export whose comment names a function that a migration creates. */
function rulesInSql(sources: readonly SourceFile[]): Set<string> {
  const sql = sources.filter(({ name }) => name.endsWith('.sql')).map(({ lines }) => lines.join('\n'));
  const rules = sources.flatMap(({ name, lines }) =>
    [...lines.join('\n').matchAll(IN_SQL)].flatMap(([, sqlName = '', symbol = '']) =>
      sql.some((text) => text.includes(`create function ${sqlName}(`)) ? [`${name} ${symbol}`] : [],
    ),
  );
  return new Set(rules);
}

/** `file symbol` for each named import, and `file` for a file that is imported as a whole. */
function importersOf(texts: ReadonlyMap<string, string>, isMeant: (name: string) => boolean): Set<string> {
  const found = new Set<string>();
  for (const [name, text] of texts) {
    if (!isMeant(name)) continue;
    const target = (specifier: string) => path.posix.join(path.posix.dirname(name), specifier);
    for (const [, names = '', specifier = ''] of text.matchAll(NAMED)) {
      for (const part of names.split(',')) {
        const [symbol = ''] = part
          .trim()
          .replace(/^type\s+/, '')
          .split(/\s/);
        if (symbol !== '') found.add(`${target(specifier)} ${symbol}`);
      }
    }
    for (const [, whole, dynamic] of text.matchAll(WHOLE)) found.add(target(whole ?? dynamic ?? ''));
  }
  return found;
}

/**
 * The declarations of a file that the product needs: those that it imports, those that code outside
 * of declarations mentions, and what these mention in turn. What only mentions itself is not
 * needed.
 */
function neededIn(text: string, isImported: (symbol: string) => boolean): Set<string> {
  const parts = partsOf(text);
  const symbols = [...parts.keys()].filter((symbol) => symbol !== '');
  const needed = new Set<string>();
  const add = (symbol: string): void => {
    if (needed.has(symbol)) return;
    needed.add(symbol);
    const part = parts.get(symbol) ?? '';
    for (const other of symbols) if (mentions(part, other)) add(other);
  };
  for (const symbol of ['', ...symbols.filter(isImported)]) add(symbol);
  return needed;
}

/**
 * The text of each declaration at the top level, by its name; '' has the statements beside them.
 */
function partsOf(text: string): Map<string, string> {
  const starts = [...text.matchAll(TOP_LEVEL)];
  const parts = new Map<string, string>();
  starts.forEach(({ 0: line, index }, at) => {
    const [{ symbol } = { symbol: '' }] = declarationsOf(line);
    parts.set(
      symbol,
      `${parts.get(symbol) ?? ''}
${text.slice(index, starts[at + 1]?.index)}`,
    );
  });
  return parts;
}

function mentions(text: string, symbol: string): boolean {
  return new RegExp(`(?<![\\w$])${symbol.replaceAll('$', '\\$')}(?![\\w$])`).test(text);
}
