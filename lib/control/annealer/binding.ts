/**
 * Binds roles to servers: which noderoles and edges are added. Pure (Crowbar 2.0, "How the noderole
 * graph is built", with the scopes that its text says are missing).
 *
 * A parent is found on the same server; or, unless its role is implicit, in the deployment or in
 * one above it; or it is bound to the same server. A role is bound to a server once, whatever the
 * deployment.
 */
import { ConflictingRolesError, RoleNotBindableError, TooManyNoderolesError } from './annealer-errors.ts';
import type { RoleDefinition, RoleGraph } from './role-graph.ts';

export interface BoundNoderole {
  id: string;
  role: string;
  serverUuid: string;
  deploymentId: string;
  /** 0 without parents, otherwise 1 more than that of any parent. */
  cohort: number;
}

interface NoderoleEdge {
  parentId: string;
  childId: string;
  /** Orders the two; it neither binds the parent nor stops its deletion. */
  isOrderOnly: boolean;
}

export interface BindingPlan {
  noderoles: readonly BoundNoderole[];
  edges: readonly NoderoleEdge[];
}

interface BindingDeps {
  roles: RoleGraph;
  /** From the deployment to the root: what is bound there may be a parent. */
  deploymentIds: readonly string[];
  /** All noderoles of the servers, and what the deployments have of `RoleGraph.scopeOf`. */
  bound: readonly BoundNoderole[];
  isJigActive(jig: string): boolean;
  newId(): string;
  /** How much one plan may add. */
  limits: { noderoles: number; edges: number };
}

/** One plan for any number of bindings. Each sees those before it. */
export class BindingPlanner {
  readonly #deps: BindingDeps;
  readonly #byServer = new Map<string, BoundNoderole[]>();
  readonly #byRole = new Map<string, BoundNoderole[]>();
  readonly #noderoles: BoundNoderole[] = [];
  readonly #edges: NoderoleEdge[] = [];
  /** Roles that can be bound, as far as it was asked. */
  readonly #bindable = new Map<string, RoleDefinition>();

  constructor(deps: BindingDeps) {
    this.#deps = deps;
    for (const noderole of deps.bound) this.#add(noderole);
  }

