/**
 * How an instance treats a row that names a dead run, or that has just moved to its own new run.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { Authority } from '../../../lib/control/roster/accept/authority.ts';
import { endRun, insertRun } from '../../../lib/control/roster/membership/instance-store.ts';
import { type SessionSocket, SessionTable } from '../../../lib/control/roster/sessions/session.ts';
import type { SessionLosses } from '../../../lib/control/roster/sessions/session-losses.ts';
import { acceptSession, type RunIdentity, readRow, renewRun } from '../../../lib/control/roster/status/roster-store.ts';
import type { Bus } from '../../../lib/platform/bus/bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { HelloFrame } from '../../../lib/protocol/link/frames.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';

const newHello = (serverUuid: string): HelloFrame =>
  ({
    serverUuid,
    incarnation: randomUUID(),
    conn: 1,
    journalId: randomUUID(),
    epoch: 0,
    capabilities: [],
  }) as unknown as HelloFrame;

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const newRun = async (cnapiUuid: string): Promise<RunIdentity> => {
    const run = randomUUID();
    const identity = { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
    await insertRun(database, run, identity, null);
    return { cnapiUuid, run };
  };
  const world = { me: await newRun(randomUUID()), probed: 0, superseded: 0 };
  const authority = new Authority({
    database,
    arrivalDatabase: database,
    sessions: new SessionTable(),
    sessionLosses: {
      forget: () => undefined,
      supersede: () => {
        world.superseded += 1;
      },
    } as unknown as SessionLosses,
    probes: {
      async isAlive() {
        world.probed += 1;
        return true;
      },
    },
    bus: { publish: () => undefined } as unknown as Bus,
    writer: () => world.me,
    clock: systemClock,
    log: silentLogger,
  });
  const socket = { mayLog: () => false } as SessionSocket;
  const accept = (hello: HelloFrame) => authority.accept({ hello, socket, isOpen: () => true });
  return { database, newRun, world, authority, accept };
}

t.test("another incarnation's session is probed at a live run, and not at a dead one", async (t) => {
  const { database, newRun, world, accept } = await start(t);
  const other = await newRun(randomUUID());
  const [first, second] = [newHello(randomUUID()), newHello(randomUUID())];
  for (const hello of [first, second]) await acceptSession(database, other, hello, null);
  t.match(await accept(newHello(first.serverUuid)), { kind: 'refused', refusal: { code: 'incarnation-alive' } });
  t.equal(world.probed, 1);
  await endRun(database, other.run);
  t.match(await accept(newHello(second.serverUuid)), { kind: 'accepted' });
  t.equal(world.probed, 1, 'a dead run would not have received the probe');
});

t.test('an inventory counts if its row, but not yet its session, has moved to the new run', async (t) => {
  const { database, newRun, world, authority, accept } = await start(t);
  const hello = newHello(randomUUID());
  const accepted = await accept(hello);
  if (accepted.kind !== 'accepted') throw new Error(accepted.kind);
  const { session } = accepted;
  await endRun(database, world.me.run);
  world.me = await newRun(world.me.cnapiUuid);
  await renewRun(database, world.me.run, [session]);
  t.equal(await authority.confirmInventory(session), true);
  t.equal(world.superseded, 0);
  t.match(await readRow(database, hello.serverUuid), { run: world.me.run, inventoryEpoch: session.epoch });
});

t.test('an inventory of a session whose row belongs to another run is refused', async (t) => {
  const { database, newRun, world, authority, accept } = await start(t);
  const hello = newHello(randomUUID());
  const accepted = await accept(hello);
  if (accepted.kind !== 'accepted') throw new Error(accepted.kind);
  await acceptSession(database, await newRun(randomUUID()), { ...hello, conn: 2, epoch: 1 }, null);
  world.me = await newRun(world.me.cnapiUuid);
  t.equal(await authority.confirmInventory(accepted.session), false);
  t.equal(world.superseded, 1);
});
