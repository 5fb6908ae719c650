/** Rows of the table: push jobs. */
import { randomUUID } from 'node:crypto';
import {
  listOrganizationJobs,
  readNamedNode,
  readNodeNames,
  readOrganizationJob,
  readPushFile,
  readUnfinishedPushJobs,
} from '../../lib/control/chef/push-jobs/organization-jobs-store.ts';
import type { HeldDuty } from '../../lib/control/duty/duty.ts';
import {
  addPushNodes,
  changePushJob,
  type PushJobChanges,
  requestAbortOfNodes,
} from '../../lib/control/push/change-store.ts';
import {
  abortJob,
  abortNodes,
  advanceJob,
  changeTimeouts,
  closeVoting,
  endJob,
  readTasksOfJob,
  startNodes,
} from '../../lib/control/push/coordinator/coordinator-store.ts';
import { deleteEndedPushJobs, deleteSurplusJobs, readSurplusJobs } from '../../lib/control/push/expiry/expiry-store.ts';
import { readFeed } from '../../lib/control/push/followers/feed-store.ts';
import { readChangedNodes, readJobPositions } from '../../lib/control/push/followers/follow-store.ts';
import {
  endRehab,
  endRehabOfRemoved,
  readOpenNodes,
  readOrders,
  readPrepares,
  readTimeoutChanges,
  readVoters,
  storeVotes,
  type Vote,
} from '../../lib/control/push/messenger/messenger-store.ts';
import {
  createPushJob,
  deletePushJob,
  listPushJobs,
  listPushNodes,
  type NewPushJob,
  readNodeStates,
  readPushJob,
  readPushJobByKey,
  requestAbort,
} from '../../lib/control/push/push-store.ts';
import {
  beginVoting,
  deletePushTicket,
  readPushTicket,
  recordPushTicket,
} from '../../lib/control/push/tickets/ticket-store.ts';
import { firing, run } from './schedule-firings.ts';
import { type CallOf, type PushKind, reads, type Seat, type Statement, type World, writes } from './statement.ts';

/** A job of all servers of a world, which needs all of them. */
export const newPushJob = (servers: readonly string[]): NewPushJob => ({
  id: randomUUID(),
  organization: undefined,
  command: 'true',
  options: {},
  maskedOptions: undefined,
  file: undefined,
  nodes: servers.map((serverUuid) => ({ serverUuid, name: 'one' })),
  quorum: servers.length,
  quorumPercent: 100,
  concurrency: undefined,
  startRate: undefined,
  maxFailures: undefined,
  votingTimeoutMs: 60_000,
  runTimeoutMs: 60_000,
  abortTimeoutMs: 60_000,
  actor: undefined,
});

export const votesOf = (
  job: string,
  { seats }: { seats: readonly Pick<Seat, 'serverUuid' | 'incarnation'>[] },
  ready: boolean,
): Vote[] =>
  seats.map(({ serverUuid, incarnation }) => ({
    ...{ jobId: job, serverUuid, incarnation, ready },
    ...{ reason: ready ? undefined : 'stopping', message: undefined, busyWith: undefined },
  }));

const aDayAgo = (): string => String((Date.now() - 24 * 3_600_000) * 1000);

const vote = (kind: PushKind, ready: boolean): CallOf<[Vote[]], unknown> => ({
  args(world) {
    const duty = world.pushJob(kind);
    return duty && [world.inOrder(votesOf(duty.id, world, ready))];
  },
});

/** A call of the coordinator, which has the job's duty. */
const coordinated = <Rest extends unknown[]>(kind: PushKind, ...rest: Rest): CallOf<[HeldDuty, ...Rest], unknown> => ({
  args(world) {
    const duty = world.pushJob(kind);
    return duty && [duty, ...rest];
  },
});

const ofJob = (kind: PushKind) => (world: World) => {
  const duty = world.pushJob(kind);
  return duty && ([duty.id] as [string]);
};

