/** Rows of the table: tasks, posts to legacy agents, tickets. */

import {
  claimPosts,
  endPosts,
  findLostPosts,
  movePosts,
  readDeadPostingRuns,
  readPosts,
  readWaitingServers,
} from '../../lib/control/legacy/post-store.ts';
import {
  advanceTicks,
  recordFullServers,
  sweepTasks,
  takeOverdue,
} from '../../lib/control/tasks/deadlines/deadline-store.ts';
import {
  claimTasks,
  type InheritedRow,
  readBusyServers,
  readDispatches,
  readInheritedTasks,
  readRecordedStates,
  readServersAtWork,
  resendTasks,
  settleInventory,
} from '../../lib/control/tasks/dispatch/claim-store.ts';
import type { Report } from '../../lib/control/tasks/reports/report.ts';
import { recordReports } from '../../lib/control/tasks/reports/report-store.ts';
import type { ClaimingSession, WrittenTasks } from '../../lib/control/tasks/store/change-result.ts';
import { type InventoryDecision, taskEnds } from '../../lib/control/tasks/store/task.ts';
import type { PostLimits } from '../../lib/control/tasks/store/task-limits.ts';
import {
  countUnfinishedTasks,
  listAllTasks,
  readBusyAmong,
  readEndedAmong,
  readTaskTimes,
} from '../../lib/control/tasks/store/task-list-store.ts';
import {
  cancelTask,
  createTask,
  deleteTasks,
  listTasks,
  type NewTask,
  readEvents,
  readEventsOfMany,
  readLastEvents,
  readPositions,
  readTask,
  readTaskByKey,
} from '../../lib/control/tasks/store/task-store.ts';
import { createTaskUnderTicket } from '../../lib/control/tasks/store/ticketed-store.ts';
import { type CallOf, isSession, reads, type Statement, some, type TaskKind, type World, writes } from './statement.ts';
import { vmCreations, vmEnds } from './vm-calls.ts';

/**
 * Long enough for a world to be used for a whole run of all pairs; anything due there is due by
 * hours.
 */
export const PATIENCE_MS = 3_600_000;
const ROOM: PostLimits = { posts: 100, bytes: 1_000_000 };

/** The sessions of one run, in the leg's order. */
function sessionsOfOneRun(world: World): { run: string; sessions: ClaimingSession[] } | undefined {
  const run = world.seat.run;
  if (run === null) return undefined;
  return { run, sessions: world.inOrder(world.seats).filter((seat) => isSession(seat) && seat.run === run) };
}

const task = (world: World, fields: Partial<NewTask> = {}): NewTask => ({
  id: world.uuid(),
  serverUuid: world.seat.serverUuid,
  name: 'nop',
  params: {},
  timeoutMs: PATIENCE_MS,
  idempotent: false,
  idempotencyKey: undefined,
  requestHash: 'hash',
  requestId: undefined,
  ...fields,
});

const ends = (ids: readonly string[]): string[] => ids.map((id) => `the end of task ${id}`);
const endsAmong = ({ changed }: WrittenTasks): string[] =>
  ends(changed.filter(({ ended }) => ended).map(({ id }) => id));
const claims = (orders: readonly { id: string; attempt: number }[]): string[] =>
  orders.map(({ id, attempt }) => `attempt ${attempt} of task ${id}`);

type SettleCall = CallOf<[string, Parameters<typeof settleInventory>[2]], WrittenTasks>;

const settle = (decision: InventoryDecision): SettleCall => ({
  args(world) {
    const found = sessionsOfOneRun(world);
    const settlements = found?.sessions.flatMap((session) => {
      const inherited = world
        .tasks('inherited')
        .find(
          (task) =>
            task.serverUuid === session.serverUuid && !(task.cancelRequested && decision.kind === 'next-attempt'),
        );
      return inherited === undefined ? [] : [{ task: inherited, session, decision }];
    });
    return found && settlements?.length ? [found.run, settlements] : undefined;
  },
  exclusive: endsAmong,
});

