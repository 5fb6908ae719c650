/** Follows a push job that this program started, and shows how jobs ended. */
import { createInterface } from 'node:readline/promises';
import { type PushJob, pushJobContracts } from '../../protocol/api/push-jobs.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { listenerOf } from '../exec/reports.ts';
import type { Context } from '../invocation/context.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { EXIT } from '../terminal/usage-error.ts';
import { nodesOf } from './find-job.ts';
import { hasEnded, NODE_COLUMNS, progressOf, summaryOf, wentWell } from './job-progress.ts';
import { JobRun } from './job-run.ts';

const LOOK_MS = 500;

export interface StartedJob {
  job: PushJob;
  servers: readonly NamedServer[];
  /** Prints only the job's id. */
  detach?: boolean | undefined;
  /** Shows what the commands write, as they write it. */
  capture?: boolean | undefined;
}

/** Returns the exit code. */
export async function started(context: Context, { job, servers, detach, capture }: StartedJob): Promise<number> {
  const { output } = context;
  if (detach) {
    if (output.json) output.document(job);
    else output.line(job.id);
    return EXIT.ok;
  }
  output.note(`push job ${job.id} asks ${servers.length} server${servers.length === 1 ? '' : 's'}`);
  const showing = capture && !output.json ? showOutput(context, job, servers) : undefined;
  return follow(context, job, showing);
}

/** Until the job ends. */
async function showOutput(context: Context, job: PushJob, servers: readonly NamedServer[]): Promise<void> {
  const listener = { ...listenerOf(context, servers, { prefix: true }), onBroken: () => undefined };
  await new JobRun({ client: context.client, listener, onJob: () => undefined }, servers, { command: '' }).attach(
    job.id,
  );
}

/** Until the job ends, or the user leaves it. */
async function follow(context: Context, job: PushJob, showing: Promise<void> | undefined): Promise<number> {
  const { client, clock, output } = context;
  let leftWith: number | undefined;
  const left = new AbortController();
  const stopListening = onEndingSignal((signal, before) => {
    const leave = () => {
      leftWith = exitCodeOfSignal(signal);
      left.abort();
    };
    if (before > 0 || signal === 'SIGHUP') return leave();
    void askWhatToDo(context, job.id, left.signal).then((isToAbort) => (isToAbort ? undefined : leave()));
  });
  let shown = '';
  let current = job;
  while (!hasEnded(current) && !left.signal.aborted) {
    await clock.sleep(LOOK_MS, left.signal);
    current = await client.ask(pushJobContracts.GetPushJob, { id: job.id });
    const progress = progressOf(current);
    if (progress !== shown) output.note(progress);
    shown = progress;
  }
  if (leftWith === undefined) await showing;
  stopListening();
  if (leftWith !== undefined) {
    output.complain(`push job ${job.id} goes on; see cnapi job status ${job.id.slice(0, 8)}`);
    return leftWith;
  }
  await show(context, current);
  return wentWell(current) ? EXIT.ok : EXIT.failed;
}

/** Aborts the job if the user wants that; without a terminal nobody can be asked. */
async function askWhatToDo({ client, output }: Context, id: string, signal: AbortSignal): Promise<boolean> {
  if (process.stdin.isTTY) {
    const asking = createInterface({ input: process.stdin, output: process.stderr });
    const answer = await asking.question('abort the job on all servers? [y/N] ', { signal }).catch(() => '');
    asking.close();
    if (!/^y(es)?$/i.test(answer.trim())) return false;
  }
  output.complain('aborting the job; press Ctrl-C again to leave without waiting');
  await client.ask(pushJobContracts.AbortPushJob, { id }).catch((error: Error) => output.complain(error.message));
  return true;
}

export async function show(context: Context, job: PushJob): Promise<void> {
  const { output } = context;
  if (output.json) return output.document({ ...job, nodes: await nodesOf(context, job.id) });
  output.table(NODE_COLUMNS, await nodesOf(context, job.id));
  output.line('');
  showSummary(output, job);
}

export function showSummary(output: Context['output'], job: PushJob): void {
  output.facts([
    ['job', job.id],
    ['status', job.reason === undefined ? job.status : `${job.status}: ${job.reason}`],
    ['command', job.command],
    ['quorum', `${job.quorum} of ${job.node_count}`],
    ['ticket', job.ticket && `${job.ticket.scope}/${job.ticket.id} of ${job.ticket.server_uuid}`],
  ]);
  for (const line of summaryOf(job)) output.line(line);
}
