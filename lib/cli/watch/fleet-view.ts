/**
 * The contents of `cnapi watch`: the instances, counts of the fleet, servers that are not running,
 * active tasks. Pure.
 */

import type { Instance } from '../../protocol/api/instances.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { ListedTask } from '../../protocol/api/tasks.ts';
import type { Queue } from '../../protocol/api/tickets.ts';
import { INSTANCE_COLUMNS } from '../instances/instance-columns.ts';
import { wrapped } from '../invocation/help-text.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { type Column, table, truncateToWidth } from '../terminal/table.ts';
import type { Silence } from './freshness.ts';

export interface FleetView {
  instances: readonly Instance[];
  total: number;
  /** Number of servers by status. */
  counts: Readonly<Record<string, number>>;
  /** The first servers that are not `running`. */
  away: readonly NamedServer[];
  queues: readonly Queue[];
  /** The newest tasks that have not ended; undefined when the instances do not list tasks. */
  tasks: readonly ListedTask[] | undefined;
  hasMoreTasks: boolean;
  /** Why the figures could not be updated. */
  errorMessage?: string | undefined;
}

export function countByStatus(servers: Iterable<NamedServer>): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { status = 'unknown' } of servers) counts.set(status, (counts.get(status) ?? 0) + 1);
  return Object.fromEntries(counts);
}

/** One line for logs; it changes only when something shown changes. */
export function fleetSummary({
  instances,
  total,
  counts,
  queues,
  tasks,
  hasMoreTasks,
  errorMessage,
}: FleetView): string {
  const states = [...new Set(instances.map(({ state }) => state))];
  const each = states.map((state) => `${instances.filter((instance) => instance.state === state).length} ${state}`);
  const held = queues.filter(({ holder }) => holder !== null).length;
  return escapeControls(
    [
      `instances: ${each.join(', ') || 'none'}`,
      `servers: ${statusText(total, counts)}`,
      `locks: ${held} held, ${waiting(queues)} waiting`,
      ...(tasks === undefined ? [] : [`tasks: ${tasksText(tasks, hasMoreTasks)}`]),
      ...(errorMessage === undefined ? [] : [`! ${errorMessage}`]),
    ].join('; '),
  );
}

interface Styles {
  bold(text: string): string;
  red(text: string): string;
  dim(text: string): string;
}

interface Appearance {
  width: number;
  /** Now, for a corner of the screen. */
  time: string;
  /** Given when the view may no longer be true. */
  silence?: Silence | undefined;
  paint: Styles;
}

const MAX_ERROR_LINES = 6;

/** Formats the view as a screen. */
export function renderScreen(view: FleetView, { width, time, silence, paint }: Appearance): string[] {
  const title = 'cnapi watch   q to leave';
  const clip = (line: string) => truncateToWidth(line, width);
  const head = [paint.bold(clip(title + shortTime(time).padStart(Math.max(1, width - title.length)))), ''];
  if (silence === undefined) return [...head, ...contentsOf(view, { width, was: '', bold: paint.bold })];
  const notice = noticeOf(silence, view.errorMessage, width).map((line) => paint.red(clip(line)));
  if (silence.answeredAt === undefined) return [...head, ...notice];
  const former = contentsOf(view, { width, was: 'was ', bold: (text) => text });
  return [...head, ...notice, '', ...former.map((line) => (line === '' ? line : paint.dim(line)))];
}

function noticeOf({ forMs, answeredAt }: Silence, errorMessage: string | undefined, width: number): string[] {
  const what = `${errorMessage === undefined ? 'no answer' : 'no update'} for ${wholeSeconds(forMs)}`;
  const since = answeredAt === undefined ? '' : `; what follows is from ${shortTime(answeredAt)}`;
  const lines = (text: string) => wrapped(escapeControls(text), width).split('\n');
  return [...lines(what + since), ...(errorMessage === undefined ? [] : lines(errorMessage).slice(0, MAX_ERROR_LINES))];
}

const wholeSeconds = (ms: number): string => (ms < 10_000 ? `${Math.floor(ms / 1000)}s` : shortDuration(ms));

/** Formats what is below the head. `was` begins each state that may no longer be true. */
function contentsOf(
  { instances, total, counts, away, queues, tasks, hasMoreTasks }: FleetView,
  { width, was, bold }: { width: number; was: string; bold: Styles['bold'] },
): string[] {
  const clip = (line: string) => truncateToWidth(line, width);
  const section = <Row>(columns: readonly Column<Row>[], rows: readonly Row[]) => {
    const [head = '', ...lines] = table(columns.map(beginStates(was)), rows, width).map(clip);
    return [bold(head), ...lines];
  };
  const held = queues.filter(({ holder }) => holder !== null).length;
  const numbers = [
    `servers  ${was}${statusText(total, counts)}`,
    `locks    ${was}${held} held, ${waiting(queues)} waiting`,
  ];
  if (tasks !== undefined) numbers.push(`tasks    ${was}${tasksText(tasks, hasMoreTasks)}`);
  const lines = [...numbers.map(clip), '', ...section(INSTANCE_COLUMNS, instances)];
  if (away.length > 0) lines.push('', ...section(AWAY, away));
  if (tasks !== undefined && tasks.length > 0) lines.push('', ...section(TASKS, tasks));
  return lines;
}

/** The columns of states. */
const STATES: ReadonlySet<string> = new Set(['STATE', 'STATUS', 'BEAT']);

const beginStates =
  (was: string) =>
  <Row>(column: Column<Row>): Column<Row> =>
    was !== '' && STATES.has(column.head) ? { ...column, of: (row) => `${was}${column.of(row)}` } : column;

const statusText = (total: number, counts: Readonly<Record<string, number>>): string => {
  const each = Object.entries(counts).sort(([a], [b]) => (a === 'running' ? -1 : b === 'running' ? 1 : a < b ? -1 : 1));
  return [`${total}`, ...each.map(([status, count]) => `${count} ${escapeControls(status)}`)].join(', ');
};

const tasksText = ({ length }: readonly unknown[], hasMore: boolean): string =>
  `${length}${hasMore ? ' or more' : ''} active`;

const waiting = (queues: readonly Queue[]): number => queues.reduce((sum, { depth }) => sum + depth, 0);

const AWAY: readonly Column<NamedServer>[] = [
  { head: 'NOT RUNNING', of: ({ uuid }) => uuid },
  { head: 'HOSTNAME', of: ({ hostname }) => hostname, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
];

const TASKS: readonly Column<ListedTask>[] = [
  { head: 'TASK', of: ({ id }) => id },
  { head: 'NAME', of: ({ task }) => task, shrinks: true },
  { head: 'SERVER', of: ({ server_uuid }) => server_uuid },
  { head: 'CREATED', of: ({ timestamp }) => shortTime(timestamp), shrinks: true },
  { head: 'WHAT', of: ({ summary }) => summary, shrinks: true },
];
