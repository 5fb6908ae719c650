/** Somebody looks for what a log or an answer says: the page must have the very words. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

const root = path.resolve(import.meta.dirname, '../..');
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');

const SOURCES = ['server.ts', ...filesIn('lib')];
const GENERATED = ['cli.md', 'rest-api.md'];
const PAGES = { 'docs/runbooks.md': 60, 'docs/operating.md': 10 };

function filesIn(folder: string): string[] {
  const entries = readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' });
  return entries.filter((name) => name.endsWith('.ts')).map((name) => path.join(folder, name));
}

/** The texts of a source file as they are logged: joined where `+` joins them, without comments. */
function spoken(source: string): string {
  const code = source.replace(/^\s*\/\*[\s\S]*?\*\//gm, '').replace(/^\s*\/\/.*/gm, '');
  return code.replace(/(['"`])\s*\+\s*['"`]/g, '').replaceAll("\\'", "'");
}

/** What stands in backquotes in the first column. */
function quotedIn(page: string): string[] {
  const cells = [...page.matchAll(/^\| ?([^|]*)\|/gm)].map(([, cell]) => cell ?? '');
  const quoted = cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, text]) => text ?? ''));
  return piecesOf(quoted);
}

/** Without what differs each time (`…`). */
const piecesOf = (quotes: readonly string[]): string[] =>
  quotes.flatMap((text) => text.split('…').map((piece) => piece.trim())).filter((piece) => piece !== '');

const said = SOURCES.map((file) => spoken(read(file))).join('\n');

t.test('what the runbooks quote in the first column of a table is said by the program', async (t) => {
  for (const [name, least] of Object.entries(PAGES)) {
    const section = name === 'docs/operating.md' ? (read(name).split('\n## What to watch')[1] ?? '') : read(name);
    const quoted = quotedIn(section);
    t.ok(quoted.length >= least, `${name}: ${quoted.length} of them`);
    t.same(
      quoted.filter((text) => !said.includes(text)),
      [],
      name,
    );
  }
});

/**
 * Texts in backquotes that look like a log line, `subject: what happened`, or that a log "says".
 */
function logLinesIn(page: string): string[] {
  const text = page.replace(/^```[\s\S]*?^```/gm, '').replace(/\s+/g, ' ');
  const alike = [...text.matchAll(/`([a-z][a-z -]*: [a-z][^`]* [^`]*)`/g)];
  const said = [...text.matchAll(/\blogs?(?: has| says| line)? `([^`]+)`/g)];
  return piecesOf([...alike, ...said].map(([, quote]) => quote ?? ''));
}

t.test('a log line that any page quotes exists', async (t) => {
  const names = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' });
  const quoted = names
    .filter((name) => name.endsWith('.md') && !GENERATED.includes(name))
    .flatMap((name) => logLinesIn(read(path.join('docs', name))).map((text) => ({ name, text })));
  t.ok(quoted.length >= 40, `${quoted.length} of them`);
  t.strictSame(
    quoted.filter(({ text }) => !said.includes(text)),
    [],
  );
});
