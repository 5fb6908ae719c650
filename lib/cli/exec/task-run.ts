/**
 * Runs a command on one server, as a task. It is created under an idempotency key, so a lost answer
 * does not run it twice. Any available instance is used to follow it. Used by `cnapi exec`.
 *
 *     asked ──▶ running (its id is known) ──▶ ok | failed | unknown (no end reported)
 */

import type { CnapiClient, TaskOptions } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Random } from '../../platform/random.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import { type CommandOutcome, endedAs, type RemoteCommand, type ResultListener, toOutcome } from '../output/outcome.ts';
import { endOfTask } from '../output/task-end.ts';

interface TaskCommand extends Required<Pick<TaskOptions, 'params'>>, Pick<TaskOptions, 'timeoutMs' | 'ticketUuid'> {
  server: NamedServer;
  /** Does not wait for the end: returns only the task's id. */
  detach: boolean;
}

interface TaskRunDeps {
  client: CnapiClient;
  random: Random;
  listener: ResultListener;
}

export class TaskRun implements RemoteCommand {
  readonly #deps: TaskRunDeps;
  readonly #command: TaskCommand;
  #id: string | undefined;
  #state: 'asked' | 'running' | 'ended' = 'asked';
  #isCancelled = false;

  constructor(deps: TaskRunDeps, command: TaskCommand) {
    this.#deps = deps;
    this.#command = command;
  }

  get openCount(): number {
    return this.#state === 'ended' ? 0 : 1;
  }

  async run(): Promise<CommandOutcome[]> {
    const ending = await this.#run().catch((error: unknown) => toOutcome(error, { id: this.#id }));
    this.#state = 'ended';
    this.#deps.listener.onEnd(this.#command.server, ending);
    return [ending];
  }

  async cancel(): Promise<void> {
    this.#isCancelled = true;
    if (this.#state === 'running') await this.#cancel();
  }

  async leave(): Promise<void> {}

  left(labelOf: (server: NamedServer) => string): string[] {
    const { server } = this.#command;
    if (this.#state === 'ended') return [];
    if (this.#id === undefined)
      return [`${labelOf(server)} may have been given a task; see cnapi tasks ${server.uuid}`];
    return [`${labelOf(server)}: task ${this.#id} may still run; see cnapi task ${this.#id}`];
  }

  async #run(): Promise<CommandOutcome> {
    const { client, random, listener } = this.#deps;
    const { server, params, timeoutMs, ticketUuid, detach } = this.#command;
    const about = { serverUuid: server.uuid, idempotencyKey: random.uuid() };
    const id = await client.createTask({
      ...about,
      task: 'command_execute' satisfies TaskName,
      params,
      timeoutMs,
      ticketUuid,
    });
    this.#id = id;
    listener.onStart(server, id);
    if (detach) return { kind: 'started', id };
    this.#state = 'running';
    if (this.#isCancelled) await this.#cancel();
    return this.#follow(id);
  }

  async #follow(id: string): Promise<CommandOutcome> {
    const { client, listener } = this.#deps;
    const { server } = this.#command;
    const onBroken = (reason: string) => listener.onBroken(server, reason);
    for await (const event of client.followTask(id, { onBroken })) {
      if (event.name === 'output') await listener.onOutput(server, event);
      if (event.name === 'end') return endedAs(id, event.data);
    }
    return endedAs(id, endOfTask(await client.task(id)));
  }

  /** A task that has ended meanwhile needs no cancel. */
  async #cancel(): Promise<void> {
    const id = this.#id ?? '';
    await this.#deps.client.cancelTask(id).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === 'TaskEnded') return;
      this.#deps.listener.onNotCancelled(this.#command.server, `task ${id}`, messageOf(error));
    });
  }
}
