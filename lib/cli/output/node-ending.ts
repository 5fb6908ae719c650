/** How a command ended on a node of a push job, in the words of the command line. Pure. */
import type { PushNode } from '../../protocol/api/push/job-schemas.ts';
import type { Task } from '../../protocol/api/tasks.ts';
import { OPEN_NODE_STATUSES } from '../../protocol/push.ts';
import { shortTime } from '../terminal/duration.ts';
import { type CommandOutcome, endedAs } from './outcome.ts';
import { exitCodeOf } from './task-end.ts';

export const hasNodeEnded = ({ status }: Pick<PushNode, 'status'>): boolean => !OPEN_NODE_STATUSES.includes(status);

/** Another try has the same end, unless the job or the configuration of the agent changes. */
const FINAL_REASONS: readonly (string | undefined)[] = ['not-allowed', 'bad-options', 'unsupported'];

/** Whether the node has failed and may succeed when the job is run again. */
export const mayRetry = (node: Pick<PushNode, 'status' | 'reason'>): boolean =>
  hasNodeEnded(node) && node.status !== 'succeeded' && !FINAL_REASONS.includes(node.reason);

/** Whether the node's command certainly did not run. */
const wasNotStarted = ({ status, reason }: Pick<PushNode, 'status' | 'reason'>): boolean =>
  ['nacked', 'unavailable', 'was_ready'].includes(status) || reason === 'permission-denied';

/** `end` is the reported end of the node's task, if there is one. */
export function endingOfNode(node: PushNode, end: Readonly<Record<string, unknown>> | undefined): CommandOutcome {
  const { status, task_id: id } = node;
  if (status === 'succeeded') return { kind: 'ok', id: id ?? '', result: end?.result };
  const own = end === undefined || id === undefined || status === 'crashed' ? undefined : endedAs(id, end);
  const reason = own?.kind === 'failed' ? own.reason : reasonOfNode(node);
  return {
    kind: 'failed',
    id,
    reason,
    result: end?.result,
    timedOut: status === 'timed_out',
    cancelled: status === 'aborted' && !wasNotStarted(node),
    notStarted: wasNotStarted(node),
    mayRetry: mayRetry(node),
  };
}

/**
 * What the agent of a crashed node reported once it was back: its command may have ended well. The
 * node stays crashed, because its job had to go on without it. Undefined if the node already has an
 * exit code or none was reported. The second parameter is the node's task.
 */
export function lateReportOf({ status }: Pick<PushNode, 'status'>, { history }: Task): string | undefined {
  const finish = history.find(({ name }) => name === 'finish');
  const exitCode = status === 'crashed' ? exitCodeOf(finish?.event) : undefined;
  if (finish === undefined || exitCode === undefined) return undefined;
  return `its agent came back and reported exit code ${exitCode} at ${shortTime(finish.timestamp)}`;
}

function reasonOfNode(node: PushNode): string {
  const { status, reason = '', message, busy_with, exit_code } = node;
  if (status === 'was_ready') return 'cancelled before it was started';
  if (status === 'failed' && exit_code !== undefined) return `exit code ${exit_code}`;
  if (reason === 'busy')
    return `it was not started: the server is busy with ${busy_with === undefined ? 'another push job' : `push job ${busy_with.slice(0, 8)}`}`;
  // `down` and `restarted` are also reasons of nodes that crashed, whose command was started.
  const known = status === 'crashed' ? REASON_TEXTS[status] : (REASON_TEXTS[reason] ?? REASON_TEXTS[status]);
  if (known !== undefined) return known;
  return message ?? (reason === '' ? status.replace('_', ' ') : `${status.replace('_', ' ')}: ${reason}`);
}

const REASON_TEXTS: Readonly<Record<string, string>> = {
  down: 'it was not started: the server is down',
  restarted: 'it was not started: the agent was restarted meanwhile',
  stopping: 'it was not started: the agent is stopping',
  'no-vote': 'it was not started: the agent did not answer in time',
  'node-aborted': 'cancelled before it was started',
  unsupported:
    'it was not started: the agent does not know push jobs, which run a command on several servers; run cnapi exec on this server alone',
  'permission-denied': 'it was not started: permission denied',
  crashed: 'the agent or its server went down while the command ran; nobody knows how far it came',
  timed_out: 'it did not end in time',
  aborted: 'it was cancelled',
};