const changed = (kind: PushKind, changes: PushJobChanges): CallOf<[string, { changes: PushJobChanges }], unknown> => ({
  args(world) {
    const duty = world.pushJob(kind);
    return duty && [duty.id, { changes }];
  },
});

/** A server that is in no job. */
const added = (kind: PushKind): CallOf<[string, Parameters<typeof addPushNodes>[2]], unknown> => ({
  args(world) {
    const duty = world.pushJob(kind);
    return duty && [duty.id, { nodes: [{ serverUuid: world.uuid(), name: 'new' }], limit: 10 }];
  },
});

type AbortOfNodes = Parameters<typeof requestAbortOfNodes>[2];

/** A caller aborts the first nodes of a job. */
const abortOf = (
  kind: PushKind,
  how: AbortOfNodes['how'],
  count?: number,
): CallOf<[string, AbortOfNodes], unknown> => ({
  args(world) {
    const duty = world.pushJob(kind);
    const nodes = world.inOrder(world.seats.slice(0, count).map(({ serverUuid }) => serverUuid));
    return duty && [duty.id, { nodes, how }];
  },
});

/** The coordinator aborts all nodes, for which a caller has just asked. */
const aborted = (kind: PushKind, how: AbortOfNodes['how']): CallOf<[HeldDuty, number], unknown> => ({
  ...coordinated(kind, 100),
  async before(database, { id }) {
    const nodes = await listPushNodes(database, id, {});
    await requestAbortOfNodes(database, id, { nodes: nodes.map(({ server_uuid }) => server_uuid), how });
  },
});

/** The coordinator gives commands their limits, after a caller has changed the run timeout. */
const limited = (kind: PushKind): CallOf<[HeldDuty, number], unknown> => ({
  ...coordinated(kind, 100),
  before: (database, { id }) => changePushJob(database, id, { changes: { run_timeout_ms: 90_000 } }),
});

const start = () => ({ ids: [randomUUID(), randomUUID(), randomUUID()], runMs: 0 });
const ending = { ending: 'aborted', soft: false, reason: 'asked', limit: 100 } as const;

