/**
 * Accepts on real Postgres: how a new session affects a status change that still waits for the
 * database.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { parseConfig } from '../../../../lib/control/config.ts';
import { Roster } from '../../../../lib/control/roster/roster.ts';
import type { Session } from '../../../../lib/control/roster/sessions/session.ts';
import { readRow } from '../../../../lib/control/roster/status/roster-store.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';

const socket = idleSocket();

t.test('an agent that is accepted again stays running although its earlier loss could not be written', async (t) => {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const world = { isAway: true, refusals: 0, writes: 0 };
  /** The connection for status changes. It can fail while the others work. */
  const statusDatabase: Queryable = {
    async query(text, values, options) {
      world.writes += 1;
      if (!world.isAway) return database.query(text, values, options);
      world.refusals += 1;
      throw new DatabaseUnavailableError();
    },
  };
  const ports = { clock: systemClock, random: systemRandom, log: silentLogger };
  const roster = new Roster({
    eventLoop: { busyShare: () => 0 },
    ...ports,
    database,
    beatDatabase: database,
    sessionLossDatabase: statusDatabase,
    arrivalDatabase: database,
    bus: createMemoryBus({ hub: new MemoryHub(), ...ports }),
    cnapiUuid: randomUUID(),
    identity: () => ({ cnapiUuid: '', url: '', host: '127.0.0.1', port: 1, pid: 1, version: '0' }),
    instance: { beginDrain() {}, endDrain() {}, unfinished: () => 0, endWaits() {}, stop: async () => {} },
    config: parseConfig({ databaseUrl: 'postgres://127.0.0.1/none' }),
  });
  t.teardown(() => roster.stop());
  const [serverUuid, other] = [randomUUID(), randomUUID()];
  const hellos = new Map<string, ReturnType<typeof helloOf>>([serverUuid, other].map((uuid) => [uuid, helloOf(uuid)]));
  const accept = async (uuid: string): Promise<Session> => {
    const hello = hellos.get(uuid);
    if (hello === undefined) throw new Error('no such agent');
    hello.conn += 1;
    const acceptance = await roster.authority.accept({ hello: { ...hello }, socket, isOpen: () => true });
    if (acceptance.kind !== 'accepted') throw new Error(`the agent was not accepted: ${JSON.stringify(acceptance)}`);
    return acceptance.session;
  };
  const session = await accept(serverUuid);
  roster.sessionLosses.lose(session, 'closed');
  await until(() => world.refusals > 0, 'the status change to be refused');
  // A failover to a standby that had not yet received the session: its epoch is assigned a second
  // time.
  await database.query('delete from cnapi_roster_authority where server_uuid = $1::uuid', [serverUuid]);
  const again = await accept(serverUuid);
  t.equal(again.epoch, session.epoch, 'the database has forgotten the epoch');
  roster.sessionLosses.lose(await accept(other), 'closed');
  world.isAway = false;
  await until(
    async () => (await readRow(database, other))?.status === 'unknown',
    'the pending status change to be written',
  );
  t.match(await readRow(database, serverUuid), { status: 'running', epoch: again.epoch });
  t.equal(again.isEnded, false);
});

function helloOf(serverUuid: string) {
  return {
    type: 'hello' as const,
    version: 1,
    capabilities: [],
    serverUuid,
    incarnation: randomUUID(),
    conn: 0,
    journalId: randomUUID(),
    epoch: 0,
    bootId: 'boot',
    agentVersion: '0.1.0',
    sysinfoDigest: 'none',
  };
}