type Reporting = { subject: InheritedRow; report: Report; isRepeated?: boolean };

const report = (kind: TaskKind, reports: readonly Report[]): CallOf<[Reporting[]], WrittenTasks> => ({
  args(world) {
    const tasks = some(world.inOrder(world.tasks(kind)));
    return tasks && [tasks.flatMap((subject) => reports.map((report) => ({ subject, report })))];
  },
  exclusive: endsAmong,
  weight: 20,
});

const reportedAt = '2030-01-01T00:00:00.000Z';
const accepted: Report = { name: 'accepted', reportedAt };
const started: Report = { name: 'started', reportedAt };
const progress: Report = { name: 'progress', reportedAt, value: 50, message: 'half' };
const output: Report = { name: 'output', reportedAt, stream: 'stdout', offset: 0, text: 'line', bytes: 4 };
const complete: Report = { name: 'complete', reportedAt, resultJson: '{"ok":true}' };
const failure: Report = {
  name: 'failure',
  reportedAt,
  resultJson: undefined,
  error: { code: 'Failed', message: 'it did' },
};

const cancel = (kind: TaskKind): CallOf<[string], Awaited<ReturnType<typeof cancelTask>>> => ({
  args(world) {
    const found = world.task(kind);
    return found && [found.id];
  },
  exclusive: (cancelled, id) => (cancelled?.isEnded ? ends([id]) : []),
  weight: 5,
});

/** The holder of the server's authority, which gets a hint. */
const HINTED = { hints: ['cnapi_roster_authority'] };

