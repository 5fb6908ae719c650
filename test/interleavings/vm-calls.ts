/**
 * Calls of statements about tasks and reports that are about VMs; only the world of VMs has any.
 */
import type { ReportToStore, storeReports } from '../../lib/control/servers/server-store.ts';
import type { AttemptReport } from '../../lib/control/tasks/reports/report-store.ts';
import type { WrittenTasks } from '../../lib/control/tasks/store/change-result.ts';
import { orRefusal } from '../../lib/control/tasks/store/task-errors.ts';
import type { createTask, NewTask } from '../../lib/control/tasks/store/task-store.ts';
import { CnapiError } from '../../lib/platform/errors.ts';
import type { CallOf, Seat, TaskKind, VmKind, World } from './statement.ts';
import { reportOf, vmOf } from './vm-world.ts';

/**
 * Not in the random mix: on its fast clock a report undoes the end of a task after milliseconds.
 */
const weight = 0;
const AT = '2030-01-01T00:00:00.000Z';

type CreateCall = CallOf<[NewTask], Awaited<ReturnType<typeof createTask>>>;

/** On one of the servers; all of these calls ask for the same VM. */
function create(seatOf: (world: World) => Seat | undefined): CreateCall {
  return {
    args(world) {
      const seat = seatOf(world);
      const uuid = seat && world.vm('new', seat.serverUuid);
      if (seat === undefined || uuid === undefined) return undefined;
      return [
        {
          id: world.uuid(),
          serverUuid: seat.serverUuid,
          name: 'machine_create',
          params: { uuid, image_uuid: uuid },
          timeoutMs: 3_600_000,
          idempotent: true,
          idempotencyKey: undefined,
          requestHash: 'hash',
          requestId: undefined,
        },
      ];
    },
    weight,
    exclusive: (created, { params }) => (created ? [`the claim of VM ${params.uuid}`] : []),
    isRefusal(error) {
      const refusal = orRefusal(error);
      return refusal instanceof CnapiError && refusal.code === 'VmExists';
    },
  };
}

export const vmCreations: Record<string, CreateCall> = {
  'of a VM': create(({ seat }) => seat),
  'of the same VM on another server': create(({ seats }) => seats[0]),
};

type EndCall = CallOf<[AttemptReport[]], WrittenTasks>;

/** The end of the tasks of this kind, whose result has the VM in this state. */
function ends(kind: TaskKind, vm: VmKind, state: string | undefined): EndCall {
  return {
    args(world) {
      const tasks = world.inOrder(world.tasks(kind));
      if (tasks.length === 0) return undefined;
      return [
        tasks.map((subject) => {
          const uuid = world.vm(vm, subject.serverUuid) ?? '';
          const result = state === undefined ? {} : { vm: vmOf(uuid, state, 2) };
          return { subject, report: { name: 'complete', reportedAt: AT, resultJson: JSON.stringify(result) } };
        }),
      ];
    },
    weight,
    exclusive: ({ changed }) => changed.filter(({ ended }) => ended).map(({ id }) => `the end of task ${id}`),
  };
}

const failed: EndCall = {
  args(world) {
    const tasks = world.inOrder(world.tasks('creating'));
    if (tasks.length === 0) return undefined;
    const error = { code: 'ImageNotFound', message: 'there is none' };
    return [
      tasks.map((subject) => ({ subject, report: { name: 'failure', reportedAt: AT, resultJson: undefined, error } })),
    ];
  },
  weight,
  exclusive: ({ changed }) => changed.filter(({ ended }) => ended).map(({ id }) => `the end of task ${id}`),
};

export const vmEnds: Record<string, EndCall> = {
  'VMs are created': ends('creating', 'creating', 'running'),
  'VMs could not be created': failed,
  'VMs are stopped': ends('stopping', 'running', 'stopped'),
  'VMs are destroyed': ends('destroying', 'running', undefined),
};

type ReportCall = CallOf<[ReportToStore[]], Awaited<ReturnType<typeof storeReports>>>;

/** Each server reports its VMs of these kinds. */
function reported(...kinds: readonly VmKind[]): ReportCall {
  return {
    weight,
    args(world) {
      const reports = world.inOrder(world.seats).map((seat) => {
        const vms = kinds.flatMap((kind) => world.vm(kind, seat.serverUuid) ?? []);
        return reportOf(
          seat,
          vms.map((uuid) => vmOf(uuid, 'stopping')),
        );
      });
      return world.vm('running', world.seat.serverUuid) === undefined ? undefined : [reports];
    },
  };
}

export const vmReports: Record<string, ReportCall> = {
  'of VMs that run': reported('running'),
  'of VMs that the task has created': reported('running', 'creating'),
  'of one VM on all servers': reported('new'),
};
