/** Somebody looks for what a log or an answer says: the page must have the very words. */
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

const root = path.resolve(import.meta.dirname, '..');
const read = (name: string) => readFileSync(path.join(root, name), 'utf8');

const SOURCES = ['server.ts', 'tools/name-server.ts', 'tools/living-instances.ts', ...filesIn('lib')];
const PAGES = { 'docs/runbooks.md': 60, 'docs/operating.md': 10 };

function filesIn(folder: string): string[] {
  const entries = readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' });
  return entries.filter((name) => name.endsWith('.ts')).map((name) => path.join(folder, name));
}

/** As they are said: texts that are put together over several lines in one piece, and quotes without their strokes. */
function spoken(source: string): string {
  return source.replace(/(['"`])\s*\+\s*['"`]/g, '').replaceAll("\\'", "'");
}

/** What stands in backquotes in the first column, without what differs each time (`…`). */
function quotedIn(page: string): string[] {
  const cells = [...page.matchAll(/^\| ?([^|]*)\|/gm)].map(([, cell]) => cell ?? '');
  const quoted = cells.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, text]) => text ?? ''));
  return quoted.flatMap((text) => text.split('…').map((piece) => piece.trim())).filter((piece) => piece !== '');
}

t.test('what the runbooks quote in the first column of a table is said by the program', async (t) => {
  const said = SOURCES.map((file) => spoken(read(file))).join('\n');
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
