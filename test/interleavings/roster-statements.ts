/** Rows of the table: instances, the roster, heartbeats of legacy agents, servers. */

import {
  deleteOldHeartbeats,
  deleteOrphanedHeartbeats,
  readHeartbeatRows,
  recordHeartbeats,
  recordSilences,
} from '../../lib/control/legacy/heartbeat-store.ts';
import {
  declareLapsed,
  deleteEndedRuns,
  drainRun,
  endRun,
  incrementBeat,
  insertRun,
  isLive,
  readAwaitedReturns,
  readLive,
  wasAskedToDrain,
} from '../../lib/control/roster/membership/instance-store.ts';
import type { HeldRow } from '../../lib/control/roster/status/authority-row.ts';
import {
  type AcceptedSession,
  acceptSession,
  acceptSessions,
  markOwnerlessUnknown,
  pollRows,
  readRow,
  recordInventories,
  recordLosses,
  renewRun,
} from '../../lib/control/roster/status/roster-store.ts';
import { deleteOldStatusHistory, readStatusHistory } from '../../lib/control/roster/status/status-history.ts';
import { selectServers } from '../../lib/control/servers/selection-store.ts';
import {
  ALL_PARTS,
  countServers,
  listServers,
  readBoots,
  readDigests,
  readHostnames,
  readRosterRow,
  readServer,
  readServerStatuses,
  readSysinfoParts,
  removeServer,
  storeReports,
  storeSysinfos,
} from '../../lib/control/servers/server-store.ts';
import type { Intent } from './lab-schema.ts';
import { isSession, reads, type Seat, type Session, type Statement, some, type World, writes } from './statement.ts';
import { vmReports } from './vm-calls.ts';

const hello = ({ serverUuid, incarnation, conn, journalId, epoch }: Seat, further: number) => {
  return { serverUuid, incarnation, conn: conn + further, journalId, epoch };
};
/** The agent of another machine with the same uuid, or of the same machine after a restart. */
const newcomer = (world: World) => {
  const { serverUuid, epoch } = world.seat;
  return { serverUuid, incarnation: world.uuid(), conn: 1, journalId: world.uuid(), epoch };
};
const sessions = (world: World): Session[] => world.inOrder(world.seats).filter(isSession);
const held = ({ serverUuid, run, epoch }: Session) => ({ serverUuid, run, epoch });

const epochOf = (serverUuid: string, accepted: AcceptedSession) => `epoch ${accepted.epoch} of ${serverUuid}`;
const about = (kind: 'status-change' | 'renewal', rows: readonly HeldRow[]): Intent[] =>
  rows.map(({ serverUuid, run, epoch }) => ({ kind, subject: serverUuid, run, number: epoch }));
/** Only one caller may learn that its status change for an epoch was applied. */
const applied = (servers: readonly string[], rows: readonly { serverUuid: string; epoch: number }[]): string[] =>
  rows
    .filter(({ serverUuid }) => servers.includes(serverUuid))
    .map(({ serverUuid, epoch }) => `the status change of epoch ${epoch} of ${serverUuid}`);

