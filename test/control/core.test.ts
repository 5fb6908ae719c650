import { randomUUID } from 'node:crypto';
import t from 'tap';
import { parseConfig } from '../../lib/control/config.ts';
import { Core, type CoreDeps } from '../../lib/control/core.ts';
import type { SessionSocket } from '../../lib/control/roster/session.ts';
import { createMemoryBus, MemoryHub } from '../../lib/platform/bus/memory-bus.ts';
import { systemClock as clock } from '../../lib/platform/clock.ts';
import { DatabaseUnavailableError } from '../../lib/platform/errors.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import type { HelloFrame } from '../../lib/protocol/frames.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { freshDatabase } from '../support/postgres.ts';
import { recordingLogger } from '../support/recording-logger.ts';

/** An ingress without sockets. */
const noIngress = {
  url: 'http://127.0.0.1:1',
  unanswered: 0,
  start: async () => {},
  announceLeave: () => {},
  stopAccepting: () => {},
  stop: async () => {},
};

function core(database: Database, url: string, deps: Partial<CoreDeps> = {}): Core {
  const cnapiUuid = randomUUID();
  return new Core({
    config: { ...parseConfig({ databaseUrl: url, cnapiUuid }), cnapiUuid },
    databases: { main: database, arrivals: database, beats: database, sessionLosses: database, sightings: database },
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random, log }),
    ingress: () => noIngress,
    clock,
    eventLoop: { busyShare: () => 0 },
    random,
    log,
    ...deps,
  });
}

t.test('an instance whose database fails during its preparation waits for it and starts', async (t) => {
  const { database, url } = await freshDatabase(t);
  let prepared = 0;
  const flaky: Database = {
    query: (...statement) => database.query(...statement),
    stream: (...statement) => database.stream(...statement),
    transaction: (...work) => {
      prepared += 1;
      if (prepared === 3) return Promise.reject(new DatabaseUnavailableError(new Error('gone')));
      return database.transaction(...work);
    },
    stop: async () => {},
  };
  const instance = core(flaky, url);
  await instance.start();
  t.ok(prepared > 3, 'it continued after the failure');
  t.strictSame(instance.roster.readiness(), { ready: true, reasons: [] });
  await instance.stop();
});

t.test('a part that fails to stop, or not in time, is named and does not keep others running', async (t) => {
  const { database, url } = await freshDatabase(t);
  const records: Record<string, unknown>[] = [];
  const manual = new ManualClock();
  const start = () => {};
  const backgroundServices = {
    stuck: { start, stop: () => new Promise<void>(() => {}) },
    broken: { start, stop: () => Promise.reject(new Error('no disk')) },
  };
  const instance = core(database, url, {
    clock: manual,
    log: recordingLogger(records),
    backgroundServices: () => backgroundServices,
  });
  const stopping = instance.stop();
  await manual.advance(0);
  t.match(records, [{ level: 'warn', part: 'broken', reason: 'no disk', msg: 'stopping: part failed' }]);
  await manual.advance(2_500);
  t.match(records[1], { level: 'warn', part: 'stuck', after_ms: 2500, msg: 'stopping: part left behind' });
  await stopping;
  t.equal(records.length, 3, 'it reports that it has stopped');
});

t.test('agents that arrive do not wait for the statements of requests and tasks', async (t) => {
  const { database, url } = await freshDatabase(t);
  const world = { isStuck: false };
  const never = new Promise<never>(() => {});
  const main: Database = {
    query: (...statement) => (world.isStuck ? never : database.query(...statement)),
    stream: (...statement) => database.stream(...statement),
    transaction: (...work) => (world.isStuck ? never : database.transaction(...work)),
    stop: async () => {},
  };
  const databases = { main, arrivals: database, beats: database, sessionLosses: database, sightings: database };
  const instance = core(main, url, { databases });
  t.teardown(() => instance.stop());
  await instance.start();
  world.isStuck = true;
  const serverUuid = randomUUID();
  t.equal(await instance.servers.sysinfoDigest(serverUuid), undefined);
  const { authority } = instance.roster;
  const socket = {} as SessionSocket;
  const acceptance = await authority.accept({ hello: helloOf(serverUuid), socket, isOpen: () => true });
  if (acceptance.kind !== 'accepted') throw new Error(acceptance.kind);
  t.ok(await authority.confirmInventory(acceptance.session));
});

function helloOf(serverUuid: string): HelloFrame {
  return {
    type: 'hello',
    version: 1,
    capabilities: [],
    serverUuid,
    incarnation: randomUUID(),
    conn: 1,
    journalId: randomUUID(),
    epoch: 0,
    bootId: 'boot',
    agentVersion: 'test',
    sysinfoDigest: '',
  };
}
