/** `cnapi watch`: shows the state of the fleet, once or continuously. */
import { Command } from 'commander';
import { ApiError } from '../../client/client-errors.ts';
import { isoNow } from '../../platform/time/clock.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { EXIT, UsageError } from '../terminal/command-errors.ts';
import { parseDuration, shortTime } from '../terminal/duration.ts';
import { buildErrorReport } from '../terminal/error-report.ts';
import { Screen } from '../terminal/screen.ts';
import { exitCodeOfSignal, onEndingSignal } from '../terminal/signals.ts';
import { countByStatus, type FleetView, fleetSummary, renderScreen } from './fleet-view.ts';
import { Freshness } from './freshness.ts';

interface Options {
  interval: string;
  once?: boolean;
}

/** How often the screen updates the time since the last answer. */
const SECOND_MS = 1000;
/** Longest pause after a failed update, so that a recovery is soon shown. */
const RETRY_MS = 2000;
const MAX_AWAY = 200;
const MAX_TASKS = 500;

export function watchCommand(runner: CommandRunner): Command {
  const command = new Command('watch')
    .description(
      'Shows instances, servers that are not running, locks and active tasks. On a terminal it fills the screen until q or Ctrl-C; otherwise it prints a line for each change.',
    )
    .option('--interval <duration>', 'time between two updates', '2s')
    .option('--once', 'print the state once and end')
    .action(runner.action(watch));
  return withExamples(command, ['cnapi watch', 'cnapi watch --once', 'cnapi watch --json --interval 30s >> fleet.log']);
}

async function watch(context: Context, _: unknown, { interval, once = false }: Options): Promise<number> {
  const intervalMs = parseDuration(interval, '--interval');
  if (intervalMs < 200 || intervalMs > 86_400_000)
    throw new UsageError(`--interval ${interval} is not between 200ms and 1d`);
  if (once) {
    const view = await readFleet(context);
    show(context, view);
    return EXIT.ok;
  }
  return new FleetWatch(context, intervalMs).run();
}

class FleetWatch {
  readonly #context: Context;
  readonly #intervalMs: number;
  readonly #ending = new AbortController();
  readonly #screen: Screen | undefined;
  readonly #freshness = new Freshness();
  #last: FleetView | undefined;
  #exitCode: number = EXIT.ok;

  constructor(context: Context, intervalMs: number) {
    this.#context = context;
    this.#intervalMs = intervalMs;
    const isScreen = context.output.isTerminal && !context.output.json;
    this.#screen = isScreen ? new Screen((key) => this.#onKey(key)) : undefined;
  }

  async run(): Promise<number> {
    const { client, clock } = this.#context;
    await client.learnInstances();
    const stop = onEndingSignal((signal) => this.#end(exitCodeOfSignal(signal)));
    const redraw = () => this.#draw();
    const ended = new Promise<void>((resolve) => this.#ending.signal.addEventListener('abort', () => resolve()));
    this.#screen?.open();
    process.stdout.on('resize', redraw);
    const ticking = clock.every(SECOND_MS, () => {
      if (this.#freshness.silence(clock.now()) !== undefined) redraw();
    });
    try {
      while (!this.#ending.signal.aborted) {
        await Promise.race([this.#poll(), ended]);
        const hasFailed = this.#last?.errorMessage !== undefined;
        const pauseMs = hasFailed ? Math.min(this.#intervalMs, RETRY_MS) : this.#intervalMs;
        await clock.sleep(pauseMs, this.#ending.signal);
      }
    } finally {
      this.#ending.abort();
      ticking.cancel();
      process.stdout.off('resize', redraw);
      this.#screen?.close();
      stop();
    }
    return this.#exitCode;
  }

  async #poll(): Promise<void> {
    const { clock } = this.#context;
    const before = this.#last;
    this.#freshness.asked(clock.now());
    const onPart = () => this.#freshness.heardPart(clock.now());
    const view = await readFleet(this.#context, onPart).catch((error: unknown) => {
      const errorMessage = buildErrorReport(error).message;
      return { ...(before ?? EMPTY), errorMessage };
    });
    if (this.#ending.signal.aborted) return;
    this.#last = view;
    if (view.errorMessage === undefined) this.#freshness.answered(isoNow(clock));
    else this.#freshness.failed();
    if (this.#screen !== undefined) this.#draw();
    else if (before === undefined || fleetSummary(before) !== fleetSummary(view)) show(this.#context, view);
  }

  #draw(): void {
    const { output, clock } = this.#context;
    const silence = this.#freshness.silence(clock.now());
    if (this.#last === undefined && silence === undefined) return;
    this.#screen?.draw(renderScreen(this.#last ?? EMPTY, { ...appearanceOf(output), time: isoNow(clock), silence }));
  }

  #onKey(key: string): void {
    if (key === 'q' || key === 'Q') this.#end(EXIT.ok);
    if (key === '\x03' || key === '\x04') this.#end(EXIT.interrupted);
  }

  #end(exitCode: number): void {
    this.#exitCode = exitCode;
    this.#ending.abort();
  }
}

const EMPTY: FleetView = {
  instances: [],
  total: 0,
  counts: {},
  away: [],
  queues: [],
  tasks: undefined,
  hasMoreTasks: false,
};

/** `onPart`: called when a part of the answer has come. */
async function readFleet({ client }: Context, onPart = (): void => undefined): Promise<FleetView> {
  const heard = <Part>(part: Part): Part => {
    onPart();
    return part;
  };
  const [instances, servers, queues, tasks] = await Promise.all([
    client.learnInstances().then(heard),
    Array.fromAsync(client.allServers({ fields: 'uuid,hostname,status' }), heard),
    client.queues().then(heard),
    client.firstTasks({ status: 'active' }, MAX_TASKS).catch(unlessOlder).then(heard),
  ]);
  const away = servers.filter(({ status }) => status !== 'running').slice(0, MAX_AWAY);
  const view = { instances, total: servers.length, counts: countByStatus(servers), away, queues };
  return { ...view, tasks: tasks?.tasks, hasMoreTasks: tasks?.isMore ?? false };
}

/** An instance of an earlier version has no list of all tasks; the rest is shown without it. */
function unlessOlder(error: unknown): undefined {
  if (!(error instanceof ApiError && error.code === 'ResourceNotFound')) throw error;
}

function show({ output, clock }: Context, view: FleetView): void {
  const time = isoNow(clock);
  if (output.json) return output.record({ time, ...view });
  if (!output.isTerminal) return output.line(`${shortTime(time)}  ${fleetSummary(view)}`);
  for (const line of renderScreen(view, { ...appearanceOf(output), time })) output.raw(`${line}\n`);
}

function appearanceOf(output: Context['output']) {
  const bold = (text: string) => output.paint('bold', text);
  const red = (text: string) => output.paint('red', text);
  const dim = (text: string) => output.paint('dim', text);
  return { width: output.columns ?? 80, paint: { bold, red, dim } };
}
