import { setTimeout as sleep } from 'node:timers/promises';
import { faultTest } from '../support/fault-test.ts';
import { statusOf } from '../support/fleet-harness.ts';
import { until } from '../support/until.ts';

faultTest(
  'an instance that alone loses the database gives its agents to the others',
  { databaseProxied: true },
  async ({ t, zone }) => {
    const unhealthy = await zone.holderOf(zone.agents[0]?.serverUuid ?? '');
    const agents = async () => {
      const statement = 'select count(*)::int as count from cnapi_roster_authority where cnapi_uuid = $1';
      return (await zone.sql<{ count: number }>(statement, [unhealthy.uuid]))[0]?.count;
    };
    unhealthy.databaseProxy?.swallow();
    await until(async () => (await statusOf(`${unhealthy.url}/ready`)) === 503);
    await until(async () => (await agents()) === 0);
    t.pass('it is not ready, and its agents have moved to the others');
    await sleep(8_000);
    unhealthy.databaseProxy?.heal();
    await zone.ready(unhealthy);
    await sleep(12_000);
  },
);
