/**
 * Answers the routes of VMs (lib/protocol/api/vms.ts). Changes are tasks of the server's agent; the
 * answer is the id of the task. Questions to the agent are tasks that the request waits for.
 */

import { definedFields, withoutUndefined } from '../../../platform/defined-fields.ts';
import { invalidParameter } from '../../../platform/errors.ts';
import { MAX_LIST } from '../../../protocol/api/contract/rules.ts';
import { type StoredVm, vmContracts } from '../../../protocol/api/vms.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { LegacyTaskName, TaskName } from '../../../protocol/task-name.ts';
import { type Actor, hasRight } from '../../access/token.ts';
import { bind, ok, type RequestContext, type Route, recordedInCommit } from '../../http/route.ts';
import type { LegacyAgentApi } from '../../legacy/legacy-agent-api.ts';
import type { Servers } from '../../servers/servers.ts';
import { buildTaskRequest, createRequestedTask } from '../../tasks/requests/requested-task.ts';
import type { Tasks } from '../../tasks/tasks.ts';
import { dockerCopy } from '../docker/docker-copy.ts';
import { explainLegacyFailure } from '../docker/docker-errors.ts';
import { dockerExec } from '../docker/docker-exec.ts';
import { dockerStats } from '../docker/docker-stats.ts';
import type { DockerDeps } from '../docker/docker-task.ts';
import { type VmDocument, vmOfServer, vmWithServer, withoutReason } from '../vm.ts';
import { checkMigrationTask, checkStartUpdate, InvalidVersionError, NotSupportedError } from '../vm-errors.ts';
import { queryVm, type VmQuery } from '../vm-query.ts';
import type { VmRegistry } from '../vm-registry.ts';

import { parseVmInfo, vncOf } from './vm-info.ts';
import { findVmParamIssue } from './vm-params.ts';

export interface VmRouteDeps extends DockerDeps {
  vms: VmRegistry;
  tasks: DockerDeps['tasks'] & Pick<Tasks, 'findByIdempotencyKey'>;
  servers: Pick<Servers, 'sysinfoParts' | 'statuses'>;
  legacyAgentApi: Pick<LegacyAgentApi, 'has'>;
}

interface OfServer {
  server_uuid: string;
  ticket_uuid?: string | undefined;
}

type OfVm = OfServer & { vm_uuid: string };

/** The parameters are beside those of the request. */
type Query = Omit<VmQuery, 'params'> & Partial<Pick<VmQuery, 'params'>>;

const LIST_BYTES = 2 * 1024 * 1024;

