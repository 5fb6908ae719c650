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

  /** Roles that the role requires or comes after, those that provide them included. */
  parentsOf(name: string): readonly string[] {
    const role = this.#roles.get(name);
    return role === undefined ? [] : [...role.requires, ...role.runsAfter].flatMap((parent) => this.satisfying(parent));
  }

  /** The names of a cycle, its first name repeated at its end; undefined if there is none. */
  findCycle(): readonly string[] | undefined {
    const done = new Set<string>();
    for (const name of [...this.#roles.keys()].toSorted()) {
      const cycle = this.#cycleFrom(name, done);
      if (cycle !== undefined) return cycle;
    }
    return undefined;
  }

  /** Without recursion: a chain of roles may be as long as there are roles. */
  #cycleFrom(start: string, done: Set<string>): readonly string[] | undefined {
    const path: { name: string; left: string[] }[] = [];
    const inPath = new Set<string>();
    const enter = (name: string) => {
      path.push({ name, left: [...this.parentsOf(name)] });
      inPath.add(name);
    };
    if (!done.has(start)) enter(start);
    for (let top = path.at(-1); top !== undefined; top = path.at(-1)) {
      const next = top.left.shift();
      if (next === undefined) {
        path.pop();
        inPath.delete(top.name);
        done.add(top.name);
      } else if (inPath.has(next)) {
        const names = path.map(({ name }) => name);
        return [...names.slice(names.indexOf(next)), next];
      } else if (!done.has(next)) {
        enter(next);
      }
    }
    return undefined;
  }

  /**
   * A role that this one requires, directly or not, and that neither exists nor is provided;
   * undefined if it can be bound.
   */
  findMissing(name: string): { missing: string; neededBy: string; hint: string } | undefined {
    const seen = new Set([name]);
    for (const needer of seen)
      for (const required of this.#roles.get(needer)?.requires ?? []) {
        const found = this.satisfying(required);
        if (found.length === 0)
          return { missing: required, neededBy: needer, hint: suggestion(required, [...this.#roles.keys()]) };
        for (const one of found) seen.add(one);
      }
    return undefined;
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
