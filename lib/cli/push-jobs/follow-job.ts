/**
 * Follows a push job that this program started, and shows how jobs ended. Used by `cnapi job
 * start`, `retry` and `status`, and by `cnapi schedule run`.
 */
import { createInterface } from 'node:readline/promises';
import { ApiError } from '../../client/client-errors.ts';
import { messageOf } from '../../platform/errors.ts';
import type { PushJob, PushNode } from '../../protocol/api/push/job-schemas.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import type { Context } from '../invocation/context.ts';
import { readJobNodes } from '../lookup/find-push-job.ts';
import { mayRetry } from '../output/node-ending.ts';
import { createListener } from '../output/reports.ts';
import { EXIT, RefusedError } from '../terminal/command-errors.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import { sortByName } from '../terminal/name-order.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { FollowedPushJob } from './followed-job.ts';
import { describeProgress, hasEnded, hasJobSucceeded, NODE_COLUMNS, nodeCountLines } from './job-progress.ts';

const LOOK_MS = 500;

interface StartedJob {
  job: PushJob;
  /** Prints only the job's id. */
  detach?: boolean | undefined;
  /** Shows what the commands write, as they write it. */
  capture?: boolean | undefined;
}

/** Returns the exit code. */
export async function followStarted(context: Context, { job, detach, capture }: StartedJob): Promise<number> {
  const { output } = context;
  if (detach) {
    if (output.json) output.document(job);
    else output.line(job.id);
    return EXIT.ok;
  }
  output.note(`push job ${job.id} asks ${job.node_count} server${job.node_count === 1 ? '' : 's'}`);
  return follow(context, job, { mayAbort: true, showing: capture ? showOutput(context, job) : undefined });
}

/** Follows a job that continues if the user leaves. Returns the exit code. */
export function watchJob(context: Context, job: PushJob): Promise<number> {
  return follow(context, job, { mayAbort: false, showing: showOutput(context, job) });
}

/**
 * Shows the output until the job ends; none with --json. If following fails, `cnapi job output` can
 * still show all of it.
 */
async function showOutput(context: Context, job: PushJob): Promise<void> {
  const { output } = context;
  if (output.json) return;
  await followOutput(context, job).catch((error: unknown) =>
    output.complain(`the output is not shown: ${messageOf(error)}; cnapi job output shows it later`),
  );
}

async function followOutput(context: Context, job: PushJob): Promise<void> {
  const nodes = await readJobNodes(context, job.id);
  const servers = nodes.map(({ server_uuid: uuid, name: hostname }) => ({ uuid, hostname }));
  const listener = { ...createListener(context, servers, { prefix: true }), onBroken: () => undefined };
  await new FollowedPushJob({ client: context.client, listener }, servers).follow(job.id);
}

interface Followed {
  /** The first Ctrl-C asks whether to abort the job; otherwise it only ends this program. */
  mayAbort: boolean;
  /** The output, while it is shown. */
  showing?: Promise<void> | undefined;
}

/** Follows the job until it ends or the user leaves it. */
async function follow(context: Context, job: PushJob, { mayAbort, showing }: Followed): Promise<number> {
  const { client, clock, output } = context;
  let leftWith: number | undefined;
  /** A question is open: nothing else is written into its line. */
  let isAsking = false;
  const left = new AbortController();
  const stopListening = onEndingSignal((signal, before) => {
    const leave = () => {
      leftWith = exitCodeOfSignal(signal);
      left.abort();
    };
    if (before > 0 || signal === 'SIGHUP' || !mayAbort) return leave();
    isAsking = true;
    void askWhatToDo(context, job.id, left.signal).then((isToAbort) => {
      isAsking = false;
      if (!isToAbort) leave();
    });
  });
  let shown = '';
  let current = job;
  while (!hasEnded(current) && !left.signal.aborted) {
    await clock.sleep(LOOK_MS, left.signal);
    current = await client.ask(pushJobContracts.GetPushJob, { id: job.id }).catch(unlessDeleted);
    const progress = describeProgress(current);
    if (progress === shown || isAsking) continue;
    output.progress(progress);
    shown = progress;
  }
  if (leftWith === undefined) await showing;
  stopListening();
  if (leftWith !== undefined) {
    output.complain(`push job ${job.id} continues; to follow it again: cnapi job watch ${job.id.slice(0, 8)}`);
    return leftWith;
  }
  const nodes = await showJob(context, current);
  if (showing === undefined || output.json)
    for (const status of statusesWithOutput(nodes))
      output.note(`what they wrote: cnapi job output ${job.id.slice(0, 8)} --status ${status}`);
  if (!hasJobSucceeded(current) && nodes.some(mayRetry))
    output.note(`to run it again where it did not succeed: cnapi job retry ${job.id.slice(0, 8)}`);
  return hasJobSucceeded(current) ? EXIT.ok : EXIT.failed;
}

