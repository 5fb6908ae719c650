/**
 * Every command of cnapi that an error, a log line, a help text or a page tells somebody to run is
 * one that the program accepts. Each is parsed by the program's own parser and not run.
 */
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import type { Command } from 'commander';
import t from 'tap';
import { parseOnly } from '../../lib/cli/invocation/command-runner.ts';
import { createProgram } from '../../lib/cli/program.ts';
import { cliPage } from '../../tools/docs/cli.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const program = () => createProgram(parseOnly);
const names = program().commands.map((command) => command.name());
const MENTION = new RegExp(`(?<![\\w/@.-])cnapi (?=(${names.join('|')})\\b)`, 'g');

t.test('the commands of the pages are accepted', async (t) => {
  let count = 0;
  for (const file of filesOf('README.md', 'docs/**/*.md')) {
    if (file === 'docs/cli.md') continue;
    for (const command of [...spansOf(read(file)), ...blockLinesOf(read(file))]) {
      count++;
      t.equal(await refusal(command), undefined, `${file}: cnapi ${command.join(' ')}`);
    }
  }
  t.ok(count > 50, `${count} commands`);
});

t.test('the examples of the help texts are accepted', async (t) => {
  const examples = cliPage(program()).matchAll(/^ {2}\$ (.*)$/gm);
  let count = 0;
  for (const [, line = ''] of examples)
    for (const command of commandsOf(line)) {
      count++;
      t.equal(await refusal(command), undefined, line);
    }
  t.ok(count > 30, `${count} commands`);
});

t.test('the commands that errors, logs and comments name are accepted', async (t) => {
  let count = 0;
  for (const file of filesOf('server.ts', 'lib/**/*.ts', 'tools/**/*.{ts,mjs}', 'deploy/**/*', 'smf/**/*')) {
    for (const command of mentionsOf(read(file))) {
      count++;
      t.equal(await refusal(command), undefined, `${file}: cnapi ${command.join(' ')}`);
    }
  }
  t.ok(count > 20, `${count} commands`);
});

t.test('a command that lacks an argument, or has an unknown option, is found', async (t) => {
  const [without] = mentionsOf(['An admin makes another token: cnapi', "token create --role operator'"].join(' '));
  t.match(await refusal(without ?? []), /missing required argument 'name'/);
  const [misspelt] = spansOf(['see `cnapi', 'servers --limmit 3`'].join(' '));
  t.match(await refusal(misspelt ?? []), /unknown option '--limmit'/);
  t.same(mentionsOf(['no such server; cnapi', 'servers --json shows what they have'].join(' ')), [
    ['servers', '--json'],
  ]);
});

function read(file: string): string {
  return readFileSync(path.join(ROOT, file), 'utf8');
}

function filesOf(...patterns: string[]): string[] {
  return globSync(patterns, { cwd: ROOT, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.relative(ROOT, path.join(entry.parentPath, entry.name)))
    .sort();
}

/** Inline code. A command's name alone is a mention of it, and needs no arguments. */
function spansOf(page: string): string[][] {
  const prose = page.replace(/^( {4}|```).*$/gm, '');
  return [...prose.matchAll(/`(cnapi [^`]+)`/g)].flatMap(([, span = '']) => commandsOf(span.replace(/\s+/g, ' ')));
}

/** Lines of a shell. */
function blockLinesOf(page: string): string[][] {
  return [...page.matchAll(/^ {4,}(.*\bcnapi .*)$/gm)].flatMap(([, line = '']) =>
    commandsOf(line.replace(/`[^`]*`/g, '')),
  );
}

/** The commands of cnapi in a line of a shell, each up to the next operator of the shell. */
function commandsOf(line: string): string[][] {
  const plain = line
    .replace(/\$\(\([^)]*\)\)/g, '1')
    .replace(/\$\(hostname\)/g, 'HOST')
    .replace(/ #.*$/, '');
  return [...plain.matchAll(MENTION)].map(({ index }) => {
    const words = plain.slice(index).match(/'[^']*'|"[^"]*"|[|;&)<>]|[^\s|;&)<>'"]+/g) ?? [];
    const end = words.findIndex((word) => /^[|;&)<>]$/.test(word));
    return words.slice(1, end < 0 ? undefined : end).map((word) => word.replace(/^(['"])(.*)\1$/, '$2'));
  });
}

/**
 * The commands in sentences of a source file. A command ends where the sentence continues: at a
 * word in lower case that no option follows.
 */
function mentionsOf(source: string): string[][] {
  return [...source.matchAll(MENTION)].map(({ index }) => {
    const text = source.slice(index + 'cnapi '.length, index + 200);
    const unquoted = text.replace(/(?<= )(['"])([^'"\s]+)\1/g, '$2').replace(/(?:\$\{[\w.]+\})+/g, 'VALUE');
    const words = (unquoted.split(/[\n'"`]/, 1)[0] ?? '').split(' ');
    const taken: string[] = [];
    let command: Command = program();
    for (let at = 0; at < words.length; at++) {
      const word = words[at] ?? '';
      const bare = word.replace(/[.,;:)]+$/, '');
      const child = taken.some((each) => each.startsWith('-'))
        ? undefined
        : command.commands.find((each) => each.name() === bare);
      const isOption =
        /^-[-\w]/.test(bare) || command.options.some(({ long, required }) => required && long === taken.at(-1));
      if (child !== undefined) command = child;
      else if (!isOption && !/^[A-Z][A-Z0-9]*$/.test(bare) && !/^--\w/.test(words[at + 1] ?? '')) break;
      if (bare !== '') taken.push(bare);
      if (bare !== word) break;
    }
    return taken;
  });
}

/** Why the program refuses the words; undefined if it accepts them. */
async function refusal(words: readonly string[]): Promise<string | undefined> {
  const parser = program();
  if (isPath(parser, words)) return undefined;
  const rest = words.indexOf('--');
  try {
    await parser.parseAsync(rest < 0 ? [...words] : words.slice(0, rest), { from: 'user' });
    return undefined;
  } catch (error) {
    const { message } = error as Error;
    // A value that the code fills in is one of the choices.
    return message.includes("argument 'VALUE' is invalid. Allowed choices") ? undefined : message;
  }
}

/** Whether the words only name a command: prose about it. */
function isPath(command: Command, [name, ...others]: readonly string[]): boolean {
  const child = command.commands.find((each) => each.name() === name);
  return child !== undefined && (others.length === 0 || isPath(child, others));
}
