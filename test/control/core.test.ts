import { randomUUID } from 'node:crypto';
import t from 'tap';
import { parseConfig } from '../../lib/control/config.ts';
import { Core } from '../../lib/control/core.ts';
import { Lifecycle } from '../../lib/control/lifecycle.ts';
import type { SessionSocket } from '../../lib/control/roster/sessions/session.ts';
import { migrations } from '../../lib/control/schema.ts';
import { coreSubsystems } from '../../lib/control/subsystems.ts';
import { systemClock as clock } from '../../lib/platform/clock.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import type { Database } from '../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import type { HelloFrame } from '../../lib/protocol/frames.ts';
import { createMemoryBus, MemoryHub } from '../support/memory-bus.ts';
import { freshDatabase } from '../support/postgres.ts';

t.test('agents that arrive do not wait for the statements of requests and tasks', async (t) => {
  const { database, url } = await freshDatabase(t);
  const world = { isStuck: false };
  const never = new Promise<never>(() => {});
  const main: Database = {
    query: (...statement) => (world.isStuck ? never : database.query(...statement)),
    transaction: (...work) => (world.isStuck ? never : database.transaction(...work)),
    stop: async () => {},
  };
  const cnapiUuid = randomUUID();
  const lifecycle = new Lifecycle({ databases: [main], migrations, clock, log });
  const instance = new Core({
    config: { ...parseConfig({ databaseUrl: url, cnapiUuid }), cnapiUuid },
    databases: { main, arrivals: database, beats: database, sessionLosses: database, legacyHeartbeats: database },
    bus: createMemoryBus({ hub: new MemoryHub(), clock, random, log }),
    ingress: { url: 'http://127.0.0.1:1', mayLog: () => true },
    newServers: { refusalOf: () => undefined },
    lifecycle,
    clock,
    eventLoop: { busyShare: () => 0 },
    random,
    log,
  });
  lifecycle.open(coreSubsystems, instance);
  t.teardown(() => lifecycle.stop());
  await lifecycle.start();
  t.strictSame(instance.roster.readiness(), { ready: true, reasons: [] });
  world.isStuck = true;
  const serverUuid = randomUUID();
  t.equal(await instance.servers.sysinfoDigest(serverUuid), undefined);
  const { authority } = instance.roster;
  const socket = { mayLog: () => false } as SessionSocket;
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
