/**
 * Splits a script into simple commands, as sh does: words, quotes, variables, `"$@"`, comments,
 * and `;` or a line feed between commands. What needs more of a shell (pipes, redirections, loops,
 * assignments) is returned as what cannot be run, because its result would be wrong. Pure.
 */

type ShellStatement = { words: string[] } | { unknown: string };

interface ShellValues {
  args: readonly string[];
  env: Readonly<Record<string, string>>;
}

/** Ends with the first statement that cannot be run. */
export function statementsOf(script: string, values: ShellValues): ShellStatement[] {
  const foreign = /^#!(?!.*sh\b).+/.exec(script)?.[0];
  if (foreign !== undefined) return [{ unknown: foreign }];
  const statements: ShellStatement[] = [];
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
    if (kind === 'unknown' || (kind === 'end' && isBeyond(words, word)))
      return [...statements, { unknown: script.slice(start).trim().split('\n')[0] ?? '' }];
    if (kind === 'text') word = (word ?? '') + text;
    if (kind === 'quoted') word = (word ?? '') + expanded(text, values);
    if (kind === 'variable') word = expanded(text, values) === '' ? word : (word ?? '') + expanded(text, values);
    if (kind === 'arguments') {
      endWord();
      words.push(...values.args);
    }
    if (kind === 'blank' || kind === 'end') endWord();
    if (kind !== 'end') continue;
    if (words.length > 0) statements.push({ words });
    words = [];
    start = at;
  }
  return statements;
}

interface ShellToken {
  /** `quoted` makes a word even if it is empty; an empty `variable` does not. */
  kind: 'text' | 'quoted' | 'variable' | 'arguments' | 'blank' | 'end' | 'unknown';
  text: string;
  length: number;
}

const VARIABLE = String.raw`\$\w+|\$\{\w+\}`;

/** The first one that matches applies; its group is the token's text. */
const TOKENS: readonly (readonly [ShellToken['kind'], RegExp])[] = [
  ['blank', /(?:[ \t\r]|\\\n)+/y],
  ['end', /\n|;(?!;)|$/y],
  ['arguments', /"\$@"|\$@|\$\*/y],
  ['text', /'([^']*)'/y],
  ['quoted', new RegExp(String.raw`"((?:[^"\\$\x60]|${VARIABLE})*)"`, 'y')],
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

const KEYWORDS: ReadonlySet<string> = new Set(
  'if then else elif fi for while until do done case esac in function ! { } [['.split(' '),
);

/** Quoting would make a keyword an ordinary word; nobody does that on a simulated machine. */
function isBeyond(words: readonly string[], last: string | undefined): boolean {
  const first = words[0] ?? last ?? '';
  return KEYWORDS.has(first) || /^[A-Za-z_]\w*=/.test(first);
}

function expanded(text: string, { args, env }: ShellValues): string {
  const valued = (name: string) => (/^\d$/.test(name) ? args[Number(name) - 1] : env[name]) ?? '';
  return text.replace(/\$\{?(\w+)\}?/g, (_, name: string) => valued(name));
}
