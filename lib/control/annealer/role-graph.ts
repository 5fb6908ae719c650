/**
 * The roles as a graph: which roles each one requires. Pure. Roles are bound late: a role may
 * require one that does not exist yet, and cannot be bound until it does.
 */
import { suggestion } from '../../platform/suggestion.ts';
import type { ROLE_FLAGS } from '../../protocol/api/documents/annealer.ts';

/** What binding needs of a role. Names are those of roles. */
export interface RoleDefinition {
  name: string;
  jig: string;
  flags: readonly RoleFlag[];
  /** Each must be bound first, and is bound to the same server if it is bound nowhere in scope. */
  requires: readonly string[];
  /** Like `requires`, if it is bound at all; binds nothing, and does not stop its deletion. */
  runsAfter: readonly string[];
  /** No server may have both roles. */
  conflicts: readonly string[];
  /** Other roles that this one stands in for. */
  provides: readonly string[];
}

type RoleFlag = (typeof ROLE_FLAGS)[number];

export class RoleGraph {
  readonly #roles: ReadonlyMap<string, RoleDefinition>;
  readonly #providers = new Map<string, string[]>();

  constructor(roles: Iterable<RoleDefinition>) {
    this.#roles = new Map([...roles].map((role) => [role.name, role]));
    for (const { name, provides } of this.#roles.values())
      for (const provided of provides) this.#providers.set(provided, [...(this.#providers.get(provided) ?? []), name]);
  }

  get(name: string): RoleDefinition | undefined {
    return this.#roles.get(name);
  }

  /** The role of this name, and those that provide it, in order of their names. */
  satisfying(name: string): readonly string[] {
    const providers = (this.#providers.get(name) ?? []).toSorted();
    return this.#roles.has(name) ? [name, ...providers.filter((provider) => provider !== name)] : providers;
  }

  /** The names that the role requires or comes after, whoever satisfies them. */
  #needs(name: string): readonly string[] {
    const role = this.#roles.get(name);
    return role === undefined ? [] : [...role.requires, ...role.runsAfter];
  }

  /**
   * A cycle of roles that is reached from this one, its first name repeated at its end; undefined
   * if there is none. Without recursion, because a chain of roles may be as long as there are
   * roles; each required name is expanded once, because many roles may provide it.
   */
  findCycleFrom(start: string): readonly string[] | undefined {
    const done = new Set<string>();
    const path: { name: string; next: Iterator<string> }[] = [];
    const places = new Map<string, number>();
    const enter = (name: string) => {
      places.set(name, path.length);
      path.push({ name, next: this.#steps(name) });
    };
    enter(start);
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const { value: next, done: isOver } = top.next.next();
      if (isOver) {
        path.pop();
        places.delete(top.name);
        done.add(top.name);
        continue;
      }
      const place = places.get(next);
      if (place !== undefined) return toRoles([...path.slice(place).map(({ name }) => name), next]);
      if (!done.has(next)) enter(next);
    }
    return undefined;
  }

  /** From a role to the names that it needs; from a needed name to the roles that satisfy it. */
  *#steps(node: string): Generator<string> {
    if (node.startsWith(NEED)) yield* this.satisfying(node.slice(NEED.length));
    else for (const needed of this.#needs(node)) yield `${NEED}${needed}`;
  }

  /**
   * A role that this one requires, directly or not, and that neither exists nor is provided;
   * undefined if it can be bound.
   */
  findMissing(name: string): { missing: string; neededBy: string; hint: string } | undefined {
    const seen = new Set([name]);
    const needed = new Set<string>();
    for (const needer of seen)
      for (const required of this.#roles.get(needer)?.requires ?? []) {
        if (needed.has(required)) continue;
        needed.add(required);
        const found = this.satisfying(required);
        if (found.length === 0)
          return { missing: required, neededBy: needer, hint: suggestion(required, [...this.#roles.keys()]) };
        for (const one of found) seen.add(one);
      }
    return undefined;
  }

  /** `; did you mean NAME?`, or nothing. */
  hintFor(name: string): string {
    return suggestion(name, [...this.#roles.keys()]);
  }

  /**
   * Roles whose noderoles matter for a new one of this role: those that it requires or comes after,
   * directly or not, and what requires a cluster among all these. `whole`: each of their noderoles;
   * `single`: one in each deployment is enough.
   */
  scopeOf(name: string): { whole: readonly string[]; single: readonly string[] } {
    const above = new Set([name]);
    const needed = new Set<string>();
    for (const role of above)
      for (const need of this.#needs(role)) {
        if (needed.has(need)) continue;
        needed.add(need);
        for (const parent of this.satisfying(need)) above.add(parent);
      }
    const clusters = [...above].filter((role) => this.#roles.get(role)?.flags.includes('cluster'));
    const satisfied = new Set(clusters.flatMap((role) => this.namesOf(role)));
    const below = [...this.#roles.keys()].filter((role) => this.#needs(role).some((need) => satisfied.has(need)));
    const whole = new Set([...clusters, ...below]);
    return { whole: [...whole], single: [...above].filter((role) => !whole.has(role)) };
  }

  /** The names that a noderole of this role satisfies. */
  namesOf(name: string): readonly string[] {
    return [name, ...(this.#roles.get(name)?.provides ?? [])];
  }

  /** Whether no server may have both roles. */
  isConflict(one: string, other: string): boolean {
    const [first, second] = [this.#roles.get(one), this.#roles.get(other)];
    if (first === undefined || second === undefined || one === other) return false;
    const names = (role: RoleDefinition) => [role.name, ...role.provides];
    return (
      names(second).some((name) => first.conflicts.includes(name) || first.provides.includes(name)) ||
      names(first).some((name) => second.conflicts.includes(name) || second.provides.includes(name))
    );
  }
}

/** The cycle that these edges between roles form; undefined if there is none. */
export function findEdgeCycle(edges: readonly { parent: string; child: string }[]): readonly string[] | undefined {
  const names = [...new Set(edges.flatMap(({ parent, child }) => [parent, child]))];
  const parents = Map.groupBy(edges, ({ child }) => child);
  const bare = { jig: '', flags: [], runsAfter: [], conflicts: [], provides: [] };
  const graph = new RoleGraph([
    ...names.map((name) => ({
      ...{ ...bare, name },
      requires: [...new Set((parents.get(name) ?? []).map(({ parent }) => parent))],
    })),
    // What requires all of them reaches each cycle.
    { ...bare, name: '', requires: names },
  ]);
  return graph.findCycleFrom('');
}

/** Marks a required name among the nodes of a search. Names of roles do not begin so. */
const NEED = '?';

/** The roles of a cycle of roles and needs, beginning and ending with the same role. */
function toRoles(cycle: readonly string[]): readonly string[] {
  const roles = cycle.filter((node) => !node.startsWith(NEED));
  return cycle[0]?.startsWith(NEED) ? [...roles, roles[0] ?? ''] : roles;
}
