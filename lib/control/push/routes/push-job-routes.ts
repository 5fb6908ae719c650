/** Answers the routes of push jobs (lib/protocol/api/push/jobs.ts). */
import type { Random } from '../../../platform/random.ts';
import { formatCursor } from '../../../protocol/api/contract/cursor.ts';
import { PUSH_PAGE, pushJobContracts } from '../../../protocol/api/push/jobs.ts';
import { idempotencyKey } from '../../http/idempotency-key.ts';
import { accepted, bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import type { Servers } from '../../servers/servers.ts';
import { PushJobKeyLostError } from '../push-errors.ts';
import type { PushJobs } from '../push-jobs.ts';
import { createRequestKey, resolvePushJob } from '../request/job-request.ts';
import { resolveNodes } from '../request/job-targets.ts';
import { toPushJob, toPushNode } from './push-job-view.ts';

export interface PushJobRouteDeps {
  pushJobs: Pick<
    PushJobs,
    | 'create'
    | 'findByIdempotencyKey'
    | 'get'
    | 'list'
    | 'nodes'
    | 'serverGroup'
    | 'change'
    | 'addNodes'
    | 'abort'
    | 'abortNodes'
    | 'delete'
  >;
  servers: Pick<Servers, 'hostnames' | 'select'>;
  random: Random;
}

export function pushJobRoutes({ pushJobs, servers, random }: PushJobRouteDeps): Route[] {
  return bind(
    pushJobContracts,
    {
      CreatePushJob: recordedInCommit(async ({ params, actor, header, withAuditRecord }) => {
        const repeat = createRequestKey(params, idempotencyKey(header), actor.name);
        // Asked before the servers are looked up, because a repeated request could find other
        // servers.
        const made = await pushJobs.findByIdempotencyKey(repeat);
        const id = made ?? (await create());
        async function create(): Promise<string> {
          const job = await resolvePushJob(params, { id: random.uuid(), actor: actor.name, servers, jobs: pushJobs });
          const isNew = await withAuditRecord((record) => pushJobs.create({ ...job, repeat, record }), job.id);
          if (isNew) return job.id;
          const first = await pushJobs.findByIdempotencyKey(repeat);
          if (first === undefined) throw new PushJobKeyLostError();
          return first;
        }
        return { status: 201 as const, body: toPushJob(await pushJobs.get(id), actor) };
      }),
      async ListPushJobs({ params, actor }) {
        const { status, id_prefix: idPrefix, schedule, after, limit = PUSH_PAGE } = params;
        const { jobs, next } = await pushJobs.list({ status, idPrefix, schedule, after, limit });
        return ok({
          jobs: jobs.map((job) => toPushJob(job, actor)),
          ...(next === undefined ? {} : { next: formatCursor(next) }),
        });
      },
      GetPushJob: async ({ params, actor }) => ok(toPushJob(await pushJobs.get(params.id), actor)),
      async ListPushNodes({ params, actor }) {
        const { id, status, after, limit } = params;
        const nodes = await pushJobs.nodes(id, { state: status, after, limit });
        return ok(nodes.map((node) => toPushNode(node, actor)));
      },
      ChangePushJob: recordedInCommit(async ({ params: { id, ...changes }, actor, withAuditRecord }) => {
        await withAuditRecord((record) => pushJobs.change(id, { changes, record }), id);
        return ok(toPushJob(await pushJobs.get(id), actor));
      }),
      AddPushNodes: recordedInCommit(async ({ params, actor, withAuditRecord }) => {
        const { id } = params;
        const nodes = await resolveNodes(params.servers, servers);
        await withAuditRecord((record) => pushJobs.addNodes(id, { nodes, record }), id);
        return { status: 201 as const, body: toPushJob(await pushJobs.get(id), actor) };
      }),
      AbortPushJob: recordedInCommit(async ({ params, actor, withAuditRecord }) => {
        const { id, nodes } = params;
        const how = params.soft === true ? 'soft' : 'hard';
        await withAuditRecord(
          (record) =>
            nodes === undefined
              ? pushJobs.abort(id, { how, actor: actor.name, record })
              : pushJobs.abortNodes(id, { nodes, how, record }),
          id,
        );
        return accepted(toPushJob(await pushJobs.get(id), actor));
      }),
      DeletePushJob: recordedInCommit(async ({ params: { id }, withAuditRecord }) => {
        await withAuditRecord((record) => pushJobs.delete(id, record), id);
        return empty(204);
      }),
    },
    { ListPushJobs: { answerBytes: 2 * 1024 * 1024 }, ListPushNodes: { answerBytes: 1024 * 1024 } },
  );
}
