/**
 * How a push job goes, for people: its progress while it runs, and the two layouts of the
 * specification. Pure; used by follow-job.ts and `cnapi job`.
 */
import { JOB_ENDS, type NodeStatus, type PushJob, type PushNode } from '../../protocol/api/push/job-schemas.ts';
import { hasNodeEnded } from '../output/node-ending.ts';
import { shortTime } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

export const hasEnded = ({ status }: PushJob): boolean => JOB_ENDS.includes(status);

/**
 * The statuses in the order in which nodes reach them, with the specification's word if it has one.
 */
const SUMMARY: readonly (readonly [NodeStatus, string])[] = [
  ['new', 'not asked yet, or without an answer'],
  ['ready', 'acknowledged, not started'],
  ['nacked', 'nacked: busy, not allowed or not able to run it'],
  ['unavailable', 'unavailable: did not take part'],
  ['running', 'started'],
  ['was_ready', 'acknowledged, never started'],
  ['aborted', 'aborted'],
  ['crashed', 'went down while the command ran'],
  ['timed_out', 'did not end in time'],
  ['failed', 'completed with errors'],
  ['succeeded', 'completed successfully'],
];

/** One line for each state that nodes are in: `14 nodes started`. */
export function nodeCountLines({ counts }: PushJob): string[] {
  const lines = SUMMARY.flatMap(([status, words]) => {
    const count = counts[status] ?? 0;
    return count === 0 ? [] : [{ count, words }];
  });
  const width = Math.max(0, ...lines.map(({ count }) => String(count).length));
  return lines.map(
    ({ count, words }) => `${nodesOf(count).padStart(width + nodesOf(count).length - String(count).length)} ${words}`,
  );
}

const nodesOf = (count: number): string => `${count} ${count === 1 ? 'node' : 'nodes'}`;

/** The same in one line, for a job that runs: `running: 3 nodes ready, 14 running, 4 succeeded`. */
export function describeProgress(job: PushJob): string {
  const counts = SUMMARY.flatMap(([status]) => {
    const count = job.counts[status] ?? 0;
    return count === 0 ? [] : { count, words: status.replace('_', ' ') };
  });
  const parts = counts.map(({ count, words }, place) => `${place === 0 ? nodesOf(count) : count} ${words}`);
  return `${job.status}: ${parts.join(', ')}`;
}

/** The specification's table, with what it has no column for after it. */
export const NODE_COLUMNS: readonly Column<PushNode>[] = [
  { head: 'NODE NAME', of: ({ name, server_uuid }) => name || server_uuid, shrinks: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'LAST UPDATED', of: ({ updated_at }) => shortTime(updated_at), optional: 'early' },
  { head: 'EXIT', of: ({ exit_code }) => exit_code },
  { head: 'TASK', of: ({ task_id }) => task_id, abbreviates: true, optional: 'early' },
  { head: 'WHY', of: reasonOf, shrinks: true },
];

/**
 * The specification's line of one node: `node foo failed running job id 235 at 2012-05-04 00:00`.
 * `later`: what its agent reported after the node had ended.
 */
export function nodeLine(node: PushNode, { id }: Pick<PushJob, 'id'>, later?: string): string {
  const { name, server_uuid, status, task_id, exit_code, updated_at } = node;
  const what = task_id === undefined ? 'not running' : 'running';
  const reason = exit_code === undefined ? reasonOf(node) : `exit code ${exit_code}`;
  return `node ${name || server_uuid} ${status} ${what} job id ${id} at ${shortTime(updated_at)}${reason === '' ? '' : `: ${reason}`}${later === undefined ? '' : ` (${later})`}`;
}

function reasonOf(node: PushNode): string {
  const { reason, message, busy_with, cancelled } = node;
  return [
    cancelled && !hasNodeEnded(node) ? 'cancelled' : reason,
    busy_with && `with push job ${busy_with.slice(0, 8)}`,
    message,
  ]
    .filter((one) => one !== undefined)
    .join(': ');
}

/** OK is always shown: a job whose only node crashed is `complete`, too. */
export const JOB_COLUMNS: readonly Column<PushJob>[] = [
  { head: 'CREATED', of: ({ created_at }) => shortTime(created_at), optional: true },
  { head: 'ID', of: ({ id }) => id, abbreviates: true },
  { head: 'STATUS', of: ({ status }) => status },
  { head: 'NODES', of: ({ node_count }) => node_count, align: 'right', optional: true },
  { head: 'OK', of: ({ counts }) => counts.succeeded ?? 0, align: 'right' },
  { head: 'ACTOR', of: ({ actor }) => actor, shrinks: true, optional: true },
  { head: 'COMMAND', of: ({ command }) => command, shrinks: true },
];

const BAD: readonly NodeStatus[] = [
  'failed',
  'crashed',
  'timed_out',
  'aborted',
  'was_ready',
  'new',
  'ready',
  'running',
];

/** Whether the job is complete, and every node that took part succeeded. */
export const hasJobSucceeded = ({ status, counts }: PushJob): boolean =>
  status === 'complete' && BAD.every((one) => (counts[one] ?? 0) === 0);
