/**
 * Follows a workflow job to its end, and says how it ended. Used by all commands that create
 * workflow jobs, and by `cnapi workflow wait`. The job does not depend on it: who leaves is told
 * how to follow or cancel it.
 */
import { ApiError } from '../../client/client-errors.ts';
import { type WorkflowJob, workflowContracts } from '../../protocol/api/workflows.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT, RefusedError } from '../terminal/command-errors.ts';
import { shortDuration } from '../terminal/duration.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { endCountOf, endingOfJob, endLines, hasWorkflowEnded, presentLine } from './workflow-lines.ts';

/**
 * An older instance does not answer when a step begins: what the step waits for is seen this much
 * later.
 */
const LOOK_SECONDS = 20;

interface CreatedWorkflow {
  uuid: string;
  /** Without it only the job's uuid is printed. */
  wait?: boolean | undefined;
  timeoutMs?: number | undefined;
}

/** Shows a job that a command has created. Returns the exit code. */
export async function showCreatedWorkflow(
  context: Context,
  { uuid, wait, timeoutMs }: CreatedWorkflow,
): Promise<number> {
  const { output } = context;
  if (wait) {
    output.note(`workflow job ${uuid} has begun`);
    return followWorkflow(context, uuid, { timeoutMs });
  }
  if (output.json) output.document({ job_uuid: uuid });
  else output.line(uuid);
  output.note(howToGoOn(uuid));
  return EXIT.ok;
}

/**
 * Returns the exit code: 0 if the job succeeded, 130 or similar after a signal. @throws
 * RefusedError
 */
export async function followWorkflow(
  context: Context,
  uuid: string,
  { timeoutMs }: { timeoutMs?: number | undefined } = {},
): Promise<number> {
  const { output, clock } = context;
  const left = new AbortController();
  let exitCode: number | undefined;
  const leave = (code: number, why: string) => {
    exitCode ??= code;
    if (!left.signal.aborted) output.complain(`${why}workflow job ${uuid} continues; ${howToGoOn(uuid)}`);
    left.abort();
  };
  const stop = onEndingSignal((signal) => leave(exitCodeOfSignal(signal), ''));
  const late =
    timeoutMs === undefined
      ? undefined
      : clock.after(timeoutMs, () => leave(EXIT.failed, `not ended within ${shortDuration(timeoutMs)}: `));
  try {
    const job = await untilEnd(context, uuid, left.signal);
    if (output.json) output.document(job);
    else if (job.execution === 'succeeded') output.line(endingOfJob(job));
    else output.complain(endingOfJob(job));
    return job.execution === 'succeeded' ? EXIT.ok : EXIT.failed;
  } catch (error) {
    if (exitCode === undefined) throw error;
    return exitCode;
  } finally {
    late?.cancel();
    stop();
  }
}

const howToGoOn = (uuid: string): string => {
  const id = uuid.slice(0, 8);
  return `to follow it: cnapi workflow wait ${id}; to cancel it: cnapi workflow cancel ${id}`;
};

/** Notes each end of a step and what the job waits for. */
async function untilEnd({ client, output }: Context, uuid: string, signal: AbortSignal): Promise<WorkflowJob> {
  let seen = 0;
  let present: string | undefined;
  let job = await client.ask(workflowContracts.GetWorkflowJob, { uuid }, { signal }).catch(unlessDeleted);
  for (;;) {
    for (const line of endLines(job, seen)) output.note(line);
    seen = endCountOf(job);
    if (hasWorkflowEnded(job)) return job;
    const now = presentLine(job);
    if (now !== undefined && now !== present) output.note(now);
    present = now;
    const begun = seen + (job.waiting_for?.has_begun === false ? 0 : 1);
    const request = { uuid, seen, begun, timeout: LOOK_SECONDS };
    job = await client
      .ask(workflowContracts.WaitWorkflowJob, request, { signal, repeatable: true })
      .catch(unlessDeleted);
  }
}

/**
 * The end of a deleted job is not known: a different error than an unknown id on the command line.
 */
function unlessDeleted(error: unknown): never {
  if (error instanceof ApiError && error.code === 'ResourceNotFound')
    throw new RefusedError('The workflow job was deleted before its end was read', { cause: error });
  throw error;
}
