/** What people read about a workflow job and its steps. Pure. */
import type { WorkflowJob } from '../../protocol/api/workflows.ts';
import { shortDuration } from '../terminal/duration.ts';
import type { Column } from '../terminal/table.ts';

/** A step of a job: how one try of it ended, or where it is. */
interface StepLine {
  step: string;
  result: string;
  took?: string | undefined;
  taskId?: string | undefined;
  error?: string | undefined;
}

export const STEP_COLUMNS: readonly Column<StepLine>[] = [
  { head: 'STEP', of: ({ step }) => step, shrinks: true },
  { head: 'RESULT', of: ({ result }) => result, shrinks: true },
  { head: 'TOOK', of: ({ took }) => took, optional: true },
  { head: 'TASK', of: ({ taskId }) => taskId, abbreviates: true },
  { head: 'ERROR', of: ({ error }) => error, shrinks: true, optional: 'early' },
];

export const hasWorkflowEnded = ({ execution }: WorkflowJob): boolean =>
  execution !== 'queued' && execution !== 'running';

type StepEnd = WorkflowJob['chain_results'][number];

/** The ends of all steps so far, in the order in which they happened. */
const endsOf = ({ chain_results, onerror_results }: WorkflowJob): readonly StepEnd[] => [
  ...chain_results,
  ...onerror_results,
];

export const endCountOf = (job: WorkflowJob): number => endsOf(job).length;

const tookOf = ({ started_at, finished_at }: StepEnd): string =>
  shortDuration(Date.parse(finished_at) - Date.parse(started_at));

/** One for each end of a step, for the present step, and for each that follows if all goes well. */
export function stepLines(job: WorkflowJob): StepLine[] {
  const { chain, chain_results, waiting_for: present } = job;
  const ended = endsOf(job).map((end) => ({
    step: end.name,
    result: end.error_code ?? end.result,
    took: tookOf(end),
    taskId: end.task_id,
    error: end.error,
  }));
  if (present === undefined) return ended;
  const hasFailed = chain_results.length > 0 && chain_results.at(-1)?.error !== '' && present.tries === 0;
  const isLeaving = job.cancel_requested || hasFailed || job.onerror_results.length > 0;
  const later = isLeaving ? [] : chain.slice(chain.findIndex(({ name }) => name === present.step) + 1);
  return [
    ...ended,
    { step: present.step, result: 'running', taskId: present.task_id },
    ...later.map(({ name }) => ({ step: name, result: 'waiting' })),
  ];
}

/** The ends of steps after the first `seen`: `reboot: OK after 0.4s`. */
export function endLines(job: WorkflowJob, seen: number): string[] {
  const inChain = job.chain_results.length;
  return endsOf(job).flatMap((end, index) => {
    if (index < seen) return [];
    const name = index < inChain ? end.name : `undo: ${end.name}`;
    const task = end.error === '' || end.task_id === undefined ? '' : `; cnapi task ${end.task_id} shows its output`;
    return end.error === ''
      ? `${name}: ${end.result} after ${tookOf(end)}`
      : `${name}: ${failureOf(end)} after ${tookOf(end)}${task}`;
  });
}

const failureOf = ({ error, error_code: code }: StepEnd): string =>
  code === undefined || code === 'Canceled' ? error : `${error} (${code})`;

/** What the job does at present; undefined: it has ended. */
export function presentLine({ waiting_for: present, cancel_requested: isCanceled }: WorkflowJob): string | undefined {
  if (present === undefined) return undefined;
  const { step, until, task_id: taskId, tries } = present;
  const again = tries > 0 ? ` (try ${tries + 1})` : '';
  const what = taskId === undefined ? until : `task ${taskId} has ended`;
  const waits = what === undefined ? 'begun' : `waits until ${what}`;
  return `${step}${again}: ${waits}${isCanceled ? '; its cancel is requested' : ''}`;
}

/** How the job ended: `server-reboot failed after 5m 2s: await-boot: …`. */
export function endingOfJob(job: WorkflowJob): string {
  const { name, execution, elapsed = 0, canceled_by: by } = job;
  const after = `after ${shortDuration(elapsed * 1000)}`;
  if (execution === 'canceled') return `${name} was canceled${by === undefined ? '' : ` by ${by}`} ${after}`;
  const failure = execution === 'failed' ? job.chain_results.findLast(({ error }) => error !== '') : undefined;
  return `${name} ${execution} ${after}${failure === undefined ? '' : `: ${failure.name}: ${failureOf(failure)}`}`;
}
