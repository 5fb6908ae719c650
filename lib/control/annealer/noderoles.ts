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
import { type AnnealerDocuments, toRoleDefinition } from './annealer-documents.ts';
import {
  NoderoleInUseError,
  NoderolesChangedError,
  NoderoleTransitionError,
  RoleNotBindableError,
  TooManyNoderolesError,
} from './annealer-errors.ts';
import { ANNEALER_TOPIC } from './annealer-topics.ts';
import { type BindingPlan, BindingPlanner } from './binding.ts';
import { explainNoderole } from './explain.ts';
import * as store from './noderole-store.ts';
import { findEdgeCycle, RoleGraph } from './role-graph.ts';
import type { AnnealerSettings } from './settings.ts';

interface NoderolesDeps {
  database: Queryable;
  bus: Bus;
  random: Random;
  documents: AnnealerDocuments;
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
  noderole: store.NoderoleDetails;
  explanation: string;
  run: store.ServerRun | undefined;
}

/** Plans for a graph that changes in between are made again. */
const BIND_ATTEMPTS = 5;
/** The children of one noderole, which may be all others, change in one statement. */
const MAX_NODEROLES = 20_000;
/** A commit is one statement. */
const MAX_OF_DEPLOYMENT = 10_000;
/** A plan is made and stored in about a second. */
const MAX_NEW_NODEROLES = 10_000;
const MAX_NEW_EDGES = 50_000;

export class Noderoles {
  readonly #deps: NoderolesDeps;

  constructor(deps: NoderolesDeps) {
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
      const { version, plan, ids, ownIds } = await this.#plan(request);
      const proposed = request.data === undefined ? undefined : { ids: ownIds, data: request.data };
      const isChange = plan.noderoles.length > 0 || proposed !== undefined;
      if (isChange && !(await store.bindNoderoles(database, version, plan, proposed))) continue;
      return { noderoles: await store.readNoderoles(database, ids), created: plan.noderoles.length };
    }
    throw new NoderolesChangedError();
  }

  /** @throws ResourceNotFoundError */
  async commit(deploymentId: string, actor: string | undefined): Promise<{ committed: number; due: number }> {
    await this.#deps.documents.deployments.get(deploymentId);
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
    const { database, documents, servers, config: settings } = this.#deps;
    const noderole = await store.readNoderole(database, id);
    if (noderole === undefined) throw noSuchNoderole(id);
    const { server_uuid: serverUuid } = noderole;
    const { run, openRuns } = await store.readServerRun(database, serverUuid);
    const explanation = explainNoderole({
      noderole,
      role: await documents.findRole(noderole.role),
      isServerRunning: toRunning((await servers.statuses([serverUuid])).get(serverUuid)?.status),
      openRun: run,
      openRuns,
      settings,
    });
    return { noderole, explanation, run: run?.noderoleId === id ? run : undefined };
  }

  /** @throws ResourceNotFoundError */
  async proposeData(id: string, data: JsonObject): Promise<void> {
    if ((await store.proposeNoderoleData(this.#deps.database, [id], data)) === 0) throw noSuchNoderole(id);
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
      const { state, blockedBy } = answer;
      throw new NoderoleTransitionError(
        id,
        state,
        blockedBy === null ? 'only one in error is tried again' : `retry noderole ${blockedBy}, which is in error`,
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
    const { database, documents, random, config } = this.#deps;
    const path = await documents.deploymentPath(deploymentId);
    const roles = new RoleGraph([...(await documents.readRoles()).values()].map(toRoleDefinition));
    // Each change of a role is checked, but two at the same time may make a cycle together.
    const cycle = roles.findCycleFrom(role);
    if (cycle !== undefined) throw new RoleNotBindableError(role, `roles form a cycle: ${cycle.join(' requires ')}`);
    const deploymentIds = path.map(({ uuid }) => uuid);
    const scope = { deploymentIds, servers, roles: roles.scopeOf(role) };
    const { version, bound, total, inDeployment } = await store.readGraph(database, scope);
    const planner = new BindingPlanner({
      ...{ roles, deploymentIds, bound, newId: () => random.uuid() },
      isJigActive: (jig) => (config.annealerJigs as readonly string[]).includes(jig),
      limits: { noderoles: MAX_NEW_NODEROLES, edges: MAX_NEW_EDGES },
    });
    const noderoles = servers.map((server) => planner.bind(role, server));
    const ids = noderoles.map(({ id }) => id);
    // What another deployment has bound keeps its data.
    const ownIds = noderoles.filter((each) => each.deploymentId === deploymentId).map(({ id }) => id);
    const plan = planner.plan();
    if (total + plan.noderoles.length > MAX_NODEROLES)
      throw new TooManyNoderolesError(`there are at most ${MAX_NODEROLES}; delete some that are not needed`);
    if (inDeployment + plan.noderoles.length > MAX_OF_DEPLOYMENT)
      throw new TooManyNoderolesError(`a deployment has at most ${MAX_OF_DEPLOYMENT}; use another one below it`);
    await this.#checkCycle(role, plan);
    return { version, plan, ids, ownIds };
  }

  /**
   * Only a new member of a cluster becomes a parent of what exists. Edges outlive the roles as they
   * were, so the roles as they are now do not show each cycle.
   */
  async #checkCycle(role: string, { noderoles, edges }: BindingPlan): Promise<void> {
    const added = new Map(noderoles.map((noderole) => [noderole.id, noderole.role]));
    if (edges.every(({ childId }) => added.has(childId))) return;
    const existing = await store.readNoderoles(
      this.#deps.database,
      edges.flatMap(({ parentId, childId }) => [parentId, childId]).filter((id) => !added.has(id)),
    );
    const roleOf = new Map([...added, ...existing.map((noderole) => [noderole.id, noderole.role] as const)]);
    const pairs = edges.map(({ parentId, childId }) => ({
      parent: roleOf.get(parentId) ?? '',
      child: roleOf.get(childId) ?? '',
    }));
    const cycle = findEdgeCycle([...(await store.readRoleEdges(this.#deps.database)), ...pairs]);
    if (cycle !== undefined)
      throw new RoleNotBindableError(
        role,
        `with noderoles that were bound before roles changed, ${cycle.join(' requires ')}`,
      );
  }

  async #requireServers(uuids: readonly string[]): Promise<void> {
    const found = await this.#deps.servers.statuses(uuids);
    const missing = uuids.find((uuid) => !found.has(uuid));
    if (missing !== undefined) throw new ServerNotFoundError(missing);
  }

  /** Makes the instance that carries the graph out look again. */
  #announce(): void {
    this.#deps.bus.publish(ANNEALER_TOPIC, {});
  }
}

const noSuchNoderole = (id: string) => new ResourceNotFoundError(`There is no noderole ${id}`);

const toRunning = (status: string | undefined): boolean | undefined =>
  status === undefined ? undefined : status === 'running';