/**
 * The end of a deleted job is not known: a different error than an unknown id on the command line.
 */
function unlessDeleted(error: unknown): never {
  if (error instanceof ApiError && error.code === 'ResourceNotFound')
    throw new RefusedError('The push job was deleted before its end was read', { cause: error });
  throw error;
}

/** The statuses of the nodes where the command ran and did not succeed. */
const statusesWithOutput = (nodes: readonly PushNode[]): ReadonlySet<PushNode['status']> =>
  new Set(nodes.flatMap(({ status, task_id }) => (RAN_BADLY.includes(status) && task_id !== undefined ? status : [])));

const RAN_BADLY: readonly PushNode['status'][] = ['failed', 'timed_out', 'aborted', 'crashed'];

/** Aborts the job if the user wants that; without a terminal nobody can be asked. */
async function askWhatToDo({ client, output }: Context, id: string, signal: AbortSignal): Promise<boolean> {
  if (process.stdin.isTTY) {
    const asking = createInterface({ input: process.stdin, output: process.stderr });
    const isToAbort = await askYesOrNo((text) => asking.question(text, { signal }).catch(() => ''));
    asking.close();
    if (!isToAbort) return false;
  }
  output.complain('aborting the job; press Ctrl-C again to exit without waiting');
  await client.ask(pushJobContracts.AbortPushJob, { id }).catch((error: Error) => output.complain(error.message));
  return true;
}

/** Asks again after an answer that is neither yes nor no. Nothing at all is no. */
export async function askYesOrNo(ask: (text: string) => Promise<string>): Promise<boolean> {
  for (let text = WHETHER_TO_ABORT; ; text = `answer y or n: ${WHETHER_TO_ABORT}`) {
    const answer = (await ask(text)).trim();
    if (/^y(es)?$/i.test(answer)) return true;
    if (/^(no?)?$/i.test(answer)) return false;
  }
}

const WHETHER_TO_ABORT =
  'abort the push job on all its servers? With n this program ends and the job continues. [y/N] ';

/** Shows the job. Returns its nodes. */
export async function showJob(context: Context, job: PushJob): Promise<readonly PushNode[]> {
  const { output } = context;
  const nodes = await readJobNodes(context, job.id);
  if (output.json) {
    output.document({ ...job, nodes });
    return nodes;
  }
  output.table(NODE_COLUMNS, sortByName(nodes));
  output.line('');
  showSummary(output, job);
  return nodes;
}

export function showSummary(output: Context['output'], job: PushJob): void {
  output.facts([
    ['job', job.id],
    ['status', statusOf(job)],
    ['coordinator', job.coordinator],
    ['command', job.command],
    ['created', `${shortTime(job.created_at)} by ${job.actor ?? 'unknown'}`],
    ['quorum', `${job.quorum} of ${job.node_count}`],
    ['concurrency', job.concurrency],
    ['start rate', job.start_rate && `${job.start_rate} per second`],
    ['max fail', job.max_failures],
    ['timeout', shortDuration(job.run_timeout_ms)],
    ['user', job.user],
    ['dir', job.dir],
    ['ticket', job.ticket && `${job.ticket.scope}/${job.ticket.id} of ${job.ticket.server_uuid}`],
  ]);
  for (const line of nodeCountLines(job)) output.line(line);
}

function statusOf({ status, reason, aborted_by: abortedBy }: PushJob): string {
  if (reason === undefined) return status;
  return `${status}: ${reason}${abortedBy === undefined ? '' : ` (${abortedBy})`}`;
}
