/** Where an instance sends its agents while its database does not answer. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { parseConfig } from '../../../../lib/control/config.ts';
import { incrementBeat, insertRun } from '../../../../lib/control/roster/membership/instance-store.ts';
import { Roster } from '../../../../lib/control/roster/roster.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import type { InstanceAddress } from '../../../../lib/protocol/link/frames.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { createMemoryBus, MemoryHub } from '../../../support/memory-bus.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';

t.test('its agents are sent to the instances that admit agents, and to no others', async (t) => {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const others = ['open', 'paced', 'closed'] as const;
  for (const [index, admission] of others.entries()) {
    const [run, port] = [randomUUID(), index + 1];
    await insertRun(
      database,
      run,
      { cnapiUuid: randomUUID(), url: '', host: '127.0.0.1', port, pid: 1, version: '0' },
      null,
    );
    await incrementBeat(database, run, { agents: 0, admission });
  }
  let isAway = false;
  const beatDatabase: Queryable = {
    query: (...statement) => (isAway ? Promise.reject(new DatabaseUnavailableError()) : database.query(...statement)),
  };
  const ports = { clock: systemClock, random: systemRandom, log: silentLogger };
  const cnapiUuid = randomUUID();
  const roster = new Roster({
    eventLoop: { busyShare: () => 0 },
    ...ports,
    database,
    beatDatabase,
    sessionLossDatabase: database,
    arrivalDatabase: database,
    bus: createMemoryBus({ hub: new MemoryHub(), ...ports }),
    cnapiUuid,
    identity: () => ({ cnapiUuid, url: '', host: '127.0.0.1', port: 9, pid: 1, version: '0' }),
    instance: { beginDrain() {}, endDrain() {}, unfinished: () => 0, endWaits() {}, stop: async () => {} },
    config: parseConfig({ databaseUrl: 'postgres://127.0.0.1/none' }),
  });
  t.teardown(() => roster.stop());
  await roster.start(new AbortController().signal);
  const told: InstanceAddress[][] = [];
  const socket = idleSocket({ askToLeave: (_reason, addresses) => void told.push([...addresses]) });
  const added = roster.sessions.add({
    serverUuid: randomUUID(),
    epoch: 1,
    incarnation: randomUUID(),
    journalId: randomUUID(),
    capabilities: new Set(),
    socket,
    run: roster.membership.run,
    heardAt: systemClock.now(),
  });
  if (added !== undefined) added.session.isInventoried = true;
  isAway = true;
  await until(() => told.length > 0, 'the agent to be asked to leave');
  t.same(told[0]?.map(({ port }) => port).toSorted(), [1, 2]);
});
