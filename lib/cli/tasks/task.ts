/** `cnapi task`: shows a task, or follows its output and events until it ends. */
import { Command } from 'commander';
import type { Task, TaskEvent } from '../../protocol/api/tasks.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CommandRunner, withExamples, withExplanation } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { explainNoTask, findTask } from '../lookup/find.ts';
import { LiveOutput } from '../output/live-output.ts';
import {
  endOfTask,
  errorCodeOf,
  errorOf,
  exitCodeOf,
  hasSucceeded,
  shownStatus,
  WITHHELD,
} from '../output/task-end.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { shortDuration, shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { exitAtSignal } from '../terminal/output.ts';

const MORE = `
Ctrl-C, or a lost terminal, stops following and does not cancel the task: use cnapi cancel.
`;

interface Options {
  follow?: boolean;
  raw?: boolean;
}

export function taskCommand(runner: CommandRunner): Command {
  const command = new Command('task')
    .description('Shows a task; with --follow its output and its events until it ends.')
    .argument('<task>', 'its id, or the beginning of it')
    .option(
      '-f, --follow',
      'show its output and events from its beginning until it ends; exit code 0 if it succeeded, 4 if some of its output is missing, else 1',
    )
    .option('--raw', 'write its output to the terminal unchanged, including control characters')
    .action(runner.action(task));
  return withExamples(withExplanation(command, MORE), [
    'cnapi task 4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11',
    'cnapi task 4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11 --follow',
  ]);
}

async function task(context: Context, [given]: readonly unknown[], options: Options): Promise<number> {
  const { client, output } = context;
  const id = await findTask(client, String(given));
  const found = await client.task(id).catch((error: unknown) => explainNoTask(error, id));
  if (options.follow) return followed(context, found, options);
  if (output.json) output.document(found);
  else show(context, found);
  if (found.withheld) output.note(WITHHELD);
  return EXIT.ok;
}

async function followed(context: Context, first: Task, { raw }: Options): Promise<number> {
  const { client, clock, output } = context;
  if (first.withheld) output.note(WITHHELD);
  await client.learnInstances().catch(() => undefined);
  output.onUnwritable = ({ code }) => {
    if (code === 'EPIPE') process.exit(EXIT.ok);
  };
  const live = new LiveOutput(context, { raw: raw === true, prefix: undefined, label: '' });
  const showHeldBack = () => {
    if (!output.json) live.end(undefined);
  };
  const stop = exitAtSignal(clock, showHeldBack);
  try {
    return await shownToItsEnd(context, { first, live, isWithheld: first.withheld === true });
  } catch (error) {
    showHeldBack();
    throw error;
  } finally {
    stop();
  }
}

async function shownToItsEnd(context: Context, { first, live, isWithheld }: Followed): Promise<number> {
  const { client, output } = context;
  const { id } = first;
  let startedAt = first.started_at;
  const onBroken = (reason: string) => output.note(`${reason}; continuing at another instance`);
  for await (const event of client.followTask(id, { onBroken })) {
    if (output.json) output.record(event);
    else if (event.name === 'output') live.write(event);
    else if (event.name !== 'end') output.note(describeEvent(event));
    await output.ready();
    if (event.name === 'started') startedAt = event.timestamp;
    if (event.name !== 'end') continue;
    if (!output.json && !isWithheld) live.end(event.data.result, id);
    sayEnd(output, first.task, { end: event.data, startedAt, endedAt: event.timestamp });
    return exitCodeOfFollower(hasSucceeded(event.data), live.isIncomplete || (await output.hasLost()));
  }
  // The stream ended without an `end` event: the task ended after the last event received.
  const last = await client.task(id);
  const end = endOfTask(last);
  if (!output.json && !isWithheld) live.end(end.result, id);
  sayEnd(output, first.task, { end, startedAt: last.started_at, endedAt: last.finished_at });
  return exitCodeOfFollower(hasSucceeded(end), live.isIncomplete || (await output.hasLost()));
}

interface End {
  end: JsonObject;
  startedAt: string | undefined;
  endedAt: string | undefined;
}

/** The last line, on stderr, so that the output stays that of the command. */
function sayEnd(output: Context['output'], name: string, { end, startedAt, endedAt }: End): void {
  if (output.json) return;
  const took = Date.parse(endedAt ?? '') - Date.parse(startedAt ?? '');
  const after = Number.isNaN(took) ? '' : ` after ${shortDuration(took)}`;
  const message = errorOf(end);
  if (message === undefined) output.note(`${name} succeeded${after}`);
  else output.complain(`${name} failed${after}: ${escapeControls(message)}`);
}

/** The exit code of `cnapi task ID --follow`. */
function exitCodeOfFollower(hasSucceeded: boolean, isIncomplete: boolean): number {
  if (!hasSucceeded) return EXIT.failed;
  return isIncomplete ? EXIT.incomplete : EXIT.ok;
}

interface Followed {
  first: Task;
  live: LiveOutput;
  isWithheld: boolean;
}

function describeEvent({ name, timestamp, attempt, data }: TaskEvent): string {
  const about =
    name === 'progress' ? ` ${data.value} % ${data.message ?? ''}` : name === 'retry' ? ` ${data.reason}` : '';
  const again = attempt > 1 ? ` (attempt ${attempt})` : '';
  return escapeControls(`${shortTime(timestamp)} ${name}${about}${again}`);
}

function show(context: Context, task: Task): void {
  const { result, ...end } = endOfTask(task);
  const error = end.error as { message?: unknown; code?: unknown } | undefined;
  context.output.facts([
    ['id', task.id],
    ['task', task.task],
    ['server', task.server_uuid],
    [
      'status',
      task.cancel_requested === true && task.status === 'active'
        ? 'active, to be cancelled'
        : shownStatus(task.status, errorCodeOf(end)),
    ],
    ['error', error && `${error.message} (${error.code})`],
    ['exit code', result && exitCodeOf(result)],
    ['accepted', shortTime(task.timestamp)],
    ['started', task.started_at && shortTime(task.started_at)],
    ['ended', task.finished_at && shortTime(task.finished_at)],
    ['attempt', task.attempt],
    ['request', task.req_id],
    ['ticket', task.ticket_uuid],
  ]);
  const live = new LiveOutput(context, { raw: false, prefix: undefined, label: '' });
  if (result !== undefined && !task.withheld) live.end(result);
}
