/**
 * Runs a command on several servers as a push job with quorum 1, and follows it. Used by
 * `cnapi exec`.
 *
 *     asked ──▶ followed (the job's id is known) ──▶ each server: ok | failed | unknown
 */
import type { CnapiClient } from '../../client/client.ts';
import { ApiError } from '../../client/client-errors.ts';
import type { Params } from '../../client/request.ts';
import { messageOf } from '../../platform/errors.ts';
import type { Random } from '../../platform/random.ts';
import { pushJobContracts } from '../../protocol/api/push/jobs.ts';
import type { NamedServer } from '../../protocol/api/servers.ts';
import type { CommandOutcome, RemoteCommand, ResultListener } from '../output/outcome.ts';
import { FollowedPushJob } from '../push-jobs/followed-job.ts';

type RunRequest = Omit<Params<typeof pushJobContracts.CreatePushJob>, 'servers'>;

interface PushJobRunDeps {
  client: CnapiClient;
  random: Random;
  listener: ResultListener;
  onJob(id: string): void;
}

const LEAVE_WITHIN_MS = 2_000;

export class PushJobRun implements RemoteCommand {
  readonly #deps: PushJobRunDeps;
  readonly #servers: readonly NamedServer[];
  readonly #request: RunRequest;
  readonly #followed: FollowedPushJob;
  #id: string | undefined;
  #isCancelled = false;

  constructor(deps: PushJobRunDeps, servers: readonly NamedServer[], request: RunRequest) {
    this.#deps = deps;
    this.#servers = servers;
    this.#request = request;
    this.#followed = new FollowedPushJob(deps, servers);
  }

  /** The job's id, once an instance has answered. */
  get id(): string | undefined {
    return this.#id;
  }

  get openCount(): number {
    return this.#followed.openCount;
  }

  async run(): Promise<CommandOutcome[]> {
    try {
      const id = await this.create();
      if (this.#isCancelled) await this.#abort(id);
      await this.#followed.follow(id);
    } catch (error) {
      return this.#followed.endings(this.#id, error);
    }
    return this.#followed.endings(this.#id, new Error('the job ended without a result for this server'));
  }

  /** Returns the job's id. */
  async create(): Promise<string> {
    const servers = this.#servers.map(({ uuid }) => uuid);
    const { client, random } = this.#deps;
    const { id } = await client.createPushJob({ ...this.#request, servers }, random.uuid());
    this.#id = id;
    this.#deps.onJob(id);
    return id;
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
    const id = this.#id?.slice(0, 8);
    if (id === undefined) return ['a push job may have been created; see cnapi job list'];
    return [
      `push job ${id} may still run on ${this.openCount} of ${this.#servers.length} servers; see cnapi job status ${id}`,
    ];
  }

  /** A job that has ended meanwhile needs no abort. */
  async #abort(id: string): Promise<void> {
    const { client, listener } = this.#deps;
    await client.ask(pushJobContracts.AbortPushJob, { id }, { repeatable: true }).catch((error: unknown) => {
      if (error instanceof ApiError && error.code === 'PushJobEnded') return;
      listener.onNotCancelled(undefined, `push job ${id.slice(0, 8)}`, messageOf(error));
    });
  }
}
