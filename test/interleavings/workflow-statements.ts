/** Rows of the table: workflow jobs; and the jobs of the world in which they run. */
import { randomUUID } from 'node:crypto';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import { claimDuties } from '../../lib/control/duty/duty-store.ts';
import {
  beginWorkflowStep,
  moveWorkflowJob,
  readHeldWorkflowJob,
  readWaitingWorkflowJobs,
} from '../../lib/control/workflows/step-store.ts';
import type { StepPosition, WorkflowState } from '../../lib/control/workflows/workflow.ts';
import {
  countWorkflowJobs,
  createWorkflowJob,
  deleteEndedWorkflowJobs,
  listWorkflowJobs,
  readUnfinishedWorkflowJob,
  readWorkflowJob,
  readWorkflowJobOfVm,
  readWorkflowPositions,
  requestWorkflowCancel,
  WORKFLOW_DUTY,
} from '../../lib/control/workflows/workflow-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { type CallOf, reads, type Seat, type Statement, type WorkflowKind, type World, writes } from './statement.ts';

type NewJob = Parameters<typeof createWorkflowJob>[1];
type Begin = Parameters<typeof beginWorkflowStep>[2];
type Move = Parameters<typeof moveWorkflowJob>[2];

const FIRST: StepPosition = { phase: 'chain', step: 0, tries: 0 };
const ENTRY = { name: 'reboot', result: 'OK', error: '' };

const newJob = (serverUuid: string): NewJob => ({
  ...{ id: randomUUID(), name: 'server-reboot', serverUuid, chain: ['reboot', 'await-boot'], onerror: [] },
  ...{ params: {}, maskedParams: undefined, requestHash: 'hash', requestId: undefined, actor: undefined },
});

const stepTask = (): Begin['task'] => ({
  ...{ id: randomUUID(), name: 'server_reboot', params: {}, maskedParams: undefined },
  ...{ timeoutMs: 60_000, idempotent: false },
});

/**
 * Creates a job whose first step is due, one whose first step has begun and one that has ended,
 * each on a server.
 */
export async function createWorkflowJobs(
  database: Queryable,
  run: string,
  [one, two, three]: readonly Seat[],
): Promise<Partial<Record<WorkflowKind, HeldDuty>>> {
  const made = async (seat: Seat | undefined) => {
    await createWorkflowJob(database, newJob(seat?.serverUuid ?? ''));
    return (await claimDuties(database, run, { kinds: [WORKFLOW_DUTY], limit: 1 }))[0] as HeldDuty;
  };
  const [due, begun, ended] = [await made(one), await made(two), await made(three)];
  await beginWorkflowStep(database, begun, { at: FIRST, facts: {}, task: stepTask() });
  await moveWorkflowJob(database, ended, {
    from: FIRST,
    to: { name: 'ended', execution: 'canceled' },
    entry: undefined,
  });
  await database.query('alter table cnapi_workflow_jobs disable trigger cnapi_workflow_guard');
  await database.query(
    `update cnapi_workflow_jobs set ended_at = ended_at - interval '2 days' where ended_at is not null`,
  );
  await database.query('alter table cnapi_workflow_jobs enable trigger cnapi_workflow_guard');
  return { due, begun, ended };
}

const begin: CallOf<[HeldDuty, Begin], unknown> = {
  args(world) {
    const duty = world.workflowJob('due');
    return duty && [duty, { at: FIRST, facts: {}, task: stepTask() }];
  },
  exclusive: (begun, { id }) => (begun === undefined ? [] : [`the begin of workflow job ${id}`]),
};

const move = (kind: WorkflowKind, to: WorkflowState, entry: Move['entry']): CallOf<[HeldDuty, Move], boolean> => ({
  args(world) {
    const duty = world.workflowJob(kind);
    return duty && [duty, { from: FIRST, to, entry }];
  },
  exclusive: (isMoved, { id }) => (isMoved ? [`the first step of workflow job ${id}`] : []),
});

const create = (seatOf: (world: World) => Seat | undefined): CallOf<[NewJob], unknown> => ({
  args(world) {
    const seat = world.workflowJob('ended') && seatOf(world);
    return seat && [newJob(seat.serverUuid)];
  },
  exclusive: (creation, { serverUuid }) =>
    creation === 'created' ? [`the unfinished job of server ${serverUuid}`] : [],
});

const cancel = (kind: WorkflowKind): CallOf<[string, { actor: string | undefined }], unknown> => ({
  args(world) {
    const duty = world.workflowJob(kind);
    return duty && [duty.id, { actor: 'me' }];
  },
});

const ofBegun = (world: World): [string] | undefined => {
  const duty = world.workflowJob('begun');
  return duty && [duty.id];
};

const statements: readonly Statement[] = [
  writes(createWorkflowJob, { 'of a server without one': create(({ seats }) => seats[2]) }),
  writes(beginWorkflowStep, { 'of a due step': begin }),
  writes(moveWorkflowJob, {
    'to the next step': move('begun', { name: 'due', phase: 'chain', step: 1, tries: 0 }, ENTRY),
    'to its end': move('begun', { name: 'ended', execution: 'failed' }, ENTRY),
    'of a due step': move('due', { name: 'ended', execution: 'canceled' }, undefined),
  }),
  writes(requestWorkflowCancel, { due: cancel('due'), begun: cancel('begun') }),
  writes(deleteEndedWorkflowJobs, { 'older than a day': { args: (world) => world.workflowJob('ended') && [1, 100] } }),
  reads(readHeldWorkflowJob, ofBegun),
  reads(readWorkflowJob, ofBegun),
  reads(readWorkflowPositions, (world) => [ofBegun(world) ?? []]),
  reads(readUnfinishedWorkflowJob, ({ seat }) => [seat.serverUuid]),
  reads(listWorkflowJobs, () => [{ withParams: true }, { rows: 10, bytes: 10_000 }]),
  reads(readWorkflowJobOfVm, () => [randomUUID()]),
  reads(countWorkflowJobs, () => []),
  reads(readWaitingWorkflowJobs, (world) => [ofBegun(world) ?? []]),
];

/** The random mix has no workflow jobs: nobody in it carries them out. */
export const workflowStatements: readonly Statement[] = statements.map((statement) => ({
  ...statement,
  calls: statement.calls.map((call) => ({ ...call, weight: 0 })),
}));
