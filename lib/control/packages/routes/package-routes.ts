/**
 * Answers the routes of packages of agents (lib/protocol/api/packages.ts) by tasks of the server's
 * agent.
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import { packageContracts } from '../../../protocol/api/packages.ts';
import { bind, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { PreconditionFailedError } from '../../request-errors.ts';
import { ageOfCnAgent } from '../../servers/cn-agent-version.ts';
import { CORE_PARTS } from '../../servers/server-store.ts';
import type { Servers } from '../../servers/servers.ts';
import { createRequestedTask } from '../../tasks/requests/requested-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';

export interface PackageRouteDeps {
  tasks: Pick<Tasks, 'create'>;
  servers: Pick<Servers, 'get'>;
}

/** The first version of Triton's agent that can uninstall agents. */
const UNINSTALLS_FROM = '2.8.0';

export function packageRoutes({ tasks, servers }: PackageRouteDeps): Route[] {
  return bind(packageContracts, {
    InstallAgent: recordedInCommit(async (context) => {
      const { image_uuid, package_name, package_file, downgrade, retry } = context.params;
      const params = {
        ...definedFields({ image_uuid, package_name, package_file, downgrade, retry }),
      };
      return ok({ id: await createRequestedTask(context, tasks, { name: 'agent_install', params }) });
    }),
    UninstallAgents: recordedInCommit(async (context) => {
      const { server_uuid, agents } = context.params;
      const found = await servers.get(server_uuid, { ...CORE_PARTS, agents: true });
      // An unknown version may be new enough.
      if (ageOfCnAgent(found?.server.agents ?? [], UNINSTALLS_FROM) === 'older')
        throw new PreconditionFailedError(
          `The cn-agent of this server is older than ${UNINSTALLS_FROM}; update it first`,
        );
      const task = { name: 'agents_uninstall' as const, params: { agents } };
      return ok({ id: await createRequestedTask(context, tasks, task) });
    }),
  });
}