const identity = (cnapiUuid: string) => {
  return { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
};

const instances: Statement[] = [
  writes(insertRun, {
    'a new one': { args: (world) => [world.uuid(), identity(world.other.cnapiUuid), null] },
    repeated: { args: (world) => [world.me.run, identity(world.me.cnapiUuid), null] },
  }),
  writes(incrementBeat, { mine: { args: (world) => [world.me.run, { agents: 3, latestReturnInMs: 1_000 }] } }),
  writes(drainRun, {
    me: { args: (world) => [world.me.run], weight: 1 },
    'the other one': { args: (world) => [world.other.run], weight: 1 },
  }),
  writes(declareLapsed, {
    'me and the other one': {
      args: ({ me, other, beatOf, inOrder }) => [
        inOrder([...new Set([me.run, other.run])]).map((run) => ({ run, beat: beatOf(run) })),
      ],
      intents: (lapsed) => lapsed.map(({ run, beat }) => ({ kind: 'lapse', subject: run, number: beat })),
      weight: 1,
    },
  }),
  writes(endRun, { mine: { args: (world) => [world.me.run], weight: 1 } }),
  writes(deleteEndedRuns, { all: { args: () => [] } }),
  reads(readLive, () => []),
  reads(readAwaitedReturns, ({ me, other }) => [me.run, [other.run], 5_000]),
  reads(wasAskedToDrain, ({ me }) => [me.run]),
  reads(isLive, ({ me }) => [me.run]),
];

const roster: Statement[] = [
  writes(acceptSessions, {
    'the next connections, elsewhere': {
      args: (world) => [world.other, world.inOrder(world.seats).map((seat) => hello(seat, 1))],
      exclusive: (accepted) => [...accepted].map(([serverUuid, one]) => epochOf(serverUuid, one)),
      weight: 30,
    },
    'another incarnation, for one that a probe found dead': {
      args: (world) => [world.other, [newcomer(world)], world.seat.incarnation],
      intents: (_, [one], replaces) =>
        one && replaces ? [{ kind: 'probe', subject: one.serverUuid, run: replaces }] : [],
      exclusive: (accepted) => [...accepted].map(([serverUuid, one]) => epochOf(serverUuid, one)),
    },
    'another incarnation, without a probe': {
      args: (world) => [world.me, [newcomer(world)]],
      exclusive: (accepted) => [...accepted].map(([serverUuid, one]) => epochOf(serverUuid, one)),
    },
  }),
  writes(acceptSession, {
    'a later connection': {
      args: (world) => [world.me, hello(world.seat, 2), null],
      exclusive: (accepted, _, { serverUuid }) => (accepted ? [epochOf(serverUuid, accepted)] : []),
    },
    'of the last server, by a run that has just begun': {
      args(world) {
        const last = world.seats.toSorted((a, b) => (a.serverUuid < b.serverUuid ? -1 : 1)).at(-1);
        return last && [{ cnapiUuid: world.uuid(), run: world.uuid() }, hello(last, 1), null];
      },
      before: (database, { cnapiUuid, run }) => insertRun(database, run, identity(cnapiUuid), null),
      exclusive: (accepted, _, { serverUuid }) => (accepted ? [epochOf(serverUuid, accepted)] : []),
      weight: 1,
    },
  }),
  writes(recordInventories, {
    all: {
      args(world) {
        const rows = some(sessions(world).map(held));
        return rows && [rows];
      },
    },
  }),
  writes(recordLosses, {
    all: {
      args(world) {
        const losses = some(sessions(world).map((seat) => ({ ...held(seat), reason: 'closed' as const })));
        return losses && [world.me.cnapiUuid, losses];
      },
      intents: (_, losses) => about('status-change', losses),
      exclusive: (written, _, losses) => applied(written.applied, losses),
    },
  }),
  writes(markOwnerlessUnknown, {
    "a dead run's, or mine without sessions": {
      args(world) {
        const orphans = some(sessions(world).filter(({ run }) => world.isDead(run) || run === world.me.run));
        return orphans && [world.me, orphans.map(held)];
      },
      intents: (_, orphans) => about('status-change', orphans),
      exclusive: (servers, _, orphans) => applied(servers, orphans),
    },
  }),
  writes(renewRun, {
    'that found itself dead': {
      args(world) {
        const mine = some(sessions(world).filter(({ run }) => world.isDead(run)));
        return mine && [world.renewed, mine.map(held)];
      },
      intents: (_, mine) => about('renewal', mine),
      weight: 30,
    },
  }),
  reads(readRow, ({ seat }) => [seat.serverUuid]),
  reads(pollRows, ({ me }) => [me.run]),
  reads(readStatusHistory, ({ seat }) => [seat.serverUuid, { limit: 10, offset: 0 }]),
  writes(deleteOldStatusHistory, { 'older than a day': { args: () => [1, 1000] } }),
];

const heartbeats: Statement[] = [
  writes(recordHeartbeats, {
    'of just now': {
      args: (world) => [
        world.other.cnapiUuid,
        () => world.inOrder(world.seats).map(({ serverUuid }) => ({ serverUuid, ageMs: 0 })),
      ],
    },
    'of a minute ago': {
      args: ({ me, seat }) => [me.cnapiUuid, () => [{ serverUuid: seat.serverUuid, ageMs: 60_000 }]],
    },
  }),
  writes(recordSilences, {
    all: {
      args(world) {
        const silent = some(world.inOrder(world.seats).filter(({ run, isRunning }) => run === null && isRunning));
        return silent && [world.me.cnapiUuid, silent];
      },
      intents: (_, silences) =>
        silences.map((silence) => ({
          kind: 'silence',
          subject: silence.serverUuid,
          number: silence.epoch,
          record: silence.lastRecord,
        })),
      exclusive: (servers, _, silences) => applied(servers, silences),
    },
  }),
  writes(deleteOldHeartbeats, {
    all: { args: ({ seats }) => [Math.max(...seats.map(({ lastRecord }) => lastRecord))] },
  }),
  writes(deleteOrphanedHeartbeats, { all: { args: () => [1000] } }),
  reads(readHeartbeatRows, () => [1000]),
];

const servers: Statement[] = [
  writes(storeSysinfos, {
    all: {
      args: (world) => [
        world
          .inOrder(world.seats.map(({ serverUuid }) => serverUuid))
          .map((serverUuid) => ({ serverUuid, sysinfo: { Hostname: 'next' }, digest: world.uuid() })),
      ],
    },
  }),
  writes(storeReports, {
    all: {
      args: (world) => [
        world.inOrder(world.seats).map(({ serverUuid, epoch }) => ({
          serverUuid,
          epoch,
          report: { vms: { [serverUuid]: { state: 'running' } }, memory: {}, disk: {} },
        })),
      ],
    },
    ...vmReports,
  }),
  writes(removeServer, { one: { args: ({ me, seat }) => [me.cnapiUuid, seat.serverUuid], weight: 1 } }),
  reads(listServers, () => [{}, ALL_PARTS, { limit: 10, offset: 0 }]),
  reads(readServer, ({ seat }) => [seat.serverUuid, ALL_PARTS]),
  reads(readDigests, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
  reads(readSysinfoParts, ({ seat }) => [seat.serverUuid, ['Hostname']]),
  reads(countServers, () => []),
  reads(selectServers, () => [[{ path: ['hostname'], isNot: false, parts: ['web-', ''] }], 10]),
  reads(readHostnames, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
  reads(readRosterRow, ({ seat }) => [seat.serverUuid]),
  reads(readBoots, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
  reads(readServerStatuses, ({ seats }) => [seats.map(({ serverUuid }) => serverUuid)]),
];

export const rosterStatements: readonly Statement[] = [...instances, ...roster, ...heartbeats, ...servers];
