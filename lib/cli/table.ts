/** Tables for people: columns as wide as they need, fitted to the terminal by shortening those that may be. Pure. */
import { visible } from './visible.ts';

export interface Column<Row> {
  head: string;
  of(row: Row): string | number | boolean | null | undefined;
  /** May be shortened. Ids never are: half a uuid is of no use. */
  shrinks?: boolean;
  align?: 'right';
}

const GAP = '  ';
const LEAST = 8;
const ELLIPSIS = '…';

/** Lines, the first one the heads. `width` undefined: as wide as it comes. */
export function table<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width?: number): string[] {
  const cells = [
    columns.map(({ head }) => head),
    ...rows.map((row) => columns.map((column) => textOf(column.of(row)))),
  ];
  const widths = fitted(columns, cells, width);
  return cells.map((line) =>
    line
      .map((cell, at) => aligned(shortened(cell, widths[at] ?? 0), widths[at] ?? 0, columns[at]?.align))
      .join(GAP)
      .trimEnd(),
  );
}

/** Name and value, one a line. */
export function facts(pairs: readonly (readonly [string, unknown])[]): string[] {
  const given = pairs.filter(([, value]) => value !== undefined && value !== null && value !== '');
  const widest = Math.max(0, ...given.map(([name]) => name.length));
  return given.map(([name, value]) => `${name.padEnd(widest)}  ${textOf(value)}`);
}

function textOf(value: unknown): string {
  if (value === undefined || value === null || value === '') return '-';
  return visible(typeof value === 'object' ? JSON.stringify(value) : String(value));
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

/** A loop: a call takes only so many arguments. */
function widestOf(texts: readonly string[]): number {
  let widest = 0;
  for (const text of texts) widest = Math.max(widest, widthOf(text));
  return widest;
}

function shortened(cell: string, width: number): string {
  if (widthOf(cell) <= width) return cell;
  let kept = '';
  let used = 0;
  for (const character of cell) {
    used += widthOf(character);
    if (used > width - 1) break;
    kept += character;
  }
  return kept + ELLIPSIS;
}

function aligned(cell: string, width: number, align: 'right' | undefined): string {
  const padding = ' '.repeat(Math.max(0, width - widthOf(cell)));
  return align === 'right' ? padding + cell : cell + padding;
}

const WIDE =
  /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Emoji_Presentation}/u;
const NONE = /\p{Mark}|\u200b|\u200c|\u200d/u;

/** Cells of a terminal. */
export function widthOf(text: string): number {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: plain ASCII is most of it
  if (/^[\x00-\x7f]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) width += NONE.test(character) ? 0 : WIDE.test(character) ? 2 : 1;
  return width;
}

/** Not longer than the screen is wide, or it would take two lines. Of text without colours. */
export function clipped(line: string, width: number): string {
  if (widthOf(line) <= width) return line;
  let kept = '';
  let used = 0;
  for (const character of line) {
    used += widthOf(character);
    if (used > width) break;
    kept += character;
  }
  return kept;
}
