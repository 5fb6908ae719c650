/**
 * Runs one command on many servers, with a limit on how many at a time. Each is a task. It is
 * created under an idempotency key, so a lost answer does not run it twice. Any available instance
 * is used to follow it. Used by commands/exec.ts.
 *
 *     waiting ──▶ asked ──▶ running (its id is known) ──▶ ok | failed | unknown (no end reported)
 *       └──cancelled before it was asked──▶ failed
 */

import type { CnapiClient } from '../../client/client.ts';
import { ApiError, NoAnswerError } from '../../client/client-errors.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Random } from '../../platform/random.ts';
import { Semaphore } from '../../platform/semaphore.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { TaskEvent } from '../../protocol/api/tasks.ts';
import { codeOf, errorOf, hasSucceeded } from './task-end.ts';

export interface FleetCommand {
  params: Record<string, unknown>;
  timeoutMs: number | undefined;
  ticketUuid: string | undefined;
  /** Does not wait for the end: returns only the task's id. */
  detach: boolean;
}

export type Ending =
  | { kind: 'ok'; id: string; result: unknown }
  | { kind: 'started'; id: string }
  | {
      kind: 'failed';
      id: string | undefined;
      why: string;
      result?: unknown;
      requestId?: string | undefined;
      timedOut?: boolean;
    }
  | { kind: 'unknown'; id: string | undefined; why: string };

export interface Listener {
  onStart(server: NamedServer, id: string): void;
  /** Awaited: the next piece is requested when this one has been processed. */
  onOutput(server: NamedServer, event: TaskEvent): Promise<void>;
  onEnd(server: NamedServer, ending: Ending): void;
  onBroken(server: NamedServer, why: string): void;
  /** No instance accepted the cancel: the task continues. */
  onNotCancelled(server: NamedServer, id: string, why: string): void;
}

interface FleetRunDeps {
  client: CnapiClient;
  random: Random;
  listener: Listener;
}

export class FleetRun {
  readonly #deps: FleetRunDeps;
  /** Ids of tasks that have not ended. */
  readonly running = new Map<NamedServer, string>();
  /** Servers for which a task may be being created now. */
  readonly asked = new Set<NamedServer>();
  /** Servers not asked yet. */
  waiting = 0;
  #isCancelled = false;

  constructor(deps: FleetRunDeps) {
    this.#deps = deps;
  }

  /** Results in the order of the servers. Never throws for a failure of one of them. */
  async run(servers: readonly NamedServer[], command: FleetCommand, concurrency: number): Promise<Ending[]> {
    const permits = new Semaphore(concurrency);
    this.waiting = servers.length;
    const runOn = async (server: NamedServer) => {
      this.waiting--;
      const ending = await this.#runOn(server, command);
      this.running.delete(server);
      this.#deps.listener.onEnd(server, ending);
      return ending;
    };
    return Promise.all(servers.map((server) => permits.run(() => runOn(server))));
  }

  /** Starts nothing more, and asks running tasks to end. */
  async cancel(): Promise<void> {
    this.#isCancelled = true;
    await Promise.all([...this.running].map(([server, id]) => this.#cancel(server, id)));
  }

  async #runOn(server: NamedServer, command: FleetCommand): Promise<Ending> {
    if (this.#isCancelled) return { kind: 'failed', id: undefined, why: 'cancelled before it was started' };
    let id: string | undefined;
    try {
      id = await this.#start(server, command);
      this.#deps.listener.onStart(server, id);
      if (command.detach) return { kind: 'started', id };
      this.running.set(server, id);
      if (this.#isCancelled) await this.#cancel(server, id);
      return await this.#follow(server, id);
    } catch (error) {
      return endingOf(error, id);
    }
  }

  async #start(server: NamedServer, { params, timeoutMs, ticketUuid }: FleetCommand): Promise<string> {
    const { client, random } = this.#deps;
    const about = { serverUuid: server.uuid, idempotencyKey: random.uuid() };
    this.asked.add(server);
    try {
      return await client.createTask({ ...about, task: 'command_execute', params, timeoutMs, ticketUuid });
    } finally {
      this.asked.delete(server);
    }
  }

  async #follow(server: NamedServer, id: string): Promise<Ending> {
    const { client, listener } = this.#deps;
    const onBroken = (why: string) => listener.onBroken(server, why);
    for await (const event of client.followTask(id, { onBroken })) {
      if (event.name === 'output') await listener.onOutput(server, event);
      if (event.name === 'end') return endedAs(id, event.data);
    }
    const { status, history } = await client.task(id);
    const finish = history.find((entry) => entry.name === 'finish')?.event;
    const error = history.find((entry) => entry.name === 'error')?.event.error;
    return endedAs(id, { status, result: finish, error });
  }

  /** A task that has ended meanwhile needs no cancel. */
  async #cancel(server: NamedServer, id: string): Promise<void> {
    await this.#deps.client.cancelTask(id).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === 'TaskEnded') return;
      this.#deps.listener.onNotCancelled(server, id, messageOf(error));
    });
  }
}

function endedAs(id: string, end: Readonly<Record<string, unknown>>): Ending {
  if (hasSucceeded(end)) return { kind: 'ok', id, result: end.result };
  const timedOut = codeOf(end) === 'TaskTimeout';
  return { kind: 'failed', id, why: errorOf(end) ?? 'it failed', result: end.result, timedOut };
}

/**
 * A task that was created continues, whatever prevents following it. If it may have been created,
 * its outcome is unknown.
 */
function endingOf(error: unknown, id: string | undefined): Ending {
  const mayRun = id !== undefined || (error instanceof ApiError && error.statusCode >= 500);
  if (mayRun || error instanceof NoAnswerError) return { kind: 'unknown', id, why: messageOf(error) };
  const requestId = error instanceof ApiError ? error.requestId : undefined;
  const field = error instanceof ApiError ? error.errors?.[0]?.message : undefined;
  const why = field === undefined ? messageOf(error) : `${messageOf(error)}: ${field}`;
  return { kind: 'failed', id, why, requestId };
}
