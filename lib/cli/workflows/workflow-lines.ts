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
  const ended = endsOf(job).map((end, index) => ({
    step: index < chain_results.length ? end.name : undoOf(end.name),
    result: end.error_code ?? end.result,
    took: tookOf(end),
    taskId: end.task_id,
    error: end.error,
  }));
  if (present === undefined) return ended;
  const hasFailed = chain_results.length > 0 && chain_results.at(-1)?.error !== '' && present.tries === 0;
  const next = chain[chain_results.filter(({ error }) => error === '').length];
  const isUndo = hasFailed || job.onerror_results.length > 0 || present.step !== next?.name;
  const isLeaving = job.cancel_requested || isUndo;
  const later = isLeaving ? [] : chain.slice(chain.findIndex(({ name }) => name === present.step) + 1);
  return [
    ...ended,
    { step: isUndo ? undoOf(present.step) : present.step, result: 'running', taskId: present.task_id },
    ...later.map(({ name }) => ({ step: name, result: 'waiting' })),
  ];
}

const undoOf = (step: string): string => `undo: ${step}`;

/** The ends of steps after the first `seen`: `reboot: OK after 0.4s`. */
export function endLines(job: WorkflowJob, seen: number): string[] {
  const inChain = job.chain_results.length;
  return endsOf(job).flatMap((end, index) => {
    if (index < seen) return [];
    const name = index < inChain ? end.name : undoOf(end.name);
    const task = end.task_id === undefined ? '' : `; see cnapi task ${end.task_id.slice(0, 8)}`;
    return end.error === ''
      ? `${name}: ${end.result} after ${tookOf(end)}`
      : `${name}: ${failureOf(end)} after ${tookOf(end)}${task}`;
  });
}

const failureOf = ({ error, error_code: code }: StepFailure): string =>
  code === undefined || code === 'Canceled' ? error : `${error} (${code})`;

/** What the job does at present; undefined: it has ended. */
export function presentLine({ waiting_for: present, cancel_requested: isCancelled }: WorkflowJob): string | undefined {
  if (present === undefined) return undefined;
  const { step, tries } = present;
  const again = tries > 0 ? ` (try ${tries + 1})` : '';
  return `${step}${again}: ${waitOf(present)}${isCancelled ? '; its cancel is requested' : ''}`;
}

function waitOf({ until, task, task_id: taskId }: NonNullable<WorkflowJob['waiting_for']>): string {
  if (taskId !== undefined)
    return `waits for its task ${task === undefined ? taskId.slice(0, 8) : `${task} (${taskId.slice(0, 8)})`}`;
  if (task !== undefined) return `begins its task ${task}`;
  return until === undefined ? 'begun' : `waits until ${until}`;
}

type StepFailure = Pick<StepEnd, 'name' | 'error' | 'error_code'>;

/** The end of a step for which the job has failed, or is about to fail. */
export function failedStepOf({ execution, chain_results, waiting_for: present }: WorkflowJob): StepFailure | undefined {
  if (execution === 'succeeded' || execution === 'canceled') return undefined;
  const last = chain_results.at(-1);
  const isTriedAgain = present !== undefined && present.tries > 0;
  return last === undefined || last.error === '' || last.error_code === 'Canceled' || isTriedAgain ? undefined : last;
}

/** Which step failed, and why: `setup: the script ended with exit code 1 (TaskError)`. */
export function failureLine(job: WorkflowJob): string | undefined {
  const failed = failedStepOf(job);
  return failed && `${failed.name}: ${failureOf(failed)}`;
}

/** How the job ended: `server-reboot failed after 5m 2s: await-boot: …`. */
export function endingOfJob(job: WorkflowJob): string {
  const { name, execution, elapsed = 0, canceled_by: by } = job;
  const after = `after ${shortDuration(elapsed * 1000)}`;
  if (execution === 'canceled') return `${name} was cancelled${by === undefined ? '' : ` by ${by}`} ${after}`;
  const failure = failureLine(job);
  return `${name} ${execution} ${after}${failure === undefined ? '' : `: ${failure}`}`;
}
