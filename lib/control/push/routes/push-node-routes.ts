/** Answers the states of servers in push jobs (lib/protocol/api/push/nodes.ts). */
import { invalidParameter } from '../../../platform/errors.ts';
import { isUuid } from '../../../protocol/api/contract/rules.ts';
import { pushNodeContracts } from '../../../protocol/api/push/nodes.ts';
import { bind, ok, type Route } from '../../http/route.ts';
import type { Servers } from '../../servers/servers.ts';
import type { PushJobs } from '../push-jobs.ts';
import { toPushNodeState } from './push-job-view.ts';

interface PushNodeRouteDeps {
  pushJobs: Pick<PushJobs, 'nodeStates'>;
  servers: Pick<Servers, 'hostnames'>;
}

export function pushNodeRoutes({ pushJobs, servers }: PushNodeRouteDeps): Route[] {
  return bind(pushNodeContracts, {
    async ListPushNodeStates({ params }) {
      const asked = [...new Set(params.server_uuid.map((uuid) => uuid.toLowerCase()))];
      const wrong = asked.find((uuid) => !isUuid(uuid));
      if (wrong !== undefined) throw invalidParameter('server_uuid', `${wrong} is not a UUID`);
      const names = await servers.hostnames(asked);
      const states = await pushJobs.nodeStates([...names.keys()]);
      return ok(
        states
          .map((state) => toPushNodeState(state, names.get(state.server_uuid) ?? ''))
          .sort((a, b) => (a.server_uuid < b.server_uuid ? -1 : 1)),
      );
    },
  });
}
