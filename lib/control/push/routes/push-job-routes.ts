/** Answers the routes of push jobs (lib/protocol/api/push-jobs.ts). */
import type { Random } from '../../../platform/random.ts';
import {
  DEFAULT_ABORT_TIMEOUT_MS,
  DEFAULT_RUN_TIMEOUT_MS,
  DEFAULT_VOTING_TIMEOUT_MS,
  PUSH_PAGE,
  pushJobContracts,
} from '../../../protocol/api/push-jobs.ts';
import { InvalidParametersError } from '../../http/http-errors.ts';
import { accepted, bind, empty, ok, type Route } from '../../http/route.ts';
import type { Servers } from '../../servers/servers.ts';
import { quorumOf } from '../push-job.ts';
import type { PushJobs } from '../push-jobs.ts';
import type { PushOptions } from '../push-store.ts';
import { pushJobFor, pushNodeFor } from './push-job-view.ts';

export interface PushJobRouteDeps {
  pushJobs: Pick<PushJobs, 'create' | 'get' | 'list' | 'nodes' | 'abort' | 'delete'>;
  servers: Pick<Servers, 'hostnames'>;
  random: Random;
}

const HIDDEN = '(secret)';

export function pushJobRoutes({ pushJobs, servers, random }: PushJobRouteDeps): Route[] {
  return bind(
    pushJobContracts,
    {
      async CreatePushJob({ params, actor, withRecord }) {
        const { command, user, dir, env = {}, secret_env = [], file, capture_output: capture } = params;
        const names = await servers.hostnames(params.servers);
        checkServers(params.servers, names);
        checkSecrets(env, secret_env);
        const quorum = quorumOf(params.quorum ?? params.servers.length, params.servers.length);
        if (quorum > params.servers.length)
          throw invalid('quorum', `value is ${quorum}, and there are ${params.servers.length} servers`);
        const options: PushOptions = { user, dir, env, capture };
        const masked = Object.fromEntries(secret_env.map((name) => [name, HIDDEN]));
        const id = random.uuid();
        await withRecord(
          (record) =>
            pushJobs.create({
              id,
              organization: undefined,
              command,
              options,
              maskedOptions: secret_env.length === 0 ? undefined : { ...options, env: { ...env, ...masked } },
              file,
              nodes: params.servers.map((serverUuid) => ({ serverUuid, name: names.get(serverUuid) ?? '' })),
              quorum: Math.max(1, quorum),
              concurrency: params.concurrency,
              maxFailures: params.max_failures,
              votingTimeoutMs: params.voting_timeout_ms ?? DEFAULT_VOTING_TIMEOUT_MS,
              runTimeoutMs: params.run_timeout_ms ?? DEFAULT_RUN_TIMEOUT_MS,
              abortTimeoutMs: DEFAULT_ABORT_TIMEOUT_MS,
              actor: actor.name,
              record,
            }),
          id,
        );
        return { status: 201 as const, body: pushJobFor(actor, await pushJobs.get(id)) };
      },
      async ListPushJobs({ params, actor }) {
        const { status, after, limit = PUSH_PAGE } = params;
        const jobs = await pushJobs.list({ status, after, limit });
        return ok(jobs.map((job) => pushJobFor(actor, job)));
      },
      GetPushJob: async ({ params, actor }) => ok(pushJobFor(actor, await pushJobs.get(params.id))),
      async ListPushNodes({ params, actor }) {
        const { id, status, after, limit } = params;
        const nodes = await pushJobs.nodes(id, { state: status, after, limit });
        return ok(nodes.map((node) => pushNodeFor(actor, node)));
      },
      async AbortPushJob({ params, actor, withRecord }) {
        const how = params.soft === true ? 'soft' : 'hard';
        await withRecord((record) => pushJobs.abort(params.id, { how, actor: actor.name, record }), params.id);
        return accepted(pushJobFor(actor, await pushJobs.get(params.id)));
      },
      async DeletePushJob({ params }) {
        await pushJobs.delete(params.id);
        return empty(204);
      },
    },
    {
      CreatePushJob: { commitsRecord: true },
      AbortPushJob: { commitsRecord: true },
      ListPushJobs: { answerBytes: 2 * 1024 * 1024 },
      ListPushNodes: { answerBytes: 1024 * 1024 },
    },
  );
}

const invalid = (field: string, message: string) =>
  new InvalidParametersError(400, [{ field, code: 'Invalid', message }]);

function checkServers(wanted: readonly string[], known: ReadonlyMap<string, string>): void {
  const unknown = wanted.filter((uuid) => !known.has(uuid));
  if (unknown.length === 0) return;
  const more = unknown.length > 10 ? ` and ${unknown.length - 10} more` : '';
  throw invalid('servers', `there are no such servers: ${unknown.slice(0, 10).join(', ')}${more}`);
}

function checkSecrets(env: Readonly<Record<string, string>>, names: readonly string[]): void {
  const missing = names.find((name) => !Object.hasOwn(env, name));
  if (missing !== undefined)
    throw invalid('secret_env', `env has no variable ${JSON.stringify(missing).slice(0, 100)}`);
}
