/** Answers the routes of noderoles (lib/protocol/api/annealer.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import { annealerContracts } from '../../../protocol/api/annealer.ts';
import { isUuid, MAX_LIST } from '../../../protocol/api/contract/rules.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import { bind, empty, ok, type RequestContext, type Route } from '../../http/route.ts';
import { MAX_DATA_BYTES } from '../annealer-documents.ts';
import type { NoderoleRow } from '../noderole-store.ts';
import type { Noderoles } from '../noderoles.ts';
import { toNoderole, toNoderoleDetails } from './noderole-view.ts';

/** A page of noderoles without their data. */
const LIST_BYTES = 1024 * 1024;

interface NoderoleRouteDeps {
  noderoles: Pick<Noderoles, 'bind' | 'commit' | 'list' | 'get' | 'proposeData' | 'propose' | 'retry' | 'delete'>;
}

export function noderoleRoutes({ noderoles }: NoderoleRouteDeps): Route[] {
  const whole = async (id: string, { actor }: Pick<RequestContext<unknown>, 'actor'>) =>
    ok(toNoderoleDetails(await noderoles.get(id), actor));
  return bind(
    annealerContracts,
    {
      async BindRole({ params: { uuid: deploymentId, role, servers, data }, actor }) {
        if (servers.length === 0) throw invalidParameter('servers', 'value is empty');
        checkSize(data);
        const { noderoles: rows, created } = await noderoles.bind({ deploymentId, role, servers, data });
        return ok({ noderoles: rows.map((row) => toNoderole(row, actor)), created });
      },
      CommitDeployment: async ({ params, actor }) => ok(await noderoles.commit(params.uuid, actor.name)),
      async ListNoderoles({
        params: { deployment, server_uuid: serverUuid, role, state, limit = MAX_LIST, after },
        actor,
      }) {
        const filter = { deploymentId: deployment, serverUuid, role, state, after: parseCursor(after) };
        const rows = await noderoles.list(filter, limit);
        const next = rows.length < limit ? undefined : rows.at(-1);
        return ok({
          noderoles: rows.map((row) => toNoderole(row, actor)),
          ...(next !== undefined && { next: cursorOf(next) }),
        });
      },
      GetNoderole: ({ params, ...context }) => whole(params.uuid, context),
      async UpdateNoderole({ params, ...context }) {
        checkSize(params.data);
        await noderoles.proposeData(params.uuid, params.data);
        return whole(params.uuid, context);
      },
      async RetryNoderole({ params, ...context }) {
        await noderoles.retry(params.uuid);
        return whole(params.uuid, context);
      },
      async ProposeNoderole({ params, ...context }) {
        await noderoles.propose(params.uuid);
        return whole(params.uuid, context);
      },
      async DeleteNoderole({ params }) {
        await noderoles.delete(params.uuid);
        return empty(204);
      },
    },
    { ListNoderoles: { answerBytes: LIST_BYTES }, BindRole: { answerBytes: LIST_BYTES } },
  );
}

/** @throws InvalidParametersError */
function checkSize(data: JsonObject = {}): void {
  const bytes = Buffer.byteLength(JSON.stringify(data));
  if (bytes > MAX_DATA_BYTES) throw invalidParameter('data', `value has ${bytes} bytes; at most ${MAX_DATA_BYTES}`);
}

const cursorOf = ({ cohort, id }: Pick<NoderoleRow, 'cohort' | 'id'>): string => `${cohort}.${id}`;

/** @throws InvalidParametersError */
function parseCursor(text: string | undefined): { cohort: number; id: string } | undefined {
  if (text === undefined) return undefined;
  const [, cohort, id] = /^(\d{1,9})\.(.*)$/.exec(text) ?? [];
  if (cohort === undefined || id === undefined || !isUuid(id))
    throw invalidParameter('after', 'value is not the `next` of a page before');
  return { cohort: Number(cohort), id };
}
