/**
 * Finds the source files of a tree and their imports, by a scan that knows comments and the forms
 * of import.
 */
import { readdirSync, readFileSync, statSync } from 'node:fs';
import path from 'node:path';

export interface SourceFile {
  /** Path from the root, with forward slashes. */
  name: string;
  lines: string[];
  /** Import specifiers as written. */
  imports: string[];
}

export interface Declaration {
  symbol: string;
  isType: boolean;
  isExported: boolean;
}

const DECLARED =
  /^(export\s+)?(?:declare\s+)?(?:async\s+)?(?:abstract\s+)?(const|let|function\*?|class|interface|type|enum)\s+([\w$]+)/gm;
const TYPES = ['class', 'interface', 'type', 'enum'];
const skipped = new Set(['node_modules', '.git', '.runtime', '.tap', 'data']);

/**
 * Returns all TypeScript, plain JavaScript and SQL files under `entries` (files or folders of
 * `root`). SQL has no imports.
 */
export function readSources(root: string, entries: readonly string[]): SourceFile[] {
  return entries.flatMap((entry) => find(root, entry)).map((name) => readSource(root, name));
}

/** Returns the specifiers of every import, export … from, and import(…) in `text`. */
export function importsOf(text: string): string[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, ' ').replace(/(^|[^:'"`\\])\/\/[^\n]*/g, '$1');
  const forms = [
    /(?:^|[\n;])\s*(?:import|export)\b[^'"`;()]*?\bfrom\s*['"]([^'"]+)['"]/g,
    /(?:^|[\n;])\s*import\s*['"]([^'"]+)['"]/g,
    /\bimport\s*\(\s*['"]([^'"]+)['"]/g,
  ];
  return forms.flatMap((form) => [...code.matchAll(form)].map((match) => match[1] ?? ''));
}

/** The text without comments. */
export function codeOf({ lines }: SourceFile): string {
  return lines
    .join('\n')
    .replace(/\/\*[\s\S]*?\*\//g, ' ')
    .replace(/(^|\s)\/\/.*/g, '$1');
}

/** What `code` declares at its top level. */
export function declarationsOf(code: string): Declaration[] {
  return [...code.matchAll(DECLARED)].map(([, exported, kind = '', symbol = '']) => ({
    symbol,
    isType: TYPES.includes(kind),
    isExported: exported !== undefined,
  }));
}

function readSource(root: string, name: string): SourceFile {
  const text = readFileSync(path.join(root, name), 'utf8');
  return { name, lines: text.split('\n'), imports: name.endsWith('.sql') ? [] : importsOf(text) };
}

function find(root: string, entry: string): string[] {
  const stats = statSync(path.join(root, entry), { throwIfNoEntry: false });
  if (stats === undefined) return [];
  if (!stats.isDirectory()) return /\.(ts|mts|mjs|js|sql)$/.test(entry) ? [entry] : [];
  return readdirSync(path.join(root, entry))
    .filter((name) => !skipped.has(name))
    .sort()
    .flatMap((name) => find(root, `${entry}/${name}`));
}
