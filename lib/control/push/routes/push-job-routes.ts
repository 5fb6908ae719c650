/** Answers the routes of push jobs (lib/protocol/api/push-jobs.ts). */
import type { Random } from '../../../platform/random.ts';
import { PUSH_PAGE, pushJobContracts } from '../../../protocol/api/push-jobs.ts';
import { accepted, bind, empty, ok, type Route } from '../../http/route.ts';
import type { Servers } from '../../servers/servers.ts';
import { newPushJobOf } from '../job-request.ts';
import { newNodesOf } from '../job-targets.ts';
import type { PushJobs } from '../push-jobs.ts';
import { pushJobFor, pushNodeFor } from './push-job-view.ts';

export interface PushJobRouteDeps {
  pushJobs: Pick<
    PushJobs,
    'create' | 'get' | 'list' | 'nodes' | 'change' | 'addNodes' | 'abort' | 'abortNodes' | 'delete'
  >;
  servers: Pick<Servers, 'hostnames' | 'select' | 'group'>;
  random: Random;
}

export function pushJobRoutes({ pushJobs, servers, random }: PushJobRouteDeps): Route[] {
  return bind(
    pushJobContracts,
    {
      async CreatePushJob({ params, actor, withRecord }) {
        const id = random.uuid();
        const job = await newPushJobOf(params, { id, actor: actor.name, servers, jobs: pushJobs });
        await withRecord((record) => pushJobs.create({ ...job, record }), id);
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
      async ChangePushJob({ params: { id, ...changes }, actor, withRecord }) {
        await withRecord((record) => pushJobs.change(id, { changes, record }), id);
        return ok(pushJobFor(actor, await pushJobs.get(id)));
      },
      async AddPushNodes({ params, actor, withRecord }) {
        const { id } = params;
        const nodes = await newNodesOf(params.servers, servers);
        await withRecord((record) => pushJobs.addNodes(id, { nodes, record }), id);
        return { status: 201 as const, body: pushJobFor(actor, await pushJobs.get(id)) };
      },
      async AbortPushJob({ params, actor, withRecord }) {
        const { id, nodes } = params;
        const how = params.soft === true ? 'soft' : 'hard';
        await withRecord(
          (record) =>
            nodes === undefined
              ? pushJobs.abort(id, { how, actor: actor.name, record })
              : pushJobs.abortNodes(id, { nodes, how, record }),
          id,
        );
        return accepted(pushJobFor(actor, await pushJobs.get(id)));
      },
      async DeletePushJob({ params }) {
        await pushJobs.delete(params.id);
        return empty(204);
      },
    },
    {
      CreatePushJob: { commitsRecord: true },
      ChangePushJob: { commitsRecord: true },
      AddPushNodes: { commitsRecord: true },
      AbortPushJob: { commitsRecord: true },
      ListPushJobs: { answerBytes: 2 * 1024 * 1024 },
      ListPushNodes: { answerBytes: 1024 * 1024 },
    },
  );
}