const tasks: Statement[] = [
  writes(
    createTask,
    {
      plain: { args: (world) => [task(world)], weight: 60 },
      'with a key': { args: (world) => [task(world, { idempotencyKey: 'key' })] },
      ...vmCreations,
    },
    HINTED,
  ),
  writes(createTaskUnderTicket, {
    'that may be active': {
      args(world) {
        const ticketUuid = world.ticket('active');
        return ticketUuid === undefined ? undefined : [task(world, { ticketUuid })];
      },
    },
  }),
  writes(
    cancelTask,
    {
      queued: cancel('queued'),
      sent: cancel('sent'),
      started: cancel('started'),
      inherited: cancel('inherited'),
      posted: cancel('posted'),
    },
    HINTED,
  ),
  writes(deleteTasks, { 'older than a day': { args: () => [1, { tasks: 100, pieces: 1000 }] } }),
  writes(claimTasks, {
    "a run's": {
      args(world) {
        const found = sessionsOfOneRun(world);
        return found && [found.run, { sessions: found.sessions, resendMs: PATIENCE_MS }];
      },
      exclusive: ({ claimed }) => claims(claimed),
      weight: 60,
    },
  }),
  writes(resendTasks, {
    'what was not accepted': {
      args(world) {
        const found = sessionsOfOneRun(world);
        return found && [found.sessions, PATIENCE_MS];
      },
    },
  }),
  writes(settleInventory, {
    'it continues': settle({ kind: 'goes-on', started: true }),
    'it returns to the queue': settle({ kind: 'next-attempt', uncertain: false }),
    'it fails': settle({ kind: 'fail', error: taskEnds.outcomeUnknown }),
  }),
  writes(recordReports, {
    accepted: report('sent', [accepted]),
    'accepted, started, output': report('sent', [accepted, started, output]),
    'progress and output': report('started', [progress, output]),
    'complete, without a start': report('sent', [complete]),
    complete: report('started', [output, complete]),
    failure: report('started', [failure]),
    "an earlier session's end": report('inherited', [complete]),
    "a late agent's end": report('overdue', [complete]),
    'the end of a post': report('posted', [complete]),
    ...vmEnds,
    'output, repeated': {
      args(world) {
        const tasks = some(world.inOrder(world.tasks('started')));
        return tasks && [tasks.map((subject) => ({ subject, report: output, isRepeated: true }))];
      },
      weight: 20,
    },
  }),
  writes(advanceTicks, { 'from the first tick': { args: () => [{ seen: 1, by: 1 }] } }),
  writes(takeOverdue, {
    'of some sessions': {
      args(world) {
        const found = sessionsOfOneRun(world);
        return found && [found.sessions, { overdueMs: PATIENCE_MS, resendMs: PATIENCE_MS }];
      },
    },
  }),
  writes(recordFullServers, { server: { args: ({ seat }) => [[seat.serverUuid]] } }),
  writes(sweepTasks, {
    all: { args: () => [{ startByMs: PATIENCE_MS, overdueMs: PATIENCE_MS }], exclusive: (ids) => ends(ids) },
  }),
  reads(readBusyServers, ({ me }) => [me.run]),
  reads(readDispatches, (world) => [world.tasks('sent').map((task) => ({ ...task, epoch: 1, paramsBytes: 2 }))]),
  reads(readServersAtWork, ({ seat }) => [[seat.serverUuid]]),
  reads(readInheritedTasks, ({ seats }) => [seats, 100]),
  reads(readRecordedStates, (world) => [
    world.tasks('ended').map(({ id, serverUuid }) => ({ id, serverUuid, epoch: 1 })),
  ]),
  reads(readTask, (world) => [world.task('queued')?.id ?? world.uuid()]),
  reads(readTaskByKey, ({ seat }) => [seat.serverUuid, 'key']),
  reads(listTasks, ({ seat }) => [seat.serverUuid, { rows: 100, bytes: 1_000_000 }]),
  reads(listAllTasks, ({ seat }) => [{ serverUuid: seat.serverUuid, status: 'active' as const, limit: 100 }]),
  reads(countUnfinishedTasks, ({ seat }) => [seat.serverUuid]),
  reads(readBusyAmong, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
  reads(readEndedAmong, (world) => [world.tasks('queued').map(({ id }) => id)]),
  reads(readTaskTimes, (world) => [world.tasks('ended').map(({ id }) => id)]),
  reads(readPositions, (world) => [world.tasks('started').map(({ id }) => id)]),
  reads(readLastEvents, (world) => [world.tasks('started').map(({ id }) => id)]),
  reads(readEventsOfMany, (world) => [world.tasks('started').map(({ id }) => ({ id, afterSeq: 0 })), 10]),
  reads(readEvents, (world) => [world.task('started')?.id ?? world.uuid(), { afterSeq: 0, limit: 100 }]),
];

const posts: Statement[] = [
  writes(claimPosts, {
    'of all servers, by me': {
      args: ({ me, seats }) => [me.run, { servers: seats.map(({ serverUuid }) => serverUuid), room: ROOM }],
      exclusive: ({ given }) => claims(given),
    },
    'of some servers, by another': {
      args: (world) => [
        world.other.run,
        { servers: world.inOrder(world.seats).map(({ serverUuid }) => serverUuid), room: ROOM },
      ],
      exclusive: ({ given }) => claims(given),
    },
  }),
  writes(movePosts, {
    'of a run that found itself dead': {
      args(world) {
        const ids = some(world.inOrder(world.tasks('left').map(({ id }) => id)));
        return ids && [{ from: world.gone.run, to: world.renewed }, ids];
      },
      weight: 40,
    },
  }),
  writes(endPosts, { 'of a dead run': { args: ({ gone }) => [[gone.run]], exclusive: (ids) => ends(ids), weight: 2 } }),
  reads(readDeadPostingRuns, () => []),
  reads(readWaitingServers, () => [100]),
  reads(readPosts, (world) => [world.me.run, world.tasks('posted').map(({ id }) => id)]),
  reads(findLostPosts, ({ me }) => [me.run, { known: [], limit: 100 }]),
];

export const taskStatements: readonly Statement[] = [...tasks, ...posts];
