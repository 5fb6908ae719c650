/**
 * An artificial small run in which all went well: two commands, one cancelled, two holders of a
 * lock, an agent that died.
 */
import { check } from './checker.ts';
import type { Effect, Entry, Evidence, Fault, Op, StoredStatus, StoredTask, StoredTicket } from './history.ts';

/** The wall clock at the harness's zero, and the machine's uptime. */
const WALL = 1_700_000_000_000;
const UPTIME = 5_000_000;

export const A = 'aaaaaaaa-0000-4000-8000-000000000000';
export const B = 'bbbbbbbb-0000-4000-8000-000000000000';
export const FIRST = '11111111-0000-4000-8000-000000000000';
export const SECOND = '22222222-0000-4000-8000-000000000000';
export const ONE = 'cccccccc-1111-4000-8000-000000000000';
export const TWO = 'cccccccc-2222-4000-8000-000000000000';

export const JOB = 'dddddddd-1111-4000-8000-000000000000';

export const wall = (at: number) => WALL + at;
export const uptime = (at: number) => UPTIME + at;

export function op(fields: Partial<Op> & Pick<Op, 'op' | 'askedAt' | 'status'>): Op {
  return { kind: 'op', workload: 'commands', instance: 0, overAt: fields.askedAt + 10, ...fields };
}

export function storedTask(fields: Partial<StoredTask> & Pick<StoredTask, 'id' | 'key'>): StoredTask {
  return {
    server: A,
    state: 'ended',
    outcome: 'complete',
    attempt: 1,
    createdAt: wall(1_000),
    endedAt: wall(3_000),
    cancelRequestedAt: null,
    errorCode: null,
    exitCode: 0,
    stdout: null,
    ends: 1,
    retries: 0,
    ...fields,
  };
}

const ticket = (uuid: string, place: number, activeAt: number, updatedAt: number): StoredTicket => ({
  uuid,
  queue: 'default/chaos/one',
  row: 1,
  place,
  status: 'finished',
  createdAt: wall(5_000 + 50 * place),
  activeAt: wall(activeAt),
  updatedAt: wall(updatedAt),
});

export const status = (server: string, reported: string, at: number, epoch = 1): StoredStatus => ({
  server,
  status: reported,
  reason: reported === 'unknown' ? 'silent' : 'connected',
  since: wall(at),
  epoch,
});

/** A's agent is frozen from 20 s to 30 s. */
export const frozen: Fault = {
  kind: 'fault',
  name: 'agent frozen',
  part: 'agent',
  servers: [A],
  dead: { servers: [A], withinMs: 2_500 },
  codes: ['NotTaken'],
  from: 20_000,
  to: 30_000,
  settledAt: 32_000,
};

/** Two agents arrive. */
export const arrival: Fault = {
  kind: 'fault',
  name: 'many agents arriving',
  part: 'crowd',
  servers: [],
  codes: [],
  crowd: ['dddddddd-0000-4000-8000-000000000000', 'eeeeeeee-0000-4000-8000-000000000000'],
  from: 150_000,
  to: 154_000,
  settledAt: 155_000,
};

/** The instance that A's agent is connected to is frozen. */
export const standing: Fault = {
  kind: 'fault',
  name: 'instance frozen',
  part: 'instance',
  instance: 1,
  servers: [],
  codes: [],
  moves: { servers: [A], withinMs: 10_000 },
  from: 200_000,
  to: 218_000,
  settledAt: 219_000,
};

