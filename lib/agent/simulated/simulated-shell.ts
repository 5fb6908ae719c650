/**
 * Splits a script into simple commands, as sh does: words, quotes, variables, `"$@"`, comments,
 * continued lines, `export`, and `;` or a line feed between commands. What needs more of a shell
 * (pipes, redirections, loops, other assignments) is returned as what cannot be run, because its
 * result would be wrong. Pure.
 */

type ShellStatement = { words: string[] } | { unknown: string };

interface ShellValues {
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/** Ends with the first statement that cannot be run. */
export function parseStatements(script: string, values: ShellValues): ShellStatement[] {
  const foreign = /^#!(?!.*sh\b).+/.exec(script)?.[0];
  if (foreign !== undefined) return [{ unknown: foreign }];
  const statements: ShellStatement[] = [];
  const { args } = values;
  const env = { ...values.env };
  let words: string[] = [];
  let word: string | undefined;
  let start = 0;
  const endWord = () => {
    if (word !== undefined) words.push(word);
    word = undefined;
  };
  for (let at = 0; at <= script.length; ) {
    const { kind, text, length } = tokenAt(script, at, word === undefined);
    at += length;
    if (kind === 'blank' || kind === 'end') endWord();
    if (kind === 'unknown' || (kind === 'end' && isBeyond(words)))
      return [...statements, { unknown: script.slice(start).trim().split('\n')[0] ?? '' }];
    if (kind === 'text') word = (word ?? '') + text;
    if (kind === 'quoted' || kind === 'variable') {
      const value = expanded(text, { args, env });
      if (kind === 'quoted' || value !== '') word = (word ?? '') + value;
    }
    if (kind === 'arguments') {
      endWord();
      words.push(...args);
    }
    if (kind !== 'end') continue;
    if (words[0] === 'export') Object.assign(env, Object.fromEntries(words.flatMap(assignmentOf)));
    if (words.length > 0) statements.push({ words });
    words = [];
    start = at;
  }
  return statements;
}

interface ShellToken {
  /** `quoted` makes a word even if it is empty; an empty `variable` does not. */
  kind: 'text' | 'quoted' | 'variable' | 'arguments' | 'blank' | 'continued' | 'end' | 'unknown';
  text: string;
  length: number;
}

const VARIABLE = String.raw`\$(?:\d|[A-Za-z_]\w*|\{\w+\})`;

/** The first one that matches applies; its group is the token's text. */
const TOKENS: readonly (readonly [ShellToken['kind'], RegExp])[] = [
  ['blank', /[ \t\r]+/y],
  ['continued', /\\\n/y],
  ['end', /\n|;(?!;)|$/y],
  ['arguments', /"\$@"|\$@|\$\*/y],
  ['text', /'([^']*)'/y],
  ['quoted', new RegExp(String.raw`"((?:[^"\\$\x60]|\\[^]|${VARIABLE})*)"`, 'y')],
  ['variable', new RegExp(`(${VARIABLE})`, 'y')],
  ['text', /\\(.)/y],
  ['text', /([^\s;|&<>()"'`\\$]+)/y],
];
const COMMENT = /#[^\n]*/y;

function tokenAt(script: string, at: number, isAtWordStart: boolean): ShellToken {
  const comment = isAtWordStart ? matchAt(COMMENT, script, at) : undefined;
  if (comment !== undefined) return { kind: 'blank', text: '', length: comment[0].length };
  for (const [kind, pattern] of TOKENS) {
    const match = matchAt(pattern, script, at);
    // The end of the script has no character to go past.
    if (match !== undefined) return { kind, text: match[1] ?? '', length: Math.max(1, match[0].length) };
  }
  return { kind: 'unknown', text: '', length: 1 };
}

function matchAt(pattern: RegExp, script: string, at: number): RegExpExecArray | undefined {
  pattern.lastIndex = at;
  return pattern.exec(script) ?? undefined;
}

/** Keywords, and commands of the shell itself whose effect or result is not simulated. */
const BEYOND: ReadonlySet<string> = new Set(
  (
    'if then else elif fi for while until do done case esac in function ! { } [[ time ' +
    'return eval . source trap unset readonly shift alias'
  ).split(' '),
);
/** Commands that run the command that follows them. */
const PREFIXES: ReadonlySet<string> = new Set(['exec', 'command', 'env']);
/** No program has these names, so that `env` does not find them. */
const ONLY_IN_SHELL: ReadonlySet<string> = new Set(['exit', ':', 'exec', 'command']);

/** Quoting would make a keyword an ordinary word; nobody does that on a simulated machine. */
function isBeyond(words: readonly string[]): boolean {
  const [first = '', ...rest] = words;
  if (first === 'set') return rest.length !== 1 || !['-e', '+e'].includes(rest[0] ?? '');
  if (first === 'export') return rest.length === 0 || !rest.every((word) => /^[A-Za-z_]\w*(=|$)/.test(word));
  if (!PREFIXES.has(first)) return BEYOND.has(first) || assignmentOf(first).length > 0;
  const [next] = rest;
  if (next === undefined) return first === 'env';
  if (first === 'env' && ONLY_IN_SHELL.has(next)) return true;
  return next.startsWith('-') || ['set', 'export'].includes(next) || isBeyond(rest);
}

/** Empty if the word is not an assignment. */
function assignmentOf(word: string): [name: string, value: string][] {
  const [, name, value = ''] = /^([A-Za-z_]\w*)=(.*)$/s.exec(word) ?? [];
  return name === undefined ? [] : [[name, value]];
}

const ESCAPE_OR_VARIABLE = new RegExp(String.raw`\\([$\x60"\\\n])|${VARIABLE}`, 'g');

/** Between double quotes a backslash escapes only these characters, and removes a line feed. */
function expanded(text: string, { args, env }: ShellValues): string {
  return text.replace(ESCAPE_OR_VARIABLE, (found, escaped?: string) => {
    if (escaped !== undefined) return escaped === '\n' ? '' : escaped;
    const name = found.replace(/[${}]/g, '');
    return (/^\d+$/.test(name) ? args[Number(name) - 1] : env[name]) ?? '';
  });
}
