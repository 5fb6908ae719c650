/**
 * Tables for people: columns are as wide as needed, and fit the terminal by shortening those that
 * may be shortened. Pure.
 */
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { escapeControls } from './escape-controls.ts';

export interface Column<Row> {
  head: string;
  of(row: Row): string | number | boolean | null | undefined;
  /** The column may be shortened. */
  shrinks?: boolean;
  /**
   * An id that commands accept by its beginning: if the table is too wide, the beginnings that
   * distinguish its uuids are shown, with at least eight characters. Other ids are never shortened.
   */
  abbreviates?: boolean;
  /**
   * The column is left out if the table is too wide otherwise; the last one first. With `early`
   * it is left out before any column is shortened, and, if there is a width, where it is empty.
   */
  optional?: boolean | 'early';
  align?: 'right';
  /** Colours a cell's text after layout. */
  paint?: Paint;
}

/** `value` is the cell's value, `text` what is shown of it. */
type Paint = (text: string, value: string) => string;

const GAP = '  ';
const LEAST = 8;
const ELLIPSIS = '…';
const EMPTY = '-';

/**
 * Returns the lines, the first one with the heads. Without `width` columns are neither shortened
 * nor left out.
 */
export function table<Row>(all: readonly Column<Row>[], rows: readonly Row[], width?: number): string[] {
  if (width === undefined) return linesOf(all, rows, width).shown;
  const isLeftOut = ({ optional, of }: Column<Row>) =>
    optional === 'early' && rows.every((row) => textOf(of(row)) === EMPTY);
  let columns = all.filter((column) => !isLeftOut(column));
  for (const kind of ['early', true] as const)
    for (;;) {
      const dispensable = columns.findLast(({ optional }) => optional === kind);
      if (dispensable === undefined) break;
      const lines = linesOf(columns, rows, width);
      if (widestOf(lines.plain) <= width && (kind === true || !lines.isShortened)) return lines.shown;
      columns = columns.filter((column) => column !== dispensable);
    }
  return linesOf(columns, rows, width).shown;
}

/** `plain`: without colours. */
function linesOf<Row>(
  columns: readonly Column<Row>[],
  rows: readonly Row[],
  width: number | undefined,
): { plain: string[]; shown: string[]; isShortened: boolean } {
  const whole = [
    columns.map(({ head }) => head),
    ...rows.map((row) => columns.map((column) => textOf(column.of(row)))),
  ];
  const cells = width !== undefined && widthOfAll(whole) > width ? abbreviated(columns, whole) : whole;
  const widths = fitted(columns, cells, width);
  const plain = cells.map((line) =>
    line.map((cell, at) => aligned(shortened(cell, widths[at] ?? 0), widths[at] ?? 0, columns[at]?.align)),
  );
  const shown = plain.map((line, row) =>
    line.map((text, at) => {
      const paint = row === 0 ? undefined : columns[at]?.paint;
      const isLast = at === line.length - 1;
      return paint === undefined ? text : paint(isLast ? text.trimEnd() : text, cells[row]?.[at] ?? '');
    }),
  );
  const joined = (lines: readonly string[][]) => lines.map((line) => line.join(GAP).trimEnd());
  const isShortened = width !== undefined && widthOfAll(cells) > width;
  return { plain: joined(plain), shown: joined(shown), isShortened };
}

/** One line per pair: name and value. */
export function nameValueLines(pairs: readonly (readonly [string, unknown])[]): string[] {
  const given = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  const widest = Math.max(0, ...given.map(([name]) => name.length));
  return given.map(([name, value]) => `${name.padEnd(widest)}  ${textOf(value)}`);
}

function textOf(value: unknown): string {
  if (value === undefined || value === null || value === '') return EMPTY;
  return escapeControls(typeof value === 'object' ? JSON.stringify(value) : String(value));
}

function widthOfAll(cells: readonly string[][]): number {
  const widths = (cells[0] ?? []).map((_, at) => widestOf(cells.map((line) => line[at] ?? '')));
  return widths.reduce((sum, each) => sum + each, GAP.length * (widths.length - 1));
}

function abbreviated<Row>(columns: readonly Column<Row>[], [head = [], ...lines]: readonly string[][]): string[][] {
  const lengths = columns.map(({ abbreviates }, at) =>
    abbreviates === true ? distinguishing(lines.map((line) => line[at] ?? '').filter(isUuid)) : undefined,
  );
  return [head, ...lines.map((line) => line.map((cell, at) => (isUuid(cell) ? cell.slice(0, lengths[at]) : cell)))];
}

/** Returns how many characters distinguish different texts, at least `LEAST`. */
function distinguishing(texts: readonly string[]): number {
  const count = new Set(texts).size;
  let length = LEAST;
  while (new Set(texts.map((text) => text.slice(0, length))).size < count) length++;
  return length;
}

function fitted<Row>(columns: readonly Column<Row>[], cells: readonly string[][], width: number | undefined): number[] {
  const widths = columns.map((_, at) => widestOf(cells.map((line) => line[at] ?? '')));
  if (width === undefined) return widths;
  let excess = widths.reduce((sum, each) => sum + each, 0) + GAP.length * (columns.length - 1) - width;
  while (excess > 0) {
    const [widest] = columns
      .map((column, at) => ({ at, size: widths[at] ?? 0, may: column.shrinks === true }))
      .filter(({ size, may }) => may && size > LEAST)
      .sort((a, b) => b.size - a.size);
    if (widest === undefined) return widths;
    widths[widest.at] = widest.size - 1;
    excess--;
  }
  return widths;
}

/** A loop, because a function call takes a limited number of arguments. */
function widestOf(texts: readonly string[]): number {
  let widest = 0;
  for (const text of texts) widest = Math.max(widest, displayWidth(text));
  return widest;
}

function shortened(cell: string, width: number): string {
  return displayWidth(cell) <= width ? cell : truncateToWidth(cell, width - 1) + ELLIPSIS;
}

function aligned(cell: string, width: number, align: 'right' | undefined): string {
  const padding = ' '.repeat(Math.max(0, width - displayWidth(cell)));
  return align === 'right' ? padding + cell : cell + padding;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const NONE = /\p{Mark}|\u200b|\u200c|\u200d/u;

/** Returns the width in terminal cells. */
export function displayWidth(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: plain ASCII is most of it
  if (/^[\x00-\x7f]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += NONE.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** Cuts a line at the width of the screen, so that it does not wrap. For text without colours. */
export function truncateToWidth(line: string, width: number): string {
  if (displayWidth(line) <= width) return line;
  let kept = '';
  let used = 0;
  for (const character of line) {
    used += displayWidth(character);
    if (used > width) break;
    kept += character;
  }
  return kept;
}