export function goodEvidence(): Evidence {
  const lock = { workload: 'locks' as const, queue: 'one', expiresInMs: 8_000 };
  return {
    history: [
      { kind: 'plan', at: 0, seed: 1, minutes: 1, instances: ['i0', 'i1'], agents: [A], simulated: [B] },
      { kind: 'clock', at: 0, wall: WALL, uptime: UPTIME },
      { kind: 'intent', at: 990, workload: 'commands', server: A, key: 'k1', token: 't1', exitCode: 0 },
      op({ op: 'create', askedAt: 1_000, status: 202, server: A, key: 'k1', body: 'first', task: FIRST }),
      op({ op: 'create', askedAt: 1_020, status: 202, server: A, key: 'k1', body: 'first', task: FIRST, instance: 1 }),
      op({ op: 'get', askedAt: 2_000, status: 200, task: FIRST, reported: 'active', attempt: 1 }),
      op({
        op: 'wait',
        askedAt: 2_100,
        overAt: 3_010,
        status: 200,
        task: FIRST,
        reported: 'complete',
        attempt: 1,
        timeoutMs: 20_000,
      }),
      { kind: 'intent', at: 1_000, workload: 'cancels', server: A, key: 'k2', token: 't2', exitCode: 0 },
      op({ op: 'create', askedAt: 1_000, status: 202, server: A, key: 'k2', body: 'first', task: SECOND }),
      op({ op: 'cancel', askedAt: 2_500, status: 202, task: SECOND, reported: 'active', attempt: 1 }),
      op({ op: 'ticket', askedAt: 5_000, status: 202, ticket: ONE, ...lock }),
      op({ op: 'ticket', askedAt: 5_050, status: 202, ticket: TWO, ...lock }),
      op({ op: 'ticket-wait', askedAt: 5_020, status: 204, ticket: ONE, timeoutMs: 3_000, workload: 'locks' }),
      op({ op: 'release', askedAt: 6_000, status: 204, ticket: ONE, workload: 'locks' }),
      op({
        op: 'ticket-wait',
        askedAt: 5_070,
        overAt: 6_020,
        status: 204,
        ticket: TWO,
        timeoutMs: 3_000,
        workload: 'locks',
      }),
      op({ op: 'release', askedAt: 6_500, status: 204, ticket: TWO, workload: 'locks' }),
      op({ op: 'push', askedAt: 60_000, status: 201, workload: 'jobs' }),
      op({ op: 'push-get', askedAt: 61_500, status: 200, job: JOB, workload: 'jobs' }),
      op({ op: 'servers', askedAt: 10_000, status: 200, count: 2, unknown: [], workload: 'status' }),
      op({ op: 'servers', askedAt: 26_000, status: 200, count: 2, unknown: [A], workload: 'status' }),
      op({ op: 'servers', askedAt: 40_000, status: 200, count: 2, unknown: [], workload: 'status' }),
      { kind: 'roster', at: 100, rows: [{ server: A, epoch: 1, owner: 'i0', status: 'running' }] },
      { kind: 'roster', at: 31_000, rows: [{ server: A, epoch: 2, owner: 'i1', status: 'running' }] },
      { kind: 'roster', at: 205_000, rows: [{ server: A, epoch: 2, owner: 'i0', status: 'running' }] },
      structuredClone(frozen),
      structuredClone(arrival),
      structuredClone(standing),
    ],
    stored: {
      tasks: [
        storedTask({ id: FIRST, key: 'k1', stdout: 't1\n' }),
        storedTask({
          id: SECOND,
          key: 'k2',
          outcome: 'failure',
          errorCode: 'Cancelled',
          exitCode: null,
          cancelRequestedAt: wall(2_505),
        }),
      ],
      tickets: [ticket(ONE, 1, 5_005, 6_005), ticket(TWO, 2, 6_005, 6_505)],
      statuses: [
        status(A, 'running', 0),
        status(B, 'running', 0),
        status(A, 'unknown', 22_300),
        status(A, 'running', 30_500, 2),
        ...(arrival.crowd ?? []).flatMap((server) => [
          status(server, 'running', 151_000),
          status(server, 'unknown', 157_000),
        ]),
      ],
      pushJobs: [
        {
          id: JOB,
          state: 'ended',
          outcome: 'complete',
          createdAt: wall(60_000),
          endedAt: wall(61_000),
          nodes: [A, B].map((server) => ({ server, state: 'succeeded', tasks: 1, ends: 1, isBusy: false })),
        },
      ],
    },
    effects: [
      { event: 'begin', token: 't1', task: FIRST, pid: 10, agentPid: 9, uptime: uptime(1_100) },
      { event: 'end', token: 't1', task: FIRST, pid: 10, agentPid: 9, uptime: uptime(2_900), exitCode: 0 },
      { event: 'begin', token: 't2', task: SECOND, pid: 11, agentPid: 9, uptime: uptime(1_100) },
      { event: 'beat', token: 't2', task: SECOND, pid: 11, agentPid: 9, uptime: uptime(1_600) },
    ],
    pushEffects: [{ job: JOB, agentPid: 9, uptime: uptime(60_500) }],
  };
}

export const violationsOf = (evidence: Evidence) => check(evidence).filter(({ outcome }) => outcome === 'violated');

/** The first operation of that kind and, if given, ticket. */
export function opOf({ history }: Evidence, kind: Op['op'], ticket?: string): Op {
  const isIt = (entry: Entry) =>
    entry.kind === 'op' && entry.op === kind && (ticket === undefined || entry.ticket === ticket);
  return history.find(isIt) as Op;
}

export function taskOf({ stored }: Evidence, id: string): StoredTask {
  return stored.tasks.find((task) => task.id === id) ?? storedTask({ id, key: '' });
}

export function faultOf({ history }: Evidence): Fault {
  return history.find(({ kind }) => kind === 'fault') as Fault;
}

export function begin(token: string, task: string, at: number): Effect {
  return { event: 'begin', token, task, pid: 20, agentPid: 19, uptime: uptime(at) };
}
