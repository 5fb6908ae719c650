import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';

const root = path.resolve(import.meta.dirname, '../..');
const PAGE_LINES = 250;
const LINE_CHARS = 100;
/** Pages in which one looks something up, and which nobody reads from start to end. */
const LOOKED_UP = ['docs/cli.md', 'docs/rest-api.md'];

const docs = readdirSync(path.join(root, 'docs'), { recursive: true, encoding: 'utf8' });
const pages = ['README.md', ...docs.filter((name) => name.endsWith('.md')).map((name) => path.join('docs', name))];

t.test('a page that is read from start to end has at most 250 lines', async (t) => {
  const long = pages.filter(
    (page) => !LOOKED_UP.includes(page) && read(page).trimEnd().split('\n').length > PAGE_LINES,
  );
  t.strictSame(long, []);
});

t.test(`a line of prose has at most ${LINE_CHARS} characters`, async (t) => {
  const long = pages.filter((page) => !LOOKED_UP.includes(page)).flatMap(longLinesOf);
  t.strictSame(long, []);
});

t.test('no line of a paragraph begins like an item of a numbered list', async (t) => {
  t.strictSame(pages.filter((page) => !LOOKED_UP.includes(page)).flatMap(falseItemsOf), []);
});

t.test('every link leads to a page, and every anchor to one of its headings', async (t) => {
  t.strictSame(pages.flatMap(brokenLinks), []);
});

t.test('the table of contents lists every page but the single decisions and tests', async (t) => {
  const contents = read('docs/README.md');
  const listed = pages.filter((page) => !/^README|docs\/README|^docs\/(decisions|testing)\//.test(page));
  t.strictSame(
    listed.filter((page) => !contents.includes(`](${path.relative('docs', page)})`)),
    [],
  );
});

t.test('what reading-the-code names in a file is declared there', async (t) => {
  const named = [...read('docs/reading-the-code.md').matchAll(/`(#?\w+)`\s+in\s+`([\w/.-]+\.ts)`/g)];
  t.ok(named.length >= 10, 'the names are found');
  for (const [, symbol = '', file = ''] of named) {
    const declaration = new RegExp(`^\\s*(?:(?:export|async|function|const) )*${symbol}(?: =|[(:<])`, 'm');
    t.match(read(`lib/${file}`), declaration, `${symbol} in ${file}`);
  }
});

function read(page: string): string {
  return readFileSync(path.join(root, page), 'utf8');
}

/** The page with empty lines in place of its blocks of code. */
function proseOf(page: string): string {
  return read(page).replace(/^```[\s\S]*?^```/gm, (code) => code.replace(/.+/g, ''));
}

/** Without tables, code and examples, whose lines cannot be wrapped. */
function longLinesOf(page: string): string[] {
  return proseOf(page)
    .split('\n')
    .flatMap((line, index) => {
      return line.length > LINE_CHARS && !/^(\||#| {4})/.test(line) ? [`${page}:${index + 1}`] : [];
    });
}

/** Lines such as `40. Of`, which are read as the start of a list. An item continues its list. */
function falseItemsOf(page: string): string[] {
  const lines = proseOf(page).split('\n');
  let last = 0;
  return lines.flatMap((line, index) => {
    const number = Number(/^\s*(\d+)\. /.exec(line)?.[1] ?? Number.NaN);
    if (Number.isNaN(number)) return [];
    if (number === 1 ? lines[index - 1]?.trim() !== '' : number !== last + 1) return [`${page}:${index + 1}`];
    last = number;
    return [];
  });
}

function brokenLinks(page: string): string[] {
  const links = [...read(page).matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
  return links
    .filter((link) => !/^[a-z]+:/.test(link) && !leadsSomewhere(page, link))
    .map((link) => `${page}: ${link}`);
}

function leadsSomewhere(page: string, link: string): boolean {
  const [name = '', anchor] = link.split('#');
  const target = name === '' ? page : path.join(path.dirname(page), name);
  if (!existsSync(path.join(root, target))) return false;
  return anchor === undefined || !target.endsWith('.md') || anchorsOf(read(target)).includes(anchor);
}

/** The anchors that GitHub derives from headings. */
function anchorsOf(text: string): string[] {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) => heading.toLowerCase());
  return headings.map((heading) => heading.replace(/[^\p{L}\p{N} _-]/gu, '').replaceAll(' ', '-'));
}
