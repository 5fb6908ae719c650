/**
 * Mutants of SQL in a text of the source or in a migration: removed guards, removed locks, changed
 * comparisons, removed assignments. It knows no grammar, only words at the right depth of brackets.
 * Interpolated, quoted and commented parts are not mutated.
 */
import type { Edit } from './mutant.ts';

const SQL = /\b(?:select\b[\s\S]+\bfrom|insert into|update \w+|delete from|create or replace function)\b/;

interface Rule {
  kind: string;
  find: RegExp;
  is: string;
}

const rules: readonly Rule[] = [
  {
    kind: 'sql: lock removed',
    find: /\bfor (?:no key )?(?:update|share)(?: of \w+)?(?: skip locked| nowait)?/g,
    is: '',
  },
  { kind: 'sql: waits for the lock', find: / skip locked/g, is: '' },
  { kind: 'sql: lock order removed', find: /\border by [\w., ]+(?=\s+for (?:update|share))/g, is: '' },
  { kind: 'sql: comparison moved', find: / < /g, is: ' <= ' },
  { kind: 'sql: comparison moved', find: / <= /g, is: ' < ' },
  { kind: 'sql: comparison moved', find: / > /g, is: ' >= ' },
  { kind: 'sql: comparison moved', find: / >= /g, is: ' > ' },
  { kind: 'sql: null test swapped', find: /\bis null\b/g, is: 'is not null' },
  { kind: 'sql: null test swapped', find: /\bis not null\b/g, is: 'is null' },
  { kind: 'sql: distinction swapped', find: /\bis distinct from\b/g, is: 'is not distinct from' },
  { kind: 'sql: distinction swapped', find: /\bis not distinct from\b/g, is: 'is distinct from' },
  { kind: 'sql: existence swapped', find: /\bnot exists\b/g, is: 'exists' },
  { kind: 'sql: existence swapped', find: /(?<!not |if )\bexists\b/g, is: 'not exists' },
  { kind: 'sql: order turned', find: / desc\b/g, is: '' },
  { kind: 'sql: choice swapped', find: /\bgreatest\(/g, is: 'least(' },
  { kind: 'sql: choice swapped', find: /\bleast\(/g, is: 'greatest(' },
  { kind: 'sql: choice swapped', find: /\bmin\(/g, is: 'max(' },
  { kind: 'sql: choice swapped', find: /\bmax\(/g, is: 'min(' },
  { kind: 'sql: constant changed', find: / \+ 1\b/g, is: ' + 0' },
  { kind: 'sql: constant changed', find: /\btrue\b/g, is: 'false' },
  { kind: 'sql: constant changed', find: /\bfalse\b/g, is: 'true' },
  { kind: 'sql: return removed', find: /\breturn;/g, is: 'null;' },
  { kind: 'sql: statement removed', find: /\bperform [^;]+;/g, is: 'null;' },
];

/** The words that end a `where` at its own depth. */
const WHERE_ENDS = /^(?:returning|order|group|limit|for|union|on|window|having|then|loop|do)\b/;
const SET_ENDS = /^(?:where|from|returning)\b/;

export function isSql(text: string): boolean {
  return SQL.test(text);
}

/** `text` is a literal as written in the source, including its quotes, or a file of SQL. */
export function sqlEdits(text: string): Edit[] {
  const masked = mask(text);
  const edits = rules.flatMap(({ kind, find, is }) =>
    [...masked.matchAll(find)].map((match) => ({ from: match.index, to: match.index + match[0].length, is, kind })),
  );
  for (const { index } of masked.matchAll(/\bwhere\b/g)) edits.push(...guardEdits(masked, index + 'where'.length));
  for (const match of masked.matchAll(/\b(?:els)?if (?!not exists\b|exists\b)([^;]+?) then\b/g)) {
    const from = match.index + match[0].indexOf(match[1] ?? '');
    const condition = text.slice(from, from + (match[1]?.length ?? 0));
    edits.push({
      from,
      to: from + condition.length,
      is: `not coalesce(${condition}, false)`,
      kind: 'sql: condition negated',
    });
  }
  for (const match of masked.matchAll(/\bupdate(?: (?!set\b)\w+){0,2}\s+set\b/g))
    edits.push(...assignmentEdits(masked, match.index + match[0].length));
  return edits.filter(({ from }) => !isOfSchema(masked, from));
}

/** Replaces each condition of the `where` that begins at `start` by `true`. */
function guardEdits(masked: string, start: number): Edit[] {
  const parts = split(masked, { start, ends: WHERE_ENDS, separator: /^and\b/ });
  const whole: { from: number; to: number }[] = [];
  for (const part of parts) {
    const last = whole.at(-1);
    const isBetween = last !== undefined && /\bbetween\b(?![\s\S]*\band\b)/.test(masked.slice(last.from, last.to));
    if (isBetween) last.to = part.to;
    else whole.push(part);
  }
  return whole.map(({ from, to }) => ({ from, to, is: ' true ', kind: 'sql: guard removed' }));
}

/** Removes one of several assignments. */
function assignmentEdits(masked: string, start: number): Edit[] {
  const parts = split(masked, { start, ends: SET_ENDS, separator: /^,/ });
  if (parts.length < 2) return [];
  return parts.map(({ from, to }, index) => {
    const edit = index === 0 ? { from, to: to + 1 } : { from: from - 1, to };
    return { ...edit, is: ' ', kind: 'sql: assignment removed' };
  });
}

interface Splitting {
  start: number;
  ends: RegExp;
  separator: RegExp;
}

function split(masked: string, { start, ends, separator }: Splitting): { from: number; to: number }[] {
  const parts: { from: number; to: number }[] = [];
  let depth = 0;
  let from = start;
  let at = start;
  const isWordStart = () => /\w/.test(masked[at] ?? '') && !/\w/.test(masked[at - 1] ?? '');
  for (; at < masked.length; at += 1) {
    const char = masked[at] ?? '';
    const rest = masked.slice(at, at + 12);
    if (char === '(' || (isWordStart() && /^case\b/.test(rest))) depth += 1;
    else if (char === ')' || (isWordStart() && /^end\b/.test(rest))) depth -= 1;
    if (depth < 0 || char === ';' || char === '`') break;
    if (depth > 0) continue;
    if (isWordStart() && ends.test(rest)) break;
    const found = isWordStart() || char === ',' ? separator.exec(rest) : null;
    if (found === null) continue;
    parts.push({ from, to: at });
    from = at + found[0].length;
  }
  parts.push({ from, to: at });
  return parts.filter((part) => masked.slice(part.from, part.to).trim() !== '');
}

/** Returns a text of the same length with interpolated, quoted and commented parts masked. */
function mask(text: string): string {
  const hide = (found: string) => found.replace(/[^\n]/g, '_');
  return text
    .replace(/--[^\n]*/g, (found) => found.replace(/[^\n]/g, ' '))
    .replace(/\$\{[^}]*\}/g, hide)
    .replace(/(?<!^)'[^'\n]*'/g, hide);
}

/** A changed definition of an index or a table changes no answer. */
function isOfSchema(masked: string, at: number): boolean {
  const statement = masked.slice(masked.lastIndexOf(';', at - 1) + 1, at);
  return /^[\s`'$]*(?:create (?:unique )?index|create table|alter table|drop )/.test(statement);
}
