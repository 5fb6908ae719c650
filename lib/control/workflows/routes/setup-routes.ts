/**
 * Answers the routes by which servers are set up, changed and reset
 * (lib/protocol/api/server-setup.ts).
 */
import { definedFields } from '../../../platform/defined-fields.ts';
import { CnapiError } from '../../../platform/errors.ts';
import { serverSetupContracts } from '../../../protocol/api/server-setup.ts';
import { DISK_LAYOUTS } from '../../../protocol/server-setup.ts';
import { accepted, bind, empty, ok, type Route, recordedInCommit } from '../../http/route.ts';
import { InvalidArgumentError } from '../../request-errors.ts';
import { CORE_PARTS } from '../../servers/server-store.ts';
import type { Servers } from '../../servers/servers.ts';
import { createRequestedTask } from '../../tasks/requests/requested-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { checkWorkAllowed } from '../work-not-allowed.ts';
import { type CreateWorkflowJobDeps, createRequestedWorkflowJob } from './create-workflow-job.ts';

interface SetupRouteDeps extends CreateWorkflowJobDeps {
  tasks: Pick<Tasks, 'create'>;
  servers: Pick<Servers, 'get'>;
}

/** 500, with the text of Triton's CNAPI. */
class ServerNotSetUpError extends CnapiError {
  constructor() {
    super('InternalError', 500, 'Server is not setup');
  }
}

export function setupRoutes(deps: SetupRouteDeps): Route[] {
  const { tasks, servers } = deps;
  return bind(serverSetupContracts, {
    SetupServer: recordedInCommit(async (context) => {
      const { server_uuid, disk_layout, hostname, postsetup_script } = context.params;
      if (disk_layout !== undefined && !(DISK_LAYOUTS as readonly string[]).includes(disk_layout))
        throw new InvalidArgumentError(`Invalid disk_layout; it is one of ${DISK_LAYOUTS.join(', ')}`);
      const found = await servers.get(server_uuid, { ...CORE_PARTS, sysinfo: true });
      if (found?.server.setup === true) return empty(204);
      const sysinfo = found?.server.sysinfo;
      const isRenamed = hostname !== undefined && hostname !== sysinfo?.Hostname;
      if (isRenamed || postsetup_script !== undefined) checkWorkAllowed(server_uuid, sysinfo, 'setup');
      return accepted({ job_uuid: await createRequestedWorkflowJob(deps, context, 'server-setup') });
    }),
    FactoryResetServer: recordedInCommit(async (context) => {
      const { server_uuid } = context.params;
      const found = await servers.get(server_uuid, { ...CORE_PARTS, report: true, sysinfo: true });
      const count = Object.keys(found?.server.vms ?? {}).length;
      if (count > 0) return { status: 409 as const, body: `Server may not be reset because it has ${count} vms` };
      checkWorkAllowed(server_uuid, found?.server.sysinfo, 'factory-reset');
      return accepted({ job_uuid: await createRequestedWorkflowJob(deps, context, 'server-factory-reset') });
    }),
    UpdateServerNics: recordedInCommit(async (context) => {
      const found = await servers.get(context.params.server_uuid, CORE_PARTS);
      if (found?.server.setup !== true) throw new ServerNotSetUpError();
      return accepted({ job_uuid: await createRequestedWorkflowJob(deps, context, 'server-update-nics') });
    }),
    UpdateServerNicsTask: recordedInCommit(async (context) => {
      const { action, nics } = context.params;
      const params = { nics, ...definedFields({ action }) };
      return ok({ id: await createRequestedTask(context, tasks, { name: 'server_update_nics', params }) });
    }),
  });
}
