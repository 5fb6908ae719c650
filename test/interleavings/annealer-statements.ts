/** Rows of the table: noderoles and their runs; and the graph of the world in which they run. */
import { randomUUID } from 'node:crypto';
import {
  ANNEALER_DUTY,
  bindNoderoles,
  commitDeployment,
  countNoderoles,
  deleteNoderole,
  hasNoderolesOf,
  listNoderoles,
  proposeNoderole,
  proposeNoderoleData,
  readGraph,
  readNoderole,
  readNoderoles,
  readRoleEdges,
  readServerRun,
  retryNoderole,
} from '../../lib/control/annealer/noderole-store.ts';
import {
  beginNoderoleTasks,
  claimNoderoles,
  deleteEndedNoderoleRuns,
  endNoderoleRuns,
  isSomeNoderoleDue,
  readOpenRuns,
  readRunData,
  readRunInputs,
} from '../../lib/control/annealer/run-store.ts';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import { claimDuties } from '../../lib/control/duty/duty-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import {
  type CallOf,
  type Graph,
  type NoderoleKind,
  reads,
  type Seat,
  type Statement,
  type World,
  writes,
} from './statement.ts';

const ERROR = { code: 'TaskError', message: 'it broke' };
/** The order in which they are bound, with their servers (by place) and parents. */
const SHAPE: readonly (readonly [NoderoleKind, number, readonly NoderoleKind[]])[] = [
  ['left', 0, []],
  ['right', 1, []],
  ['failed', 2, []],
  ['child', 2, ['left', 'right']],
  ['grandchild', 1, ['child', 'failed']],
  ['due', 2, []],
  ['proposed', 0, ['left']],
];

const policies = SHAPE.map(([role]) => ({ role, maxFailures: 1, retryTicks: 0 }));
const newRuns = () => SHAPE.map(() => randomUUID());

/**
 * Two parents that run, each on a server of its own, with a child that waits for both; one in error
 * with a descendant; one that is due; and one that is proposed.
 */
export async function createGraph(database: Queryable, run: string, seats: readonly Seat[]): Promise<Graph> {
  const deploymentId = randomUUID();
  const noderoles = Object.fromEntries(SHAPE.map(([kind]) => [kind, randomUUID()])) as Graph['noderoles'];
  const cohorts = new Map<NoderoleKind, number>();
  for (const [kind, , parents] of SHAPE)
    cohorts.set(kind, 1 + Math.max(-1, ...parents.map((parent) => cohorts.get(parent) ?? 0)));
  const bind = async (kinds: readonly NoderoleKind[]) => {
    const { version } = await readGraph(database, { deploymentIds: [], servers: [], roles: { whole: [], single: [] } });
    const rows = SHAPE.filter(([kind]) => kinds.includes(kind));
    await bindNoderoles(database, version, {
      noderoles: rows.map(([role, place]) => ({
        ...{ id: noderoles[role], role, deploymentId, cohort: cohorts.get(role) ?? 0 },
        serverUuid: seats[place]?.serverUuid ?? '',
      })),
      edges: rows.flatMap(([kind, , parents]) =>
        parents.map((parent) => ({ parentId: noderoles[parent], childId: noderoles[kind], isOrderOnly: false })),
      ),
    });
  };
  await bind(['left', 'right', 'failed', 'child', 'grandchild']);
  await commitDeployment(database, deploymentId, undefined);
  const [duty] = await claimDuties(database, run, { kinds: [ANNEALER_DUTY], limit: 1 });
  if (duty === undefined) throw new Error('the duty of the annealer is not free');
  const claimed = await claimNoderoles(database, duty, { runIds: newRuns(), cap: 10, policies });
  const runOf = (kind: NoderoleKind) => claimed.find(({ noderoleId }) => noderoleId === noderoles[kind])?.runId ?? '';
  await endNoderoleRuns(database, duty, [{ runId: runOf('failed'), outcome: 'failed', error: ERROR }]);
  await database.query(
    `update cnapi_noderole_runs set ended_at = ended_at - interval '3 days' where ended_at is not null`,
  );
  await bind(['due']);
  await commitDeployment(database, deploymentId, undefined);
  await bind(['proposed']);
  const { version } = await readGraph(database, { deploymentIds: [], servers: [], roles: { whole: [], single: [] } });
  return { duty, deploymentId, version, noderoles, runs: { left: runOf('left'), right: runOf('right') } };
}

/** Rows that a third session can lock. */
export function graphHoldsOf(graph: Graph | undefined): Record<string, string> {
  if (graph === undefined) return {};
  const { left, child } = graph.noderoles;
  const row = (id: string) => `select 1 from cnapi_noderoles where id = '${id}' for update`;
  return { 'a parent': row(left), 'its child': row(child), 'the graph': 'select 1 from cnapi_annealer for update' };
}