const statements: readonly Statement[] = [
  writes(createPushJob, {
    new: { args: ({ seats }) => [newPushJob(seats.map(({ serverUuid }) => serverUuid))] },
    'at a time that is due': firing('due', newPushJob),
    'at a time that waited': firing('queued', newPushJob),
    'of a schedule that a caller runs': run(newPushJob),
  }),
  writes(storeVotes, {
    'ready, for one job': vote('asked', true),
    'ready, for another': vote('alsoAsked', true),
    'against it': vote('asked', false),
    withdrawn: vote('ready', false),
    'too late': vote('running', true),
  }),
  writes(advanceJob, { running: coordinated('running') }),
  writes(startNodes, {
    'with its quorum': coordinated('ready', start()),
    'below its quorum': coordinated('asked', start()),
    'the others': coordinated('running', start()),
  }),
  writes(changeTimeouts, { running: limited('running') }),
  writes(closeVoting, { voting: coordinated('asked', 60_000) }),
  writes(abortJob, {
    waiting: coordinated('waiting', ending),
    voting: coordinated('asked', ending),
    ready: coordinated('ready', ending),
    running: coordinated('running', ending),
    softly: coordinated('running', { ...ending, soft: true }),
  }),
  writes(endJob, {
    'that goes on': coordinated('running', 'complete' as const),
    aborting: coordinated('aborting', 'timed_out' as const),
  }),
  writes(endRehab, {
    all: {
      args(world) {
        const duty = world.pushJob('aborted');
        return duty && [world.inOrder(world.seats.map(({ serverUuid }) => ({ jobId: duty.id, serverUuid })))];
      },
    },
  }),
  writes(endRehabOfRemoved, { all: { args: () => [10] } }),
  writes(requestAbort, {
    hard: {
      args(world) {
        const duty = world.pushJob('running');
        return duty && [duty.id, { how: 'hard' as const, actor: 'me' }];
      },
    },
  }),
  writes(changePushJob, {
    'the quorum': changed('asked', { quorum: 1 }),
    'the quorum, in percent': changed('ready', { quorum: { percent: 50 } }),
    'the concurrency': changed('running', { concurrency: 1, run_timeout_ms: 1_000 }),
    'the quorum, too late': changed('running', { quorum: 1 }),
  }),
  writes(addPushNodes, { voting: added('asked'), ready: added('ready'), running: added('running') }),
  writes(requestAbortOfNodes, {
    'asked, one': abortOf('asked', 'hard', 1),
    'ready, all': abortOf('ready', 'hard'),
    'running, all': abortOf('running', 'hard'),
    'running, softly': abortOf('running', 'soft'),
  }),
  writes(abortNodes, {
    asked: aborted('asked', 'hard'),
    ready: aborted('ready', 'hard'),
    running: aborted('running', 'hard'),
    'running, softly': aborted('running', 'soft'),
  }),
  writes(deletePushJob, { ended: { args: ofJob('aborted') }, running: { args: ofJob('running') } }),
  writes(deleteEndedPushJobs, { 'older than a day': { args: () => [{ days: 1, limit: 100, nodes: 10_000 }] } }),
  writes(deleteSurplusJobs, {
    'older than a day': {
      args: () => [{ organizationUuid: 'acme', upTo: { at: aDayAgo(), id: randomUUID() }, limit: 100, nodes: 10_000 }],
    },
  }),
  reads(readSurplusJobs, () => [{ after: '', keep: 0 }]),
  writes(recordPushTicket, { waiting: coordinated('waiting', randomUUID()) }),
  writes(deletePushTicket, { waiting: coordinated('waiting') }),
  writes(beginVoting, { waiting: coordinated('waiting') }),
  reads(readPushTicket, ofJob('waiting')),
  reads(readPushJob, ofJob('running')),
  reads(readPushJobByKey, () => [{ key: 'a key', actor: undefined, hash: '' }]),
  reads(listPushJobs, () => [{ limit: 10 }]),
  reads(listPushNodes, (world) => {
    const duty = world.pushJob('running');
    return duty && [duty.id, { limit: 10 }];
  }),
  reads(readChangedNodes, (world) => {
    const duty = world.pushJob('running');
    return duty && [duty.id, { since: new Date(0), withOpen: true, after: undefined, limit: 10 }];
  }),
  reads(readTasksOfJob, ofJob('running')),
  reads(readOrganizationJob, (world) => {
    const duty = world.pushJob('running');
    return duty && ['acme', duty.id];
  }),
  reads(listOrganizationJobs, () => ['acme', { limit: 10, bytes: 1_000, withCounts: true }]),
  reads(readUnfinishedPushJobs, () => []),
  reads(readNodeNames, ofJob('running')),
  reads(readPushFile, ofJob('running')),
  reads(readNamedNode, (world) => {
    const duty = world.pushJob('running');
    return duty && [duty.id, 'one'];
  }),
  reads(readFeed, (world) => {
    const duty = world.pushJob('running');
    return duty && [duty.id, 1];
  }),
  reads(readJobPositions, (world) => {
    const duty = world.pushJob('running');
    return duty && [[duty.id]];
  }),
  reads(readPrepares, (world) => {
    const jobs = ofJob('asked')(world);
    return jobs && [jobs];
  }),
  reads(readOrders, () => [{ limit: 10 }]),
  reads(readVoters, () => [{ limit: 10 }]),
  reads(readTimeoutChanges, () => []),
  reads(readOpenNodes, (world) => {
    const duty = world.pushJob('running');
    return duty && [world.seats.map(({ serverUuid }) => ({ jobId: duty.id, serverUuid }))];
  }),
  reads(readNodeStates, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
];

/** The random mix has no push jobs: nobody in it carries them out. */
export const pushStatements: readonly Statement[] = statements.map((statement) => ({
  ...statement,
  calls: statement.calls.map((call) => ({ ...call, weight: 0 })),
}));
