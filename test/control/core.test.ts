import { randomUUID } from 'node:crypto';
import t from 'tap';
import { parseConfig } from '../../lib/control/config.ts';
import { Core, type CoreDeps } from '../../lib/control/core.ts';
import type { DutyHandlers, HeldDuty } from '../../lib/control/duty/duty.ts';
import { SubsystemHost } from '../../lib/control/subsystem-host.ts';
import { coreSubsystems, migrations } from '../../lib/control/subsystem-list.ts';
import { DatabaseUnavailableError } from '../../lib/platform/errors.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { agentFrames, type HelloFrame } from '../../lib/protocol/link/frames.ts';
import { createDuties } from '../support/create-duties.ts';
import { idleSocket } from '../support/idle-socket.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { freshDatabase, type Teardown } from '../support/postgres.ts';
import { until } from '../support/until.ts';

const never = new Promise<never>(() => {});

interface Given {
  config?: Partial<CoreDeps['config']>;
  dutyHandlers?: DutyHandlers;
}

/** An instance without a listener. The test may stop its main database or its beats. */
async function startCore(t: Teardown, { config, dutyHandlers = {} }: Given = {}) {
  const { database, url } = await freshDatabase(t);
  const world = { isStuck: false, areBeatsLost: false };
  const main: Database = {
    query: (...statement) => (world.isStuck ? never : database.query(...statement)),
    transaction: (...work) => (world.isStuck ? never : database.transaction(...work)),
    stop: async () => {},
  };
  const beats: Database = {
    query: (...statement) =>
      world.areBeatsLost ? Promise.reject(new DatabaseUnavailableError()) : database.query(...statement),
    transaction: (...work) => database.transaction(...work),
    stop: async () => {},
  };
  const cnapiUuid = randomUUID();
  const subsystemHost = new SubsystemHost({ databases: [main], migrations, clock, log });
  const instance = new Core({
    config: { ...parseConfig({ databaseUrl: url, cnapiUuid }), cnapiUuid, ...config },
    databases: { main, arrivals: database, beats, sessionLosses: database, legacyHeartbeats: database },
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random, log }),
    ingress: { url: 'http://127.0.0.1:1', mayLog: () => true },
    newServers: { refusalOf: () => undefined },
    subsystemHost,
    clock,
    eventLoop: { busyShare: () => 0 },
    random,
    log,
  });
  subsystemHost.open(coreSubsystems, instance);
  subsystemHost.add({ name: 'test', dutyHandlers });
  t.teardown(() => subsystemHost.stop());
  await subsystemHost.start();
  return { database, instance, subsystemHost, world };
}

t.test('an instance that has become healthy again claims duties at once', async (t) => {
  const begun = Promise.withResolvers<string>();
  const carryOut = async ({ id }: HeldDuty) => {
    begun.resolve(id);
  };
  const { database, instance, world } = await startCore(t, {
    config: { slowPollMs: 3_600_000, slowPollNoBusMs: 3_600_000 },
    dutyHandlers: { test: { carryOut } },
  });
  const { membership } = instance.roster;
  world.areBeatsLost = true;
  await until(() => membership.unhealthyReason !== undefined, 'it to be unhealthy');
  const id = randomUUID();
  await createDuties(database, 'test', [id]);
  world.areBeatsLost = false;
  t.equal(await begun.promise, id);
});

t.test('agents that arrive do not wait for the statements of requests and tasks', async (t) => {
  const { instance, world } = await startCore(t);
  t.strictSame(instance.roster.readiness(), { ready: true, reasons: [] });
  world.isStuck = true;
  const serverUuid = randomUUID();
  t.equal(await instance.servers.sysinfoDigest(serverUuid), undefined);
  const { authority } = instance.roster;
  const socket = idleSocket();
  const acceptance = await authority.accept({ hello: helloOf(serverUuid), socket, isOpen: () => true });
  if (acceptance.kind !== 'accepted') throw new Error(acceptance.kind);
  t.ok(await authority.confirmInventory(acceptance.session));
});

t.test('each frame of agents about a system has one listener', async (t) => {
  const { subsystemHost } = await startCore(t);
  const ofLink = ['hello', 'inventory', 'heartbeat', 'error', 'sysinfo'];
  const ofSystems = Object.keys(agentFrames).filter((type) => !ofLink.includes(type));
  const heard = subsystemHost.agentListeners.flatMap(({ frames = {} }) => Object.keys(frames));
  t.strictSame(heard.toSorted(), ofSystems.toSorted());
});

t.test('whoever is not known cannot delay the return of agents', async (t) => {
  const { instance } = await startCore(t, { config: { maxAgents: 0 } });
  const { link } = instance;
  for (let each = 0; each < 5_000; each++) link.refuseArrival(() => false);
  t.ok((link.refuseArrival(() => false)?.retryAfterSeconds ?? 0) > 30);
  t.equal(link.refuseArrival(() => true)?.retryAfterSeconds, 1);
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
