/**
 * What `cnapi exec` shows of a run: lines with the names of servers for people, records for
 * programs, the summary, and the exit code.
 */
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { Context } from '../invocation/context.ts';
import { labelsOf } from '../lookup/find.ts';
import { EXIT } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import { LiveOutput, prefixOf } from './live-output.ts';
import type { CommandOutcome, ResultListener } from './outcome.ts';
import { type OutputPiece, OutputSequence } from './output-sequence.ts';
import { exitCodeOf } from './task-end.ts';

export interface ReportOptions {
  detach?: boolean;
  raw?: boolean;
  prefix?: boolean;
}

type LabelOf = (server: NamedServer) => string;

export function createLabelOf(servers: readonly NamedServer[]): LabelOf {
  const labels = labelsOf(servers);
  return (server) => escapeControls(labels.get(server.uuid) ?? server.uuid);
}

interface Leavable {
  /** Shows the output that was held back, and reports nothing more about any server. */
  onLeave(): void;
  /** Nobody reads the output any more: reports nothing more, not even what was held back. */
  onUnread(): void;
  /** Some of a server's output is missing. */
  isIncomplete(): boolean;
}

export function createListener(
  context: Context,
  servers: readonly NamedServer[],
  options: ReportOptions,
): ResultListener & Leavable {
  const { output } = context;
  const labelOf = createLabelOf(servers);
  const prefix = (server: NamedServer | undefined) => (server === undefined ? '' : `${labelOf(server)}: `);
  const report = output.json ? recorded(output) : shown(context, servers, options);
  let isLeft = false;
  const end = (last: () => void) => {
    isLeft = true;
    last();
  };
  return {
    onStart: (server, id) => void (isLeft || report.onStart(server, id)),
    onOutput: async (server, event) => void (isLeft || (await report.onOutput(server, event))),
    onEnd: (server, ending) => void (isLeft || report.onEnd(server, ending)),
    onCommonEnd: (ended, ending) => void (isLeft || report.onCommonEnd(ended, ending)),
    onBroken(server, reason) {
      if (!isLeft) output.note(`${prefix(server)}${escapeControls(reason)}; continuing at another instance`);
    },
    onNotCancelled: (server, what, reason) =>
      output.complain(`${prefix(server)}${what} could not be cancelled: ${escapeControls(reason)}`),
    onLeave: () => end(report.showHeld),
    onUnread: () => end(report.forget),
    isIncomplete: report.isIncomplete,
  };
}

interface RunReport
  extends Pick<ResultListener, 'onStart' | 'onOutput' | 'onEnd' | 'onCommonEnd'>,
    Pick<Leavable, 'isIncomplete'> {
  showHeld(): void;
  /** Discards the output that was held back. */
  forget(): void;
}

function recorded(output: Context['output']): RunReport {
  const sequences = new Map<NamedServer, OutputSequence>();
  let isIncomplete = false;
  const sequenceOf = (server: NamedServer) => made(sequences, server, () => new OutputSequence());
  const record = ({ uuid, hostname }: NamedServer, event: string, about: object) =>
    output.record({ event, server_uuid: uuid, hostname: hostname ?? null, ...about });
  const recordPiece = (server: NamedServer, piece: OutputPiece) => {
    isIncomplete ||= 'cut' in piece;
    record(server, 'output', piece);
  };
  const end = (server: NamedServer, result: unknown) => {
    for (const piece of sequenceOf(server).end(result)) recordPiece(server, piece);
    sequences.delete(server);
  };
  const onEnd = (server: NamedServer, ending: CommandOutcome) => {
    end(server, resultOf(ending));
    record(server, 'end', recordOf(ending));
  };
  return {
    onStart: (server, id) => record(server, 'start', { task: id }),
    onOutput(server, { data, attempt }) {
      for (const piece of sequenceOf(server).write(data, attempt)) recordPiece(server, piece);
      return output.ready();
    },
    onEnd,
    onCommonEnd: (servers, ending) => servers.forEach((server) => void onEnd(server, ending)),
    showHeld: () => [...sequences.keys()].forEach((server) => void end(server, undefined)),
    forget: () => sequences.clear(),
    isIncomplete: () => isIncomplete,
  };
}