export function vmRoutes(deps: VmRouteDeps): Route[] {
  const { vms, servers, legacyAgentApi } = deps;

  /** Starts a task about the VM of the path and answers its id. */
  const startTask = (task: TaskName | LegacyTaskName) =>
    recordedInCommit(async (context: RequestContext<OfVm>) => {
      const params = await validatedParams(task, context);
      return ok({ id: await createRequestedTask(context, deps.tasks, { name: task, params }) });
    });

  /**
   * The parameters of the task, after what an agent of this project would refuse is refused, so
   * that the caller knows immediately. Agents of Triton check by themselves. @throws
   * InvalidParametersError
   */
  const validatedParams = async (task: TaskName | LegacyTaskName, context: RequestContext<OfServer>) => {
    const params = agentParams(context);
    const issue = findVmParamIssue(task, params);
    if (issue !== undefined && !(await legacyAgentApi.has(context.params.server_uuid)))
      throw invalidParameter(issue.field, issue.message);
    return params;
  };

  const runQuery = (context: RequestContext<OfVm>, { params, ...query }: Query) =>
    queryVm(deps, context, { ...query, params: { ...agentParams(context), ...params } });

  /** For Docker's clients of a server with an agent of Triton. */
  const queryLegacyAgent = (context: RequestContext<OfVm>, query: Query) =>
    runQuery(context, query).catch((error: unknown) =>
      explainLegacyFailure(error, { task: query.task, uuid: context.params.vm_uuid }),
    );

  /** @throws NotSupportedError unless the agent is one of Triton's, whatever that can do */
  const checkLegacyAgent = async (what: string, serverUuid: string) => {
    if (!(await legacyAgentApi.has(serverUuid))) throw new NotSupportedError(what, serverUuid);
  };

  /** Platforms of Triton before SDC 7 cannot update NICs. @throws InvalidVersionError */
  const checkSdcVersion = async (serverUuid: string) => {
    const version = (await servers.sysinfoParts(serverUuid, ['SDC Version']))?.['SDC Version'];
    if (version === undefined) throw new InvalidVersionError(serverUuid);
  };

  const withServers = async (vms: readonly VmDocument[], actor: Actor) => {
    const statuses = await servers.statuses([...new Set(vms.map(({ server_uuid }) => server_uuid))]);
    const all = vms.map((vm) => vmWithServer(vm, statuses.get(vm.server_uuid)));
    return hasRight(actor, 'task-contents') ? all : all.map(withoutReason);
  };

  const withServer = async (vm: VmDocument, actor: Actor) => {
    const [stored] = await withServers([vm], actor);
    return stored as StoredVm;
  };

  return bind(
    vmContracts,
    {
      async ListVms({ actor, params: { limit = MAX_LIST, after, ...filter } }) {
        const { objects, next } = await vms.list(filter, { limit, after });
        const values = objects.map(({ value }) => value);
        return ok({ vms: await withServers(values, actor), ...definedFields({ next }) });
      },
      async GetListedVm({ actor, params }) {
        const { value, etag } = await vms.get(params.vm_uuid);
        return { ...ok(await withServer(value, actor)), headers: { ETag: `"${etag}"` } };
      },
      async ListServerVms({ params }) {
        const found: (JsonObject & { uuid: string })[] = [];
        let after: string | undefined;
        do {
          const page = await vms.list(params, { limit: MAX_LIST, after });
          found.push(...page.objects.map(({ value }) => vmOfServer(value)));
          after = page.next;
        } while (after !== undefined);
        return ok(found);
      },
      CreateVm: recordedInCommit(async (context) => {
        const { uuid } = context.params;
        const task = { name: 'machine_create' as const, params: await validatedParams('machine_create', context) };
        const create = (idempotencyKey: string) =>
          createRequestedTask(context, deps.tasks, { ...task, idempotencyKey }, uuid);
        return ok({ id: await vms.create(uuid, buildTaskRequest(context, task), create) });
      }),
      async GetVm(context) {
        // A query to the agent is a row in the table of tasks, which readers must not be able to
        // fill.
        if (!hasRight(context.actor, 'task-contents')) {
          const { server_uuid, vm_uuid } = context.params;
          const { value } = await vms.get(vm_uuid, server_uuid);
          return ok({ ...(await withServer(value, context.actor)), withheld: true });
        }
        const vm = await runQuery(context, { task: 'machine_load', seconds: 60 });
        return ok({ ...vm, uuid: String(vm.uuid ?? context.params.vm_uuid) });
      },
      async GetVmInfo(context) {
        const { info } = context.params;
        const types = info === undefined || info === '' ? ['all'] : info.split(',');
        return ok(parseVmInfo(await runQuery(context, { task: 'machine_info', seconds: 10, params: { types } })));
      },
      async GetVmVnc(context) {
        await checkLegacyAgent('VNC', context.params.server_uuid);
        const query = { task: 'machine_info' as const, seconds: 10, params: { types: ['vnc'] } };
        return ok(vncOf(parseVmInfo(await runQuery(context, query))));
      },
      GetVmProcesses: async (context) => ok(await runQuery(context, { task: 'machine_proc', seconds: 20 })),
      UpdateVm: startTask('machine_update'),
      UpdateVmNics: recordedInCommit(async (context) => {
        const { server_uuid } = context.params;
        if (await legacyAgentApi.has(server_uuid)) await checkSdcVersion(server_uuid);
        const params = await validatedParams('machine_update_nics', context);
        return ok({ id: await createRequestedTask(context, deps.tasks, { name: 'machine_update_nics', params }) });
      }),
      StartVm: recordedInCommit((context) => {
        checkStartUpdate('start', context.params.update);
        return startTask('machine_boot').handler(context);
      }),
      StopVm: startTask('machine_shutdown'),
      RebootVm: recordedInCommit((context) => {
        checkStartUpdate('reboot', context.params.update);
        return startTask('machine_reboot').handler(context);
      }),
      KillVm: startTask('machine_kill'),
      ReprovisionVm: startTask('machine_reprovision'),
      DeleteVm: startTask('machine_destroy'),
      MigrateVm: recordedInCommit(async (context) => {
        checkMigrationTask(context.params.migrationTask);
        await checkLegacyAgent('Migration', context.params.server_uuid);
        return startTask('machine_migrate').handler(context);
      }),
      CreateVmSnapshot: startTask('machine_create_snapshot'),
      RollbackVmSnapshot: startTask('machine_rollback_snapshot'),
      DeleteVmSnapshot: startTask('machine_delete_snapshot'),
      CreateVmImage: startTask('machine_create_image'),
      DockerExec: recordedInCommit(async (context) => {
        if (!(await legacyAgentApi.has(context.params.server_uuid))) return ok(await dockerExec(deps, context));
        return ok(await runQuery(context, { task: 'docker_exec', seconds: 60 }));
      }),
      DockerCopy: recordedInCommit(async (context) => {
        if (!(await legacyAgentApi.has(context.params.server_uuid))) return ok(await dockerCopy(deps, context));
        const { mode = 'read' } = context.params;
        return ok(await queryLegacyAgent(context, { task: 'docker_copy', seconds: 10, params: { mode } }));
      }),
      DockerStats: recordedInCommit(async (context) => {
        if (!(await legacyAgentApi.has(context.params.server_uuid))) return ok(await dockerStats(deps, context));
        return ok(await queryLegacyAgent(context, { task: 'docker_stats', seconds: 30 }));
      }),
      DockerBuild: recordedInCommit(async (context) => {
        await checkLegacyAgent('docker-build', context.params.server_uuid);
        return ok(await runQuery(context, { task: 'docker_build', seconds: 30 }));
      }),
    },
    { ListVms: { answerBytes: LIST_BYTES }, ListServerVms: { answerBytes: LIST_BYTES } },
  );
}

/** All parameters of the request, as Triton's CNAPI forwards them; those of the path always win. */
function agentParams({ params, rawParams }: RequestContext<OfServer>): JsonObject {
  const { vm_uuid, ticket_uuid: _, ...known } = params as Partial<OfVm>;
  const { vm_uuid: _raw, ticket_uuid: _ticket, ...others } = rawParams;
  return { ...others, ...withoutUndefined({ ...known, uuid: vm_uuid }) };
}
