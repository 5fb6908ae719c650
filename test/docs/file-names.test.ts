import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

const root = path.resolve(import.meta.dirname, '../..');
/** The page that names files which its reader creates. */
const ABOUT_NEW_FILES = 'docs/adding-a-noun.md';
/** A name in backticks, with or without folders. Patterns such as `*-store.ts` do not match. */
const FILE_NAME = /`([\w./-]+\.(?:ts|sql|md))`/g;
const COMMENTS: Record<string, RegExp> = { '.ts': /\/\*[\s\S]*?\*\/|\/\/.*/g, '.sql': /--.*/g };

const files = readdirSync(root, { withFileTypes: true })
  .filter(({ name }) => !name.startsWith('.') && name !== 'node_modules')
  .flatMap((entry) => (entry.isDirectory() ? filesIn(entry.name) : [entry.name]));
const endings = new Set(files.flatMap(endingsOf));

t.test('every file that a page names exists', async (t) => {
  const pages = files.filter((file) => /^docs\/.*\.md$/.test(file) && file !== ABOUT_NEW_FILES);
  t.ok(pages.length > 0);
  t.strictSame(
    pages.flatMap((page) => missingIn(page, [read(page)])),
    [],
  );
});

t.test('every file that a comment of the programs names exists', async (t) => {
  const sources = files.filter((file) => file.startsWith('lib/') && path.extname(file) in COMMENTS);
  t.ok(sources.length > 0);
  t.strictSame(
    sources.flatMap((source) => missingIn(source, read(source).match(COMMENTS[path.extname(source)] ?? /$/) ?? [])),
    [],
  );
});

/** Folders of test/ whose tests run the whole system. */
const WHOLE_SYSTEM =
  /^test\/(chaos|deploy|docs|explorer|failover|faults|fuzz|interleavings|openapi|sdc-clients|sim|support|upgrade)\//;

t.test('the folder of each test is the folder of what it tests', async (t) => {
  const tests = files.filter((file) => /^test\/.*\/.*\.test\.ts$/.test(file) && !WHOLE_SYSTEM.test(file));
  t.ok(tests.length > 0);
  const tested = (file: string) => {
    const folder = path.dirname(file).slice('test/'.length);
    return folder.startsWith('tools/') || folder === 'tools' ? folder : path.join('lib', folder);
  };
  t.strictSame(
    tests.filter((file) => !existsSync(path.join(root, tested(file)))),
    [],
  );
});

function filesIn(folder: string): string[] {
  return readdirSync(path.join(root, folder), { recursive: true, encoding: 'utf8' }).map((file) =>
    path.join(folder, file),
  );
}

/** `a/b/c.ts` may be named so, and as `b/c.ts` and `c.ts`. */
function endingsOf(file: string): string[] {
  const parts = file.split(path.sep);
  return parts.map((_, index) => parts.slice(index).join('/'));
}

function missingIn(file: string, texts: readonly string[]): string[] {
  const names = texts.flatMap((text) => [...text.matchAll(FILE_NAME)].map(([, name = '']) => name));
  return names.filter((name) => !endings.has(name.replace(/^(\.\.?\/)+/, ''))).map((name) => `${file}: ${name}`);
}

function read(file: string): string {
  return readFileSync(path.join(root, file), 'utf8');
}