  /**
   * Returns the noderole that binds the role to the server, with what it needs, or the one that
   * exists. Nothing is planned if it throws.
   *
   * @throws RoleNotBindableError, ConflictingRolesError, TooManyNoderolesError
   */
  bind(role: string, serverUuid: string): BoundNoderole {
    const marks = [this.#noderoles.length, this.#edges.length] as const;
    try {
      return this.#bind(role, serverUuid);
    } catch (error) {
      this.#undo(...marks);
      throw error;
    }
  }

  plan(): BindingPlan {
    return { noderoles: this.#noderoles, edges: this.#edges };
  }

  #bind(name: string, serverUuid: string): BoundNoderole {
    const existing = this.#onServer(serverUuid).find(({ role }) => role === name);
    if (existing !== undefined) return existing;
    const role = this.#checkBindable(name);
    const parents = [
      ...role.requires.flatMap((required) =>
        this.#parents(required, serverUuid, role).map((parent) => ({ parent, isOrderOnly: false })),
      ),
      ...role.runsAfter.flatMap((earlier) =>
        this.#inScope(earlier, serverUuid).map((parent) => ({ parent, isOrderOnly: true })),
      ),
    ];
    this.#checkConflicts(role, serverUuid);
    const cohort = 1 + Math.max(-1, ...parents.map(({ parent }) => parent.cohort));
    const [deploymentId = ''] = this.#deps.deploymentIds;
    const noderole = { id: this.#deps.newId(), role: name, serverUuid, deploymentId, cohort };
    for (const { parent, isOrderOnly } of uniqueParents(parents))
      this.#addEdge({ parentId: parent.id, childId: noderole.id, isOrderOnly });
    const { noderoles: limit } = this.#deps.limits;
    if (this.#noderoles.length >= limit) throw new TooManyNoderolesError(`one request adds at most ${limit}`);
    this.#noderoles.push(noderole);
    this.#add(noderole);
    if (role.flags.includes('cluster')) this.#joinCluster(noderole);
    return noderole;
  }

  /** What already requires the cluster gets the new member as a parent, too. */
  #joinCluster({ id, role, deploymentId }: BoundNoderole): void {
    const { roles } = this.#deps;
    const satisfied = roles.namesOf(role);
    const isChild = (name: string) => roles.get(name)?.requires.some((required) => satisfied.includes(required));
    for (const [key, children] of this.#byRole)
      if (key.startsWith(`${deploymentId} `))
        for (const child of children)
          if (child.id !== id && isChild(child.role))
            this.#addEdge({ parentId: id, childId: child.id, isOrderOnly: false });
  }

  #addEdge(edge: NoderoleEdge): void {
    const { edges: limit } = this.#deps.limits;
    if (this.#edges.length >= limit) throw new TooManyNoderolesError(`one request adds at most ${limit} edges`);
    this.#edges.push(edge);
  }

  #checkBindable(name: string): RoleDefinition {
    const known = this.#bindable.get(name);
    if (known !== undefined) return known;
    const { roles, isJigActive } = this.#deps;
    const role = roles.get(name);
    if (role === undefined) throw new RoleNotBindableError(name, `there is no such role${roles.hintFor(name)}`);
    if (role.flags.includes('abstract')) {
      const providers = roles.satisfying(name).filter((provider) => provider !== name);
      const instead = providers.length === 0 ? 'no role provides it' : `bind ${providers.join(' or ')}`;
      throw new RoleNotBindableError(name, `it is abstract; ${instead}`);
    }
    const missing = roles.findMissing(name);
    if (missing !== undefined)
      throw new RoleNotBindableError(
        name,
        `${missing.neededBy} requires ${missing.missing}, which does not exist${missing.hint}`,
      );
    if (!isJigActive(role.jig))
      throw new RoleNotBindableError(name, `the jig ${role.jig} is not active (annealerJigs in the configuration)`);
    this.#bindable.set(name, role);
    return role;
  }

  /** The parents for a required role: those in scope, or one that is bound now. */
  #parents(required: string, serverUuid: string, { name }: RoleDefinition): readonly BoundNoderole[] {
    const found = this.#inScope(required, serverUuid);
    if (found.length > 0) return found;
    const { roles } = this.#deps;
    const concrete = roles.get(required);
    if (concrete !== undefined && !concrete.flags.includes('abstract')) return [this.#bind(required, serverUuid)];
    const [provider, ...others] = roles.satisfying(required).filter((candidate) => candidate !== required);
    if (provider === undefined || others.length > 0)
      throw new RoleNotBindableError(
        name,
        `it requires ${required}, which ${[provider, ...others].join(' and ')} provide; bind one of them first`,
      );
    return [this.#bind(provider, serverUuid)];
  }

  /** On the same server, else in the nearest deployment that has one; all of a cluster there. */
  #inScope(required: string, serverUuid: string): readonly BoundNoderole[] {
    const { roles, deploymentIds } = this.#deps;
    const names = roles.satisfying(required);
    const isCluster = names.some((name) => roles.get(name)?.flags.includes('cluster'));
    const here = this.#onServer(serverUuid).filter(({ role }) => names.includes(role));
    if (here.length > 0 && !isCluster) return here.slice(0, 1);
    if (roles.get(required)?.flags.includes('implicit')) return here.slice(0, 1);
    for (const deploymentId of deploymentIds) {
      const found = names
        .flatMap((name) => this.#byRole.get(keyOf(deploymentId, name)) ?? [])
        .filter(({ role }) => !roles.get(role)?.flags.includes('implicit'));
      if (found.length > 0) return isCluster ? found.toSorted(byPlace) : [found.reduce(firstByPlace)];
    }
    return here.slice(0, 1);
  }

  #checkConflicts({ name }: RoleDefinition, serverUuid: string): void {
    const other = this.#onServer(serverUuid).find(({ role }) => this.#deps.roles.isConflict(name, role));
    if (other !== undefined) throw new ConflictingRolesError(name, other.role, serverUuid);
  }

  #onServer(serverUuid: string): readonly BoundNoderole[] {
    return this.#byServer.get(serverUuid) ?? [];
  }

  #add(noderole: BoundNoderole): void {
    const { serverUuid, deploymentId, role } = noderole;
    pushTo(this.#byServer, serverUuid, noderole);
    pushTo(this.#byRole, keyOf(deploymentId, role), noderole);
  }

  #undo(noderoles: number, edges: number): void {
    this.#edges.length = edges;
    for (const noderole of this.#noderoles.splice(noderoles).reverse()) {
      this.#byServer.get(noderole.serverUuid)?.pop();
      this.#byRole.get(keyOf(noderole.deploymentId, noderole.role))?.pop();
    }
  }
}

/** Each parent once; one that is required is not soft. */
function uniqueParents(
  parents: readonly { parent: BoundNoderole; isOrderOnly: boolean }[],
): readonly { parent: BoundNoderole; isOrderOnly: boolean }[] {
  const hardFirst = parents.toSorted((one, other) => Number(one.isOrderOnly) - Number(other.isOrderOnly));
  return [...new Map(hardFirst.toReversed().map((each) => [each.parent.id, each])).values()].reverse();
}

/** The same answer whatever the order in which rows were read. */
const byPlace = (one: BoundNoderole, other: BoundNoderole): number =>
  one.cohort - other.cohort || (one.id < other.id ? -1 : 1);

const firstByPlace = (one: BoundNoderole, other: BoundNoderole): BoundNoderole =>
  byPlace(one, other) <= 0 ? one : other;

const keyOf = (deploymentId: string, role: string): string => `${deploymentId} ${role}`;

function pushTo<Value>(lists: Map<string, Value[]>, key: string, value: Value): void {
  const list = lists.get(key);
  if (list === undefined) lists.set(key, [value]);
  else list.push(value);
}
