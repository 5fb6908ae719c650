/** Graphs of noderoles for tests of their SQL. */
import { createHash, randomUUID } from 'node:crypto';
import {
  ANNEALER_DUTY,
  bindNoderoles,
  commitDeployment,
  readGraph,
} from '../../../lib/control/annealer/noderole-store.ts';
import { claimNoderoles, endNoderoleRuns, type RunEnd } from '../../../lib/control/annealer/run-store.ts';
import type { HeldDuty } from '../../../lib/control/duty/duty.ts';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import type { NoderoleState } from '../../../lib/protocol/api/annealer.ts';
import { freshDatabase, type Teardown } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';

export const DEPLOYMENT = '0c000000-0000-4000-8000-000000000000';

/** A uuid for a name, so that a test can speak in names. */
export function idOf(name: string): string {
  const hex = createHash('sha256').update(name).digest('hex');
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-4${hex.slice(13, 16)}-8${hex.slice(17, 20)}-${hex.slice(20, 32)}`;
}

/**
 * `{ c: ['a', 'b'] }`: noderole c with these parents. A name may say its server: `web@s1`;
 * otherwise it has its own.
 */
export type Shape = Readonly<Record<string, readonly string[]>>;

/** Binds a graph in which parents come before their children. */
export async function bindGraph(database: Queryable, shape: Shape, deploymentId = DEPLOYMENT): Promise<void> {
  const cohorts = new Map<string, number>();
  for (const [name, parents] of Object.entries(shape))
    cohorts.set(name, 1 + Math.max(-1, ...parents.map((parent) => cohorts.get(parent) ?? 0)));
  const { version } = await readGraph(database, { deploymentIds: [], servers: [], roles: { whole: [], single: [] } });
  const done = await bindNoderoles(database, version, {
    noderoles: Object.keys(shape).map((name) => ({
      id: idOf(name),
      role: roleOf(name),
      serverUuid: serverOf(name),
      deploymentId,
      cohort: cohorts.get(name) ?? 0,
    })),
    edges: Object.entries(shape).flatMap(([name, parents]) =>
      parents.map((parent) => ({ parentId: idOf(parent), childId: idOf(name), isOrderOnly: false })),
    ),
  });
  if (!done) throw new Error('the graph has changed meanwhile');
}

export const roleOf = (name: string): string => name.split('@')[0] ?? name;
export const serverOf = (name: string): string => idOf(`server of ${name.split('@')[1] ?? name}`);

/** The states of noderoles by their names. */
export async function statesOf(database: Queryable, ...names: string[]): Promise<Record<string, NoderoleState>> {
  const { rows } = await database.query<{ id: string; state: NoderoleState }>('select id, state from cnapi_noderoles');
  const states = new Map(rows.map(({ id, state }) => [id, state]));
  return Object.fromEntries(names.map((name) => [name, states.get(idOf(name)) ?? 'proposed']));
}

/** Servers that run, as the roster says. */
export async function runServers(database: Queryable, names: readonly string[]): Promise<void> {
  await database.query(
    `insert into cnapi_roster_authority (server_uuid, run, epoch, status, reason, since)
       select s, gen_random_uuid(), 1, 'running', 'session-began', cnapi_now() from unnest($1::uuid[]) as s
       on conflict do nothing`,
    [[...new Set(names.map(serverOf))]],
  );
}

/** The holder of the annealer's duty, as a test drives it. */
export class Holder {
  readonly duty: HeldDuty;
  readonly #database: Queryable;
  /** The run of each noderole that it has claimed. */
  readonly #runs = new Map<string, string>();

  constructor(database: Queryable, duty: HeldDuty) {
    this.#database = database;
    this.duty = duty;
  }

  /** Claims what is due; returns the names. */
  async claim(
    names: readonly string[],
    { cap = 100, most = 100, maxFailures = 1 as number | null, retryTicks = 0 } = {},
  ) {
    const claimed = await claimNoderoles(this.#database, this.duty, {
      runIds: Array.from({ length: most }, () => randomUUID()),
      cap,
      policies: [...new Set(names.map(roleOf))].map((role) => ({
        role,
        maxFailures: maxFailures ?? undefined,
        retryTicks,
      })),
    });
    const known = new Map(names.map((name) => [idOf(name), name]));
    for (const { runId, noderoleId } of claimed) this.#runs.set(known.get(noderoleId) ?? '', runId);
    return claimed.map(({ noderoleId }) => known.get(noderoleId) ?? noderoleId);
  }

  runOf(name: string): string {
    return this.#runs.get(name) ?? '';
  }

  async succeed(...names: string[]): Promise<void> {
    await this.end(names.map((name) => ({ runId: this.runOf(name), outcome: 'succeeded', wall: {} })));
  }

  async fail(...names: string[]): Promise<void> {
    const error = { code: 'TaskError', message: 'it broke' };
    await this.end(names.map((name) => ({ runId: this.runOf(name), outcome: 'failed', error })));
  }

  end(ends: readonly RunEnd[]): Promise<void> {
    return endNoderoleRuns(this.#database, this.duty, ends);
  }
}

/** Binds and commits the graph, and claims the annealer's duty. */
export async function committedGraph(database: Queryable, shape: Shape): Promise<Holder> {
  await bindGraph(database, shape);
  await commitDeployment(database, DEPLOYMENT, undefined);
  await runServers(database, Object.keys(shape));
  return holdAnnealer(database);
}

export async function holdAnnealer(database: Queryable): Promise<Holder> {
  const [claimed] = await claimDuties(database, await liveRun(database), { kinds: [ANNEALER_DUTY], limit: 1 });
  if (claimed === undefined) throw new Error('the duty of the annealer is not free');
  const { wasTakenOver: _, takeovers: __, ...duty } = claimed;
  return new Holder(database, duty);
}

/** A database of its own with the graph, committed, and the holder of its duty. */
export async function graphInDatabase(t: Teardown, shape: Shape) {
  const { database, url } = await freshDatabase(t, { migrations });
  const holder = await committedGraph(database, shape);
  const names = Object.keys(shape);
  return {
    database,
    url,
    holder,
    states: (...some: string[]) => statesOf(database, ...(some.length > 0 ? some : names)),
    claim: (options = {}) => holder.claim(names, options),
    /** Claims and ends what is due until nothing is, with success. */
    async anneal() {
      for (let due = await holder.claim(names); due.length > 0; due = await holder.claim(names))
        await holder.succeed(...due);
    },
  };
}
