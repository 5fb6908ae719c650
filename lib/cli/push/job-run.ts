/**
 * Runs a command on several servers as a push job with quorum 1, and follows the output of all of
 * them over one connection, at any available instance. Used by commands/exec.ts.
 *
 *     asked ──▶ followed (the job's id is known) ──▶ each server: ok | failed | unknown
 */
import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import { followPushJob } from '../../client/follow-push-job.ts';
import type { Request } from '../../client/request.ts';
import { messageOf } from '../../platform/errors.ts';
import type { PushEvent } from '../../protocol/api/push-events.ts';
import { pushJobContracts } from '../../protocol/api/push-jobs.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import { type Ending, endingOf, type Listener, type Run } from '../exec/ending.ts';
import { endingOfNode, hasNodeEnded } from './node-ending.ts';

export type JobRequest = Request<typeof pushJobContracts.CreatePushJob>;

interface JobRunDeps {
  client: CnapiClient;
  listener: Listener;
  onJob(id: string): void;
}

const LEAVE_WITHIN_MS = 2_000;

export class JobRun implements Run {
  readonly #deps: JobRunDeps;
  readonly #servers: readonly NamedServer[];
  readonly #request: Omit<JobRequest, 'servers'>;
  readonly #byUuid: ReadonlyMap<string, NamedServer>;
  readonly #tasks = new Map<NamedServer, string>();
  readonly #taskEnds = new Map<NamedServer, Readonly<Record<string, unknown>>>();
  readonly #endings = new Map<NamedServer, Ending>();
  #id: string | undefined;
  #isCancelled = false;

  constructor(deps: JobRunDeps, servers: readonly NamedServer[], request: Omit<JobRequest, 'servers'>) {
    this.#deps = deps;
    this.#servers = servers;
    this.#request = request;
    this.#byUuid = new Map(servers.map((server) => [server.uuid, server]));
  }

  /** Of the job, once it is known. */
  get id(): string | undefined {
    return this.#id;
  }

  get openCount(): number {
    return this.#servers.length - this.#endings.size;
  }

  async run(): Promise<Ending[]> {
    try {
      const id = await this.create();
      if (this.#isCancelled) await this.#abort(id);
      await this.#follow(id);
    } catch (error) {
      for (const server of this.#servers) this.#end(server, this.#endingWithout(server, error));
    }
    const lost = new Error('the job ended without a result for this server');
    return this.#servers.map((server) => {
      this.#end(server, this.#endingWithout(server, lost));
      return this.#endings.get(server) as Ending;
    });
  }

  /** Returns the job's id. */
  async create(): Promise<string> {
    const servers = this.#servers.map(({ uuid }) => uuid);
    const { id } = await this.#deps.client.ask(pushJobContracts.CreatePushJob, { ...this.#request, servers });
    this.#id = id;
    this.#deps.onJob(id);
    return id;
  }

  /** Follows a job that exists. */
  attach(id: string): Promise<void> {
    this.#id = id;
    return this.#follow(id);
  }

  async cancel(): Promise<void> {
    this.#isCancelled = true;
    if (this.#id !== undefined) await this.#abort(this.#id);
  }

  async leave(): Promise<void> {
    if (this.#isCancelled || this.#id === undefined) return;
    const { client } = this.#deps;
    const request = { id: this.#id, soft: 'true' } as const;
    await client
      .ask(pushJobContracts.AbortPushJob, request, { withinMs: LEAVE_WITHIN_MS, patienceMs: 0 })
      .catch(() => undefined);
  }

  left(): string[] {
    if (this.#id === undefined) return ['a push job may have been created; see cnapi job list'];
    return [
      `push job ${this.#id} may still run on ${this.openCount} of ${this.#servers.length} servers; see cnapi job status ${this.#id}`,
    ];
  }

  async #follow(id: string): Promise<void> {
    const { client, listener } = this.#deps;
    const onBroken = (why: string) => listener.onBroken(undefined, why);
    for await (const event of followPushJob(client.caller, id, { onBroken })) {
      if (event.event === 'job') continue;
      const server = this.#byUuid.get(event.data.server_uuid);
      if (server !== undefined && !this.#endings.has(server)) await this.#onEvent(server, event);
    }
  }

  async #onEvent(server: NamedServer, { event, data }: Exclude<PushEvent, { event: 'job' }>): Promise<void> {
    const { listener } = this.#deps;
    if (data.task_id !== undefined && !this.#tasks.has(server)) {
      this.#tasks.set(server, data.task_id);
      listener.onStart(server, data.task_id);
    }
    if (event === 'node') {
      if (hasNodeEnded(data)) this.#end(server, endingOfNode(data, this.#taskEnds.get(server)));
      return;
    }
    if (data.event.name === 'output') await listener.onOutput(server, data.event);
    if (data.event.name === 'end') this.#taskEnds.set(server, data.event.data);
  }

  #end(server: NamedServer, ending: Ending): void {
    if (this.#endings.has(server)) return;
    this.#endings.set(server, ending);
    this.#taskEnds.delete(server);
    this.#deps.listener.onEnd(server, ending);
  }

  #endingWithout(server: NamedServer, error: unknown): Ending {
    const ending = endingOf(error, { id: this.#tasks.get(server), mayRun: this.#id !== undefined });
    if (ending.kind !== 'unknown') return ending;
    return { ...ending, see: this.#id === undefined ? 'cnapi job list' : `cnapi job status ${this.#id}` };
  }

  /** A job that has ended meanwhile needs no abort. */
  async #abort(id: string): Promise<void> {
    const { client, listener } = this.#deps;
    await client.ask(pushJobContracts.AbortPushJob, { id }, { repeatable: true }).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === 'PushJobEnded') return;
      listener.onNotCancelled(undefined, `push job ${id}`, messageOf(error));
    });
  }
}