const bind: CallOf<Parameters<typeof bindNoderoles> extends [Queryable, ...infer Args] ? Args : never, boolean> = {
  args({ graph, seat }) {
    if (graph === undefined) return undefined;
    const id = randomUUID();
    const { left, right } = graph.noderoles;
    const noderole = { id, role: 'new', serverUuid: seat.serverUuid, deploymentId: graph.deploymentId, cohort: 1 };
    const edges = [left, right].map((parentId) => ({ parentId, childId: id, isOrderOnly: false }));
    return [graph.version, { noderoles: [noderole], edges }];
  },
  exclusive: (isBound, version) => (isBound ? [`version ${version} of the graph`] : []),
};

/** A new member of a cluster, of a later cohort than the child that gets it as a parent. */
const join: typeof bind = {
  args({ graph, seat }) {
    if (graph === undefined) return undefined;
    const id = randomUUID();
    const noderole = { id, role: 'new', serverUuid: seat.serverUuid, deploymentId: graph.deploymentId, cohort: 4 };
    return [
      graph.version,
      { noderoles: [noderole], edges: [{ parentId: id, childId: graph.noderoles.child, isOrderOnly: false }] },
    ];
  },
};

const ofOne = (kind: NoderoleKind) => ({
  args: ({ graph }: World): [string] | undefined => graph && [graph.noderoles[kind]],
});

type Ends = Parameters<typeof endNoderoleRuns>[2];
type Kind = 'left' | 'right';

const end = (kinds: readonly Kind[], what: 'succeeded' | 'failed'): CallOf<[HeldDuty, Ends], void> => ({
  args({ graph, inOrder }) {
    if (graph === undefined) return undefined;
    const ends = inOrder(kinds).map((kind) => ({
      runId: graph.runs[kind],
      outcome: what,
      ...(what === 'failed' ? { error: ERROR } : { wall: { by: kind } }),
    }));
    return [graph.duty, ends];
  },
});

const begin: CallOf<[HeldDuty, Parameters<typeof beginNoderoleTasks>[2]], unknown[]> = {
  args({ graph }) {
    if (graph === undefined) return undefined;
    const runId = graph.runs.left;
    const task = { runId, taskId: randomUUID(), inputs: {}, params: { script: 'echo' }, maskedParams: undefined };
    return [graph.duty, [{ ...task, timeoutMs: 60_000 }]];
  },
  exclusive: (begun, _duty, [task]) => (begun.length > 0 ? [`the task of run ${task?.runId}`] : []),
};

const claim: CallOf<[HeldDuty, Parameters<typeof claimNoderoles>[2]], { noderoleId: string }[]> = {
  args: ({ graph }) => graph && [graph.duty, { runIds: newRuns(), cap: 3, policies }],
  exclusive: (claimed) => claimed.map(({ noderoleId }) => `the run of noderole ${noderoleId}`),
};

const ofGraph = <Args extends unknown[]>(args: (graph: Graph) => Args) => ({
  args: ({ graph }: World): Args | undefined => graph && args(graph),
});

const statements: readonly Statement[] = [
  writes(bindNoderoles, { 'below two that run': bind, 'above one that waits': join }),
  writes(proposeNoderoleData, {
    'of one that runs': ofGraph(({ noderoles }) => [[noderoles.left], { port: 1 }]),
    'of several': ofGraph(({ noderoles }) => [[noderoles.child, noderoles.left], { port: 1 }]),
  }),
  writes(proposeNoderole, { 'one that runs': ofOne('left'), 'one in error': ofOne('failed') }),
  writes(commitDeployment, { 'with a new noderole': ofGraph(({ deploymentId }) => [deploymentId, undefined]) }),
  writes(retryNoderole, { 'one in error': ofOne('failed') }),
  writes(deleteNoderole, { 'without children': ofOne('due'), 'of a parent that runs': ofOne('proposed') }),
  writes(claimNoderoles, { 'what is due': claim }),
  writes(beginNoderoleTasks, { 'of one that runs': begin }),
  writes(endNoderoleRuns, {
    'of one parent': end(['left'], 'succeeded'),
    'of the other parent': end(['right'], 'succeeded'),
    'of one that failed': end(['left'], 'failed'),
    'of both': end(['left', 'right'], 'succeeded'),
  }),
  writes(deleteEndedNoderoleRuns, { 'older than a day': ofGraph(() => [1, 100]) }),
  reads(readGraph, ({ seat }) => [{ deploymentIds: [], servers: [seat.serverUuid], roles: { whole: [], single: [] } }]),
  reads(readNoderole, () => [randomUUID()]),
  reads(readNoderoles, () => [[randomUUID()]]),
  reads(listNoderoles, () => [{}, 10]),
  reads(isSomeNoderoleDue, () => []),
  reads(readRoleEdges, () => []),
  reads(readServerRun, ({ seat }) => [seat.serverUuid]),
  reads(hasNoderolesOf, () => [{ role: 'left' }]),
  reads(countNoderoles, () => []),
  reads(readOpenRuns, () => []),
  reads(readRunData, () => [randomUUID()]),
  reads(readRunInputs, () => [randomUUID()]),
];

/** The random mix has no noderoles: nobody in it carries them out. */
export const annealerStatements: readonly Statement[] = statements.map((statement) => ({
  ...statement,
  calls: statement.calls.map((call) => ({ ...call, weight: 0 })),
}));
