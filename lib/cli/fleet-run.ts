/**
 * One command on many servers, so many at a time. Each is a task: made under an idempotency key, so that a lost answer does
 * not run it twice, and followed on whichever instance is there. Used by commands/exec.ts.
 *
 *     waiting ──▶ asked ──▶ running (its id is known) ──▶ ok | failed | unknown (no instance told its end)
 *        └──cancelled before it was asked──▶ failed
 */
import type { Server, TaskEvent } from '../client/answers.ts';
import type { CnapiClient } from '../client/client.ts';
import { ApiError, NoAnswerError } from '../client/client-errors.ts';
import { messageOf } from '../errors.ts';
import type { Random } from '../ports/random.ts';
import { errorOf, hasSucceeded } from './task-end.ts';

export interface FleetCommand {
  params: Record<string, unknown>;
  timeoutMs: number | undefined;
  ticketUuid: string | undefined;
  /** Not waited for: the task's id is all. */
  detach: boolean;
}

export type Ending =
  | { kind: 'ok'; id: string; result: unknown }
  | { kind: 'started'; id: string }
  | { kind: 'failed'; id: string | undefined; why: string; result?: unknown; requestId?: string | undefined }
  | { kind: 'unknown'; id: string | undefined; why: string };

export interface Listener {
  onStart(server: Server, id: string): void;
  /** Awaited: the next piece is asked for when this one has been taken. */
  onOutput(server: Server, event: TaskEvent): Promise<void>;
  onEnd(server: Server, ending: Ending): void;
  onBroken(server: Server, why: string): void;
  /** Nobody took the cancel: the task goes on. */
  onNotCancelled(server: Server, id: string, why: string): void;
}

export interface FleetRunDependencies {
  client: CnapiClient;
  random: Random;
  listener: Listener;
}

export class FleetRun {
  readonly #deps: FleetRunDependencies;
  /** Ids of tasks that have not ended. */
  readonly running = new Map<Server, string>();
  /** Those that may be given a task at this moment. */
  readonly asked = new Set<Server>();
  /** How many have not been asked. */
  waiting = 0;
  #isCancelled = false;

  constructor(deps: FleetRunDependencies) {
    this.#deps = deps;
  }

  /** In the order of the servers. Never throws for what one of them comes to. */
  async run(servers: readonly Server[], command: FleetCommand, concurrency: number): Promise<Ending[]> {
    const endings: Ending[] = [];
    let next = 0;
    this.waiting = servers.length;
    const lane = async () => {
      for (let at = next++; at < servers.length; at = next++) {
        const server = servers[at] as Server;
        this.waiting--;
        const ending = await this.#runOn(server, command);
        this.running.delete(server);
        endings[at] = ending;
        this.#deps.listener.onEnd(server, ending);
      }
    };
    await Promise.all(Array.from({ length: Math.min(concurrency, servers.length) }, lane));
    return endings;
  }

  /** Nothing more is started, and what runs is asked to end. */
  async cancel(): Promise<void> {
    this.#isCancelled = true;
    await Promise.all([...this.running].map(([server, id]) => this.#cancel(server, id)));
  }

  async #runOn(server: Server, command: FleetCommand): Promise<Ending> {
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

  async #start(server: Server, { params, timeoutMs, ticketUuid }: FleetCommand): Promise<string> {
    const { client, random } = this.#deps;
    const about = { serverUuid: server.uuid, idempotencyKey: random.uuid() };
    this.asked.add(server);
    try {
      return await client.createTask({ ...about, task: 'command_execute', params, timeoutMs, ticketUuid });
    } finally {
      this.asked.delete(server);
    }
  }

  async #follow(server: Server, id: string): Promise<Ending> {
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

  /** One that has ended meanwhile needs no cancel. */
  async #cancel(server: Server, id: string): Promise<void> {
    await this.#deps.client.cancelTask(id).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === 'TaskEnded') return;
      this.#deps.listener.onNotCancelled(server, id, messageOf(error));
    });
  }
}

function endedAs(id: string, end: Readonly<Record<string, unknown>>): Ending {
  if (hasSucceeded(end)) return { kind: 'ok', id, result: end.result };
  return { kind: 'failed', id, why: errorOf(end) ?? 'it failed', result: end.result };
}

/** A task that was made goes on, whatever keeps us from following it; of one that may have been made nobody knows. */
function endingOf(error: unknown, id: string | undefined): Ending {
  const mayRun = id !== undefined || (error instanceof ApiError && error.statusCode >= 500);
  if (mayRun || error instanceof NoAnswerError) return { kind: 'unknown', id, why: messageOf(error) };
  const requestId = error instanceof ApiError ? error.requestId : undefined;
  const field = error instanceof ApiError ? error.errors?.[0]?.message : undefined;
  const why = field === undefined ? messageOf(error) : `${messageOf(error)}: ${field}`;
  return { kind: 'failed', id, why, requestId };
}