function shown(context: Context, servers: readonly NamedServer[], options: ReportOptions): RunReport {
  const { output } = context;
  const isOne = servers.length === 1;
  const labelOf = createLabelOf(servers);
  const width = servers.reduce((widest, server) => Math.max(widest, labelOf(server).length), 0);
  const prefix = (server: NamedServer) =>
    isOne || options.prefix === false ? undefined : prefixOf(labelOf(server), width);
  const lives = new Map<NamedServer, LiveOutput>();
  let isIncomplete = false;
  const about = (server: NamedServer) => ({
    raw: options.raw === true,
    prefix: prefix(server),
    label: labelOf(server),
  });
  const liveOf = (server: NamedServer) => made(lives, server, () => new LiveOutput(context, about(server)));
  const showEnd = (server: NamedServer, ending: CommandOutcome) => {
    const live = liveOf(server);
    live.end(resultOf(ending), ending.id);
    isIncomplete ||= live.isIncomplete;
    lives.delete(server);
  };
  const complain = (who: string, ending: CommandOutcome) => {
    if (ending.kind === 'failed' || ending.kind === 'unknown')
      output.complain(`${who}: ${escapeControls(whyOf(ending))}`);
  };
  return {
    onStart(server, id) {
      if (options.detach) output.line(isOne ? id : `${prefix(server) ?? ''}${id}`);
    },
    onOutput(server, event) {
      liveOf(server).write(event);
      return output.ready();
    },
    onEnd(server, ending) {
      showEnd(server, ending);
      complain(labelOf(server), ending);
    },
    onCommonEnd(servers, ending) {
      for (const server of servers) showEnd(server, ending);
      const [only, ...others] = servers;
      if (only !== undefined) complain(others.length === 0 ? labelOf(only) : `${servers.length} servers`, ending);
    },
    showHeld() {
      for (const live of lives.values()) live.end(undefined);
      lives.clear();
    },
    forget() {
      for (const live of lives.values()) live.stop();
      lives.clear();
    },
    isIncomplete: () => isIncomplete,
  };
}

function made<Key, Value>(all: Map<Key, Value>, key: Key, make: () => Value): Value {
  const value = all.get(key) ?? make();
  all.set(key, value);
  return value;
}

function whyOf(ending: Extract<CommandOutcome, { kind: 'failed' | 'unknown' }>): string {
  const request = ending.kind === 'failed' && ending.requestId !== undefined ? ` (request ${ending.requestId})` : '';
  const see = ending.kind === 'unknown' ? (ending.see ?? (ending.id && `cnapi task ${ending.id}`)) : undefined;
  return `${ending.reason}${request}${see === undefined ? '' : `; see later: ${see}`}`;
}

/** Undefined if no instance reported it. */
const resultOf = (ending: CommandOutcome): unknown => ('result' in ending ? ending.result : undefined);

function recordOf(ending: CommandOutcome): object {
  const { kind, id } = ending;
  const error = 'reason' in ending ? { error: ending.reason } : {};
  return { outcome: kind, task: id ?? null, exit_code: exitCodeOf(resultOf(ending)) ?? null, ...error };
}

export function summarize(
  { output }: Context,
  servers: readonly NamedServer[],
  endings: readonly CommandOutcome[],
): void {
  const words = endings.map(wordOf);
  const said = WORDS.flatMap((word) => {
    const count = words.filter((one) => one === word).length;
    return count === 0 ? [] : [`${count} ${word}`];
  });
  output.note(`${servers.length} servers: ${said.join(', ')}`);
}

const WORDS = ['ok', 'started', 'failed', 'cancelled', 'not started', 'not known'] as const;

function wordOf(ending: CommandOutcome): (typeof WORDS)[number] {
  if (ending.kind === 'unknown') return 'not known';
  if (ending.kind !== 'failed') return ending.kind;
  if (ending.notStarted === true) return 'not started';
  return ending.cancelled === true ? 'cancelled' : 'failed';
}

/** The exit code of timeout(1). 143 would mean that somebody sent TERM. */
const TIMED_OUT = 124;

function ownCodeOf(ending: CommandOutcome): number | undefined {
  return ending.kind === 'failed' && ending.timedOut === true ? TIMED_OUT : exitCodeOf(resultOf(ending));
}

/** The exit code of `cnapi exec`. */
export function exitCodeOfRun(endings: readonly CommandOutcome[], isIncomplete: boolean): number {
  const [only] = endings;
  const own = endings.length === 1 && only !== undefined ? ownCodeOf(only) : undefined;
  if (own !== undefined && own !== 0) return own;
  if (endings.some(({ kind }) => kind === 'unknown')) return EXIT.noAnswer;
  const failed = endings.filter((ending) => ending.kind === 'failed');
  // Wrong usage means that nothing was done on any server, as it does for other commands.
  if (failed.length > 0 && failed.length === endings.length && failed.every((ending) => ending.isWrongUsage))
    return EXIT.usage;
  if (failed.length > 0) return EXIT.failed;
  return isIncomplete ? EXIT.incomplete : EXIT.ok;
}
