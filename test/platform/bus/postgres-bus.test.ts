import pg from 'pg';
import t, { type Test } from 'tap';
import { channelOf, createPostgresBus } from '../../../lib/platform/bus/postgres-bus.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { freshDatabase, startTestPostgres } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';
import { busContract, collect } from './contract.ts';

const ports = { clock: systemClock, random: systemRandom, log: silentLogger };

t.test('the postgres bus fulfils the contract', async (t) => {
  const { url } = await freshDatabase(t);
  const admin = await adminOf(t, url);
  await busContract(t, async () => ({
    open: () => createPostgresBus({ url, ...ports }),
    interrupt: async () => void (await terminate(admin, 'cnapi-bus-%')),
    sendRaw: async (topic, payload) => {
      await admin.query('select pg_notify($1, $2)', [channelOf(topic), payload]);
    },
  }));
});

for (const name of ['cnapi-bus-listen', 'cnapi-bus-notify']) {
  t.test(`when the backend of ${name} ends, both connections are opened again`, async (t) => {
    const { url } = await freshDatabase(t);
    const admin = await adminOf(t, url);
    const bus = createPostgresBus({ url, ...ports });
    t.teardown(() => bus.stop());
    await bus.start();
    const received = await collect(bus, 'task:1');
    t.equal(await terminate(admin, name), 1);
    await until(() => bus.stats().reconnects === 1 && bus.isHealthy());
    bus.publish('task:1', { n: 1 });
    await until(() => received.length === 1);
  });
}

t.test('thousands of topics are subscribed again after a reconnect', async (t) => {
  const { url } = await freshDatabase(t);
  const admin = await adminOf(t, url);
  const bus = createPostgresBus({ url, ...ports });
  t.teardown(() => bus.stop());
  await bus.start();
  let ready = 0;
  for (let n = 0; n < 3_000; n++)
    bus.subscribe(
      `task:${n}`,
      () => undefined,
      () => (ready += 1),
    );
  await until(() => ready === 3_000);
  await terminate(admin, 'cnapi-bus-%');
  await until(() => ready === 6_000);
  t.equal(bus.stats().topics, 3_000);
});

t.test('a frozen Postgres is detected, and the bus recovers after the thaw', async (t) => {
  const server = await startTestPostgres();
  t.teardown(() => server.close());
  const bus = createPostgresBus({ url: server.url, ...ports, beatMs: 100 });
  t.teardown(() => bus.stop());
  await bus.start();
  await until(() => bus.isHealthy());
  server.freeze();
  for (let n = 0; n < 5_000; n++) bus.publish('task:2', { n });
  t.equal(bus.stats().dropped, 4_000);
  await until(() => !bus.isHealthy() && bus.stats().dropped === 5_000);
  server.thaw();
  await until(() => bus.isHealthy());
});

t.test('start returns without a Postgres, and stop ends the attempts', async (t) => {
  const bus = createPostgresBus({ url: 'postgres://nobody@127.0.0.1:1/nowhere', ...ports });
  await bus.start();
  t.equal(bus.isHealthy(), false);
  await bus.stop();
});

t.test('a channel has at most 63 bytes: readable when short, a digest when long', async (t) => {
  t.equal(channelOf('task:1'), 'cnapi:task:1');
  t.equal(channelOf('x'.repeat(57)).length, 63);
  t.match(channelOf('x'.repeat(58)), /^cnapi:#[0-9a-f]{32}$/);
  t.not(channelOf('x'.repeat(58)), channelOf('x'.repeat(59)));
});

async function adminOf(t: Test, connectionString: string): Promise<pg.Client> {
  const client = new pg.Client({ connectionString });
  client.on('error', () => undefined);
  await client.connect();
  t.teardown(() => client.end());
  return client;
}

/**
 * Ends the backends of this database whose application name is like `name`, and returns their
 * number.
 */
async function terminate(admin: pg.Client, name: string): Promise<number> {
  const { rows } = await admin.query(
    `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name like $1`,
    [name],
  );
  return rows.length;
}
