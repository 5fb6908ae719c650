/**
 * The annealer as callers use it: they bind roles, commit deployments, and read and change
 * noderoles. What is due is carried out by the instance that holds the annealer's duty
 * (`annealer-runner.ts`).
 */
import type { Bus } from '../../platform/bus/bus.ts';
import type { Queryable } from '../../platform/postgres/database.ts';
import type { Random } from '../../platform/random.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { ResourceNotFoundError } from '../request-errors.ts';
import { ServerNotFoundError, type Servers } from '../servers/servers.ts';
import {
  NoderoleInUseError,
  NoderolesChangedError,
  NoderoleTransitionError,
  TooManyNoderolesError,
} from './annealer-errors.ts';
import { ANNEALER_TOPIC } from './annealer-topics.ts';
import { BindingPlanner } from './binding.ts';
import { type Definitions, toDefinition } from './definitions.ts';
import { explainNoderole } from './explain.ts';
import * as store from './noderole-store.ts';
import { RoleGraph } from './role-graph.ts';
import { type OpenRun, readOpenRuns } from './run-store.ts';
import type { AnnealerSettings } from './settings.ts';

interface AnnealerDeps {
  database: Queryable;
  bus: Bus;
  random: Random;
  definitions: Definitions;
  servers: Pick<Servers, 'statuses'>;
  config: AnnealerSettings;
  offerDuties(): void;
}

interface BindRequest {
  deploymentId: string;
  role: string;
  servers: readonly string[];
  /** Proposed for the noderoles of this role. */
  data: JsonObject | undefined;
}

interface ExplainedNoderole {
  noderole: store.WholeNoderole;
  explanation: string;
  run: OpenRun | undefined;
}

/** Plans for a graph that changes in between are made again. */
const BIND_ATTEMPTS = 5;
const MAX_NODEROLES = 100_000;

export class Annealer {
  readonly #deps: AnnealerDeps;

  constructor(deps: AnnealerDeps) {
    this.#deps = deps;
  }

  /**
   * Binds a role to servers, all of them or none. Repeating it changes nothing but the data.
   *
   * @throws ResourceNotFoundError, ServerNotFoundError, RoleNotBindableError,
   * ConflictingRolesError, TooManyNoderolesError, NoderolesChangedError
   */
  async bind(request: BindRequest): Promise<{ noderoles: store.NoderoleRow[]; created: number }> {
    const { database } = this.#deps;
    await this.#requireServers(request.servers);
    for (let attempt = 1; attempt <= BIND_ATTEMPTS; attempt += 1) {
      const planned = await this.#plan(request);
      if (planned.plan.noderoles.length > 0 && !(await store.bindNoderoles(database, planned.version, planned.plan)))
        continue;
      if (request.data !== undefined)
        for (const id of planned.ids) await store.proposeNoderoleData(database, id, request.data);
      return { noderoles: await store.readNoderoles(database, planned.ids), created: planned.plan.noderoles.length };
    }
    throw new NoderolesChangedError();
  }

  /** @throws ResourceNotFoundError */
  async commit(deploymentId: string, actor: string | undefined): Promise<{ committed: number; due: number }> {
    await this.#deps.definitions.deployments.get(deploymentId);
    const committed = await store.commitDeployment(this.#deps.database, deploymentId, actor);
    this.#deps.offerDuties();
    this.#announce();
    return committed;
  }

  list(filter: store.NoderoleFilter, limit: number): Promise<store.NoderoleRow[]> {
    return store.listNoderoles(this.#deps.database, filter, limit);
  }

  /** @throws ResourceNotFoundError */
  async get(id: string): Promise<ExplainedNoderole> {
    const { database, definitions, servers, config: settings } = this.#deps;
    const noderole = await store.readNoderole(database, id);
    if (noderole === undefined) throw noSuchNoderole(id);
    const { server_uuid: serverUuid } = noderole;
    const open = await readOpenRuns(database);
    const run = open.find((each) => each.serverUuid === serverUuid);
    const explanation = explainNoderole({
      noderole,
      role: (await definitions.readRoles()).get(noderole.role),
      isServerRunning: toRunning((await servers.statuses([serverUuid])).get(serverUuid)?.status),
      openRun: run,
      openRuns: open.length,
      settings,
    });
    return { noderole, explanation, run: run?.noderoleId === id ? run : undefined };
  }

  /** @throws ResourceNotFoundError */
  async proposeData(id: string, data: JsonObject): Promise<void> {
    if (!(await store.proposeNoderoleData(this.#deps.database, id, data))) throw noSuchNoderole(id);
  }

  /** @throws ResourceNotFoundError */
  async propose(id: string): Promise<void> {
    if (!(await store.proposeNoderole(this.#deps.database, id))) throw noSuchNoderole(id);
  }

  /** @throws ResourceNotFoundError, NoderoleTransitionError */
  async retry(id: string): Promise<void> {
    const answer = await store.retryNoderole(this.#deps.database, id);
    if (answer === undefined) throw noSuchNoderole(id);
    if (!answer.isDone) {
      const { state, culprit } = answer;
      throw new NoderoleTransitionError(
        id,
        state,
        culprit === null ? 'only one in error is tried again' : `retry noderole ${culprit}, which is in error`,
      );
    }
    this.#announce();
  }

  /** @throws ResourceNotFoundError, NoderoleInUseError */
  async delete(id: string): Promise<void> {
    const outcome = await store.deleteNoderole(this.#deps.database, id);
    if (outcome === undefined) throw noSuchNoderole(id);
    if (outcome === 'required') throw new NoderoleInUseError(id, 'others require it; delete them first');
    if (outcome === 'runs') throw new NoderoleInUseError(id, 'it runs; propose it, and wait for the end of its run');
    this.#announce();
  }

  counts(): Promise<Record<string, number>> {
    return store.countNoderoles(this.#deps.database);
  }

  async #plan({ deploymentId, role, servers }: BindRequest) {
    const { database, definitions, random, config } = this.#deps;
    const path = await definitions.deploymentPath(deploymentId);
    const roles = new RoleGraph([...(await definitions.readRoles()).values()].map(toDefinition));
    const deploymentIds = path.map(({ uuid }) => uuid);
    const { version, bound, total } = await store.readGraph(database, { deploymentIds, servers });
    const isJigActive = (jig: string) => (config.annealerJigs as readonly string[]).includes(jig);
    const planner = new BindingPlanner({ roles, deploymentIds, bound, isJigActive, newId: () => random.uuid() });
    const ids = servers.map((server) => planner.bind(role, server).id);
    const plan = planner.plan();
    if (total + plan.noderoles.length > MAX_NODEROLES) throw new TooManyNoderolesError(MAX_NODEROLES);
    return { version, plan, ids };
  }

  async #requireServers(uuids: readonly string[]): Promise<void> {
    const found = await this.#deps.servers.statuses(uuids);
    const missing = uuids.find((uuid) => !found.has(uuid));
    if (missing !== undefined) throw new ServerNotFoundError(missing);
  }

  /** For the instance that carries the graph out: look again. */
  #announce(): void {
    this.#deps.bus.publish(ANNEALER_TOPIC, {});
  }
}

const noSuchNoderole = (id: string) => new ResourceNotFoundError(`There is no noderole ${id}`);

const toRunning = (status: string | undefined): boolean | undefined =>
  status === undefined ? undefined : status === 'running';
