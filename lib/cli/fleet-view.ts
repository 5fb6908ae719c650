/** What `cnapi watch` shows: the instances, the fleet in numbers, what is not up, what runs. Pure. */
import type { Instance, Queue, Server } from '../client/answers.ts';
import { shortTime } from './duration.ts';
import { type Column, clipped, table } from './table.ts';
import { visible } from './visible.ts';

export interface RunningTask {
  id: string;
  task: string;
  serverUuid: string;
  since: string;
}

export interface FleetView {
  instances: readonly Instance[];
  total: number;
  /** By status. */
  counts: Readonly<Record<string, number>>;
  /** Those that are not `running`, the first of them. */
  away: readonly Server[];
  queues: readonly Queue[];
  /** Begun since the watch began; undefined where the instances do not tell. */
  tasks: readonly RunningTask[] | undefined;
  /** What stands in the way of newer figures. */
  trouble?: string | undefined;
}

export function countByStatus(servers: Iterable<Server>): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status = 'unknown' } of servers) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

/** One line for logs: it changes when something changes. */
export function summaryOf({ instances, total, counts, queues, tasks, trouble }: FleetView): string {
  const states = [...new Set(instances.map(({ state }) => state))];
  const each = states.map((state) => `${instances.filter((one) => one.state === state).length} ${state}`);
  const held = queues.filter(({ holder }) => holder !== null).length;
  return visible(
    [
      `instances: ${each.join(', ') || 'none'}`,
      `servers: ${statusText(total, counts)}`,
      `locks: ${held} held, ${waiting(queues)} waiting`,
      ...(tasks === undefined ? [] : [`tasks: ${tasks.length} running`]),
      ...(trouble === undefined ? [] : [`! ${trouble}`]),
    ].join('; '),
  );
}

export interface Paint {
  bold(text: string): string;
  red(text: string): string;
}

/** A screen of it; `time` is shown in its corner. */
export function screenOf(
  view: FleetView,
  { width, time, paint }: { width: number; time: string; paint: Paint },
): string[] {
  const { instances, total, counts, away, queues, tasks, trouble } = view;
  const title = 'cnapi watch   q to leave';
  const clip = (line: string) => clipped(line, width);
  const held = queues.filter(({ holder }) => holder !== null).length;
  const lines = [paint.bold(clip(title + shortTime(time).padStart(Math.max(1, width - title.length)))), ''];
  if (trouble !== undefined) lines.push(paint.red(clip(visible(trouble))), '');
  const numbers = [`servers  ${statusText(total, counts)}`, `locks    ${held} held, ${waiting(queues)} waiting`];
  lines.push(...numbers.map(clip), '');
  lines.push(...section(INSTANCES, instances, width, paint));
  if (away.length > 0) lines.push('', ...section(AWAY, away, width, paint));
  if (tasks !== undefined && tasks.length > 0) lines.push('', ...section(TASKS, tasks, width, paint));
  return lines;
}

function section<Row>(columns: readonly Column<Row>[], rows: readonly Row[], width: number, paint: Paint): string[] {
  const [head = '', ...lines] = table(columns, rows, width).map((line) => clipped(line, width));
  return [paint.bold(head), ...lines];
}

const statusText = (total: number, counts: Readonly<Record<string, number>>): string => {
  const each = Object.entries(counts).sort(([a], [b]) => (a === 'running' ? -1 : b === 'running' ? 1 : a < b ? -1 : 1));
  return [`${total}`, ...each.map(([status, count]) => `${count} ${visible(status)}`)].join(', ');
};

const waiting = (queues: readonly Queue[]): number => queues.reduce((sum, { depth }) => sum + depth, 0);

const INSTANCES: readonly Column<Instance>[] = [
  { head: 'INSTANCE', of: ({ uuid }) => uuid },
  { head: 'URL', of: ({ url }) => url, shrinks: true },
  { head: 'STATE', of: ({ state }) => state },
  { head: 'AGENTS', of: ({ agents }) => agents, align: 'right' },
  { head: 'BEAT ms', of: ({ lease_age_ms }) => Math.round(lease_age_ms), align: 'right' },
];

const AWAY: readonly Column<Server>[] = [
  { head: 'NOT RUNNING', of: ({ uuid }) => uuid },
  { head: 'HOSTNAME', of: ({ hostname }) => hostname, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
];

const TASKS: readonly Column<RunningTask>[] = [
  { head: 'TASK', of: ({ id }) => id },
  { head: 'NAME', of: ({ task }) => task, shrinks: true },
  { head: 'SERVER', of: ({ serverUuid }) => serverUuid },
  { head: 'SINCE', of: ({ since }) => shortTime(since), shrinks: true },
];
