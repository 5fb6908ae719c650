/**
 * Follows a push job over one connection, at any available instance: the output of all its nodes,
 * and how the command ended on each of them. Used by job-run.ts for `cnapi exec`, and by
 * follow-job.ts for `--capture`.
 *
 *     each server: (its task starts) ──▶ output ──▶ ok | failed | unknown
 */
import type { CnapiClient } from '../../client/client.ts';
import { followPushJob } from '../../client/follow-push-job.ts';
import type { PushEvent } from '../../protocol/api/push/events.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { endingOfNode, hasNodeEnded } from '../output/node-ending.ts';
import { type CommandOutcome, type ResultListener, toOutcome } from '../output/outcome.ts';

export class FollowedPushJob {
  readonly #deps: { client: CnapiClient; listener: ResultListener };
  readonly #servers: readonly NamedServer[];
  readonly #byUuid: ReadonlyMap<string, NamedServer>;
  readonly #tasks = new Map<NamedServer, string>();
  readonly #taskEnds = new Map<NamedServer, Readonly<Record<string, unknown>>>();
  readonly #endings = new Map<NamedServer, CommandOutcome>();

  constructor(deps: { client: CnapiClient; listener: ResultListener }, servers: readonly NamedServer[]) {
    this.#deps = deps;
    this.#servers = servers;
    this.#byUuid = new Map(servers.map((server) => [server.uuid, server]));
  }

  /** On how many servers it has not ended. */
  get openCount(): number {
    return this.#servers.length - this.#endings.size;
  }

  /** Until the job ends. @throws ApiError, NoAnswerError */
  async follow(id: string): Promise<void> {
    const { client, listener } = this.#deps;
    const onBroken = (reason: string) => listener.onBroken(undefined, reason);
    for await (const event of followPushJob(client.http, id, { onBroken })) {
      if (event.event === 'job') continue;
      const server = this.#byUuid.get(event.data.server_uuid);
      if (server !== undefined && !this.#endings.has(server)) await this.#onEvent(server, event);
    }
  }

  /**
   * Returns how it ended on each server. Servers without an end get one of the error. `job`: its
   * id; undefined if the job was perhaps not created.
   */
  endings(jobId: string | undefined, error: unknown): CommandOutcome[] {
    const see = jobId === undefined ? 'cnapi job list' : `cnapi job status ${jobId.slice(0, 8)}`;
    const endingFor = (id: string | undefined): CommandOutcome => {
      const ending = toOutcome(error, { id, mayRun: jobId !== undefined });
      return ending.kind === 'unknown' ? { ...ending, see } : ending;
    };
    const open = this.#servers.filter((server) => !this.#endings.has(server));
    if (open.length > 0) this.#deps.listener.onCommonEnd(open, endingFor(undefined));
    return this.#servers.map((server) => this.#endings.get(server) ?? endingFor(this.#tasks.get(server)));
  }

  async #onEvent(server: NamedServer, { event, data }: Exclude<PushEvent, { event: 'job' }>): Promise<void> {
    const { listener } = this.#deps;
    if (data.task_id !== undefined && !this.#tasks.has(server)) {
      this.#tasks.set(server, data.task_id);
      listener.onStart(server, data.task_id);
    }
    if (event === 'node') {
      if (!hasNodeEnded(data)) return;
      const ending = endingOfNode(data, this.#taskEnds.get(server));
      this.#endings.set(server, ending);
      this.#taskEnds.delete(server);
      listener.onEnd(server, ending);
      return;
    }
    if (data.event.name === 'output') await listener.onOutput(server, data.event);
    if (data.event.name === 'end') this.#taskEnds.set(server, data.event.data);
  }
}
