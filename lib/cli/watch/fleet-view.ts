/**
 * The contents of `cnapi watch`: the instances, counts of the fleet, servers that are not running,
 * active tasks. Pure.
 */

import type { Instance } from '../../protocol/api/instances.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { ListedTask } from '../../protocol/api/tasks.ts';
import type { Queue } from '../../protocol/api/tickets.ts';
import { shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { type Column, table, truncateToWidth } from '../terminal/table.ts';

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
  trouble?: string | undefined;
}

export function countByStatus(servers: Iterable<NamedServer>): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { status = 'unknown' } of servers) counts.set(status, (counts.get(status) ?? 0) + 1);
  return Object.fromEntries(counts);
}

/** One line for logs; it changes only when something shown changes. */
export function fleetSummary({ instances, total, counts, queues, tasks, hasMoreTasks, trouble }: FleetView): string {
  const states = [...new Set(instances.map(({ state }) => state))];
  const each = states.map((state) => `${instances.filter((one) => one.state === state).length} ${state}`);
  const held = queues.filter(({ holder }) => holder !== null).length;
  return escapeControls(
    [
      `instances: ${each.join(', ') || 'none'}`,
      `servers: ${statusText(total, counts)}`,
      `locks: ${held} held, ${waiting(queues)} waiting`,
      ...(tasks === undefined ? [] : [`tasks: ${tasksText(tasks, hasMoreTasks)}`]),
      ...(trouble === undefined ? [] : [`! ${trouble}`]),
    ].join('; '),
  );
}

interface Styles {
  bold(text: string): string;
  red(text: string): string;
}

/** Formats the view as a screen, with `time` in a corner. */
export function screenOf(
  view: FleetView,
  { width, time, paint }: { width: number; time: string; paint: Styles },
): string[] {
  const { instances, total, counts, away, queues, tasks, hasMoreTasks, trouble } = view;
  const title = 'cnapi watch   q to leave';
  const clip = (line: string) => truncateToWidth(line, width);
  const held = queues.filter(({ holder }) => holder !== null).length;
  const lines = [paint.bold(clip(title + shortTime(time).padStart(Math.max(1, width - title.length)))), ''];
  if (trouble !== undefined) lines.push(paint.red(clip(escapeControls(trouble))), '');
  const numbers = [`servers  ${statusText(total, counts)}`, `locks    ${held} held, ${waiting(queues)} waiting`];
  if (tasks !== undefined) numbers.push(`tasks    ${tasksText(tasks, hasMoreTasks)}`);
  lines.push(...numbers.map(clip), '');
  lines.push(...section(INSTANCES, instances, width, paint));
  if (away.length > 0) lines.push('', ...section(AWAY, away, width, paint));
  if (tasks !== undefined && tasks.length > 0) lines.push('', ...section(TASKS, tasks, width, paint));
  return lines;
}

function section<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width: number, paint: Styles): string[] {
  const [head = '', ...lines] = table(columns, rows, width).map((line) => truncateToWidth(line, width));
  return [paint.bold(head), ...lines];
}

const statusText = (total: number, counts: Readonly<Record<string, number>>): string => {
  const each = Object.entries(counts).sort(([a], [b]) => (a === 'running' ? -1 : b === 'running' ? 1 : a < b ? -1 : 1));
  return [`${total}`, ...each.map(([status, count]) => `${count} ${escapeControls(status)}`)].join(', ');
};

const tasksText = ({ length }: readonly unknown[], hasMore: boolean): string =>
  `${length}${hasMore ? ' or more' : ''} active`;

const waiting = (queues: readonly Queue[]): number => queues.reduce((sum, { depth }) => sum + depth, 0);

const INSTANCES: readonly Column<Instance>[] = [
  { head: 'INSTANCE', of: ({ uuid }) => uuid, shrinks: true },
  { head: 'URL', of: ({ url }) => url, shrinks: true },
  { head: 'STATE', of: ({ state }) => state },
  { head: 'AGENTS', of: ({ agents }) => agents, align: 'right' },
  { head: 'BEAT ms', of: ({ lease_age_ms }) => Math.round(lease_age_ms), align: 'right' },
];

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
