/**
 * The table of a run for people: ratios first, the floor next to the measured value, notes below.
 * Pure.
 */
import { isMet, type Limit, type Result, ratioOf } from './figure.ts';
import { type Floor, floorKeys } from './floors.ts';
import type { FigureReport, Report } from './report.ts';

const HEAD = ['ratio', 'wanted', '', 'figure', 'measured', 'floor'] as const;
/** A comparison with peers has no limit. */
const PEERS_HEAD = ['ratio', '', '', 'figure', 'cnapi', 'beside'] as const;
const NOTE_INDENT = '        ';

export function renderTable(report: Report): string {
  const heads = report.isPeers ? PEERS_HEAD : HEAD;
  const rows = report.figures.map((figure) => ({ figure, rows: figure.results.map(cellsOf) }));
  const widths = heads.map((head, column) =>
    Math.max(head.length, ...rows.flatMap((each) => each.rows).map((cells) => cells[column]?.length ?? 0)),
  );
  const line = (cells: readonly string[]) =>
    cells
      .map((cell, column) => (column === 0 ? cell.padStart(widths[0] ?? 0) : cell.padEnd(widths[column] ?? 0)))
      .filter((_, column) => widths[column] !== 0)
      .join('  ')
      .trimEnd();
  return [
    ...headerOf(report),
    '',
    line(heads),
    line(widths.map((width) => '-'.repeat(width))),
    ...rows.flatMap(({ figure, rows: each }) => [
      ...each.flatMap((cells, index) => [line(cells), ...notesOf(figure.results[index])]),
      ...failureOf(figure),
    ]),
    '',
    ...footerOf(report),
  ].join('\n');
}

function cellsOf(result: Result): string[] {
  const ratio = ratioOf(result);
  const { what, value, unit, floor, limit } = result;
  return [
    ratio === undefined ? '–' : `${number(ratio)} ×`,
    limit === undefined ? '' : wanted(limit, unit),
    { true: 'met', false: 'MISSED', undefined: '' }[String(isMet(result)) as 'true'],
    what,
    `${number(value)} ${unit}`,
    floor === undefined ? '' : `${number(floor.value)} ${unit}  ${floor.of}`,
  ];
}

function wanted(limit: Limit, unit: string): string {
  const suffix = limit.on === 'ratio' ? '×' : unit;
  return 'atMost' in limit ? `≤ ${number(limit.atMost)} ${suffix}` : `≥ ${number(limit.atLeast)} ${suffix}`;
}

function notesOf(result: Result | undefined): string[] {
  return (result?.notes ?? []).map((note) => `${NOTE_INDENT}${note}`);
}

function failureOf({ name, error }: FigureReport): string[] {
  return error === undefined
    ? []
    : [`${name} could not be measured:`, ...error.split('\n').map((line) => NOTE_INDENT + line)];
}

function headerOf({ machine, isQuick, isPeers, floors }: Report): string[] {
  return [
    ...(isQuick ? ['QUICK SIZES: these numbers mean nothing', ''] : []),
    `${machine.cores} × ${machine.cpu}, ${machine.memoryGb} GB, ${machine.system}; Node ${machine.node}, ` +
      `Postgres ${machine.postgres}, bus ${machine.bus}`,
    'floors, p50 (p10 to p90), in ms: one after the other, and after 8 ms of rest',
    ...floorKeys.map(({ key, says }) => `  ${key}  ${floorText(floors[key])}  ${says}`),
    ...(isPeers ? ["ratio: cnapi's median by the other's; both took turns"] : []),
  ];
}

function floorText({ busy, rested }: Floor): string {
  const text = ({ median, p10, p90 }: Floor['busy']) => `${number(median)} (${number(p10)} to ${number(p90)})`;
  return `${text(busy).padEnd(24)}${text(rested).padEnd(24)}`;
}

function footerOf({ figures, isPeers }: Report): string[] {
  const results = figures.flatMap((figure) => figure.results);
  const count = (met: boolean) => results.filter((result) => isMet(result) === met).length;
  const failed = figures.filter(({ error }) => error !== undefined).length;
  const loads = figures.map(
    ({ name, seconds, loadBefore }) => `${name} ${Math.round(seconds)} s (${number(loadBefore)})`,
  );
  return [
    `took (and the load average of a minute before it): ${loads.join(', ')}`,
    [
      ...(isPeers ? [`${results.length} measured`] : [`${count(true)} met`, `${count(false)} missed`]),
      ...(failed === 0 ? [] : [`${failed} could not be measured`]),
    ].join(', '),
  ];
}

/** Formats with three significant digits, and a comma for thousands. */
export function number(value: number): string {
  if (!Number.isFinite(value)) return String(value);
  const digits = Math.max(0, Math.min(3, 2 - Math.floor(Math.log10(Math.abs(value) || 1))));
  return value.toLocaleString('en-US', { maximumFractionDigits: digits });
}
