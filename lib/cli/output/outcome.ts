/**
 * How a command ended on a server, and what is told of it: the types that task-run.ts, job-run.ts
 * and reports.ts share. Pure.
 */
import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { messageOf } from '../../platform/errors.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { TaskEvent } from '../../protocol/api/tasks.ts';
import { errorReasonOf, isWrongUsage } from '../terminal/error-report.ts';
import { errorCodeOf, errorOf, hasSucceeded } from './task-end.ts';

/** `id`: the id of the task. */
export type CommandOutcome =
  | { kind: 'ok'; id: string; result: unknown }
  | { kind: 'started'; id: string }
  | {
      kind: 'failed';
      id: string | undefined;
      reason: string;
      result?: unknown;
      requestId?: string | undefined;
      timedOut?: boolean;
      /** The command ran, and was cancelled. */
      cancelled?: boolean;
      /** Nothing ran there. */
      notStarted?: boolean;
      /** The command line is wrong: the instance refused a value in it. */
      isWrongUsage?: boolean;
      /** Another try may end differently. */
      mayRetry?: boolean;
    }
  | { kind: 'unknown'; id: string | undefined; reason: string /** The command that tells later. */; see?: string };

export interface ResultListener {
  onStart(server: NamedServer, id: string): void;
  /** Awaited: the next piece is requested when this one has been processed. */
  onOutput(server: NamedServer, event: Pick<TaskEvent, 'data' | 'attempt'>): Promise<void>;
  onEnd(server: NamedServer, ending: CommandOutcome): void;
  /** The same happened to all these servers together, such as the refusal of the whole command. */
  onCommonEnd(servers: readonly NamedServer[], ending: CommandOutcome): void;
  /** Following broke off; it continues at another instance. Without a server: of all of them. */
  onBroken(server: NamedServer | undefined, reason: string): void;
  /** No instance accepted the cancel: what it names continues. */
  onNotCancelled(server: NamedServer | undefined, what: string, reason: string): void;
}

/** A command that runs on one server or on many. */
export interface RemoteCommand {
  /** On how many servers it has not ended. */
  readonly openCount: number;
  /** Results in the order of the servers. Never throws for a failure of one of them. */
  run(): Promise<CommandOutcome[]>;
  /** Starts nothing more, and asks running commands to end. */
  cancel(): Promise<void>;
  /** This program ends: nothing more starts, running commands continue. */
  leave(): Promise<void>;
  /** What may go on after this program, a line for each. */
  left(labelOf: (server: NamedServer) => string): string[];
}

export function endedAs(id: string, end: Readonly<Record<string, unknown>>): CommandOutcome {
  if (hasSucceeded(end)) return { kind: 'ok', id, result: end.result };
  const code = errorCodeOf(end);
  const how = { timedOut: code === 'TaskTimeout', cancelled: code === 'Cancelled' };
  return { kind: 'failed', id, reason: errorOf(end) ?? 'it failed', result: end.result, ...how };
}

/**
 * What was created continues, whatever prevents following it. If it may have been created, its
 * outcome is unknown.
 */
export function toOutcome(
  error: unknown,
  { id, mayRun = id !== undefined }: { id?: string | undefined; mayRun?: boolean },
): CommandOutcome {
  const isUnsure = error instanceof NoAnswerError || (error instanceof ApiError && error.statusCode >= 500);
  if (mayRun || isUnsure) return { kind: 'unknown', id, reason: messageOf(error) };
  if (!(error instanceof ApiError)) return { kind: 'failed', id, reason: messageOf(error), notStarted: true };
  return {
    kind: 'failed',
    id,
    reason: errorReasonOf(error),
    requestId: error.requestId,
    notStarted: true,
    isWrongUsage: isWrongUsage(error),
  };
}
