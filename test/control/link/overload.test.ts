/**
 * Agents arrive many times as fast as two real instances admit them: all are connected in the end,
 * and those that were connected before stay so. The instances believe their event loops are busy,
 * so they admit at their minimum rate without any load.
 */
import t, { type Test } from 'tap';
import { SimulatedAgents } from '../../../lib/agent/simulated/fleet.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { HANG_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';

const STANDING = 20;
/** Two instances admit twenty of them at once, and then twenty per second. */
const ARRIVING = 160;

t.test('far more agents than two instances admit are all connected in the end, and none is lost', async (t) => {
  const zone = await freshZone(t);
  const busy = { share: 0 };
  const eventLoop = { busyShare: () => busy.share };
  const apps = [await zone.startApp({}, { eventLoop }), await zone.startApp({}, { eventLoop })];
  const standing = fleetOf(t, apps, { seed: 'standing', agents: STANDING });
  await standing.start();
  await until(() => standing.status().live === STANDING, 'the first agents to be connected');

  busy.share = 1;
  await until(
    async () => (await sumOf(apps, 'link_admission_rate')) <= 20,
    'the instances to admit at their minimum rate',
  );
  const arriving = fleetOf(t, apps, { seed: 'arriving', agents: ARRIVING });
  await arriving.start();
  await until(
    async () => (await sumOf(apps, 'link_upgrades_refused_total')) > ARRIVING / 2,
    'most to be told to return',
  );
  const { live } = arriving.status();
  t.ok(live < ARRIVING, `${live} of ${ARRIVING} are connected when most have been told to return`);
  await until(() => arriving.status().live === ARRIVING, 'all to be connected', 2 * HANG_MS);
  t.equal(standing.status().live, STANDING);

  const { rows } = await zone.database.query<{ status: string; count: number }>(
    'select status, count(*)::int as count from cnapi_status_history group by status',
  );
  t.same(
    rows,
    [{ status: 'running', count: STANDING + ARRIVING }],
    'each server became running once, and none unknown',
  );
});

function fleetOf(t: Test, apps: readonly TestApp[], size: { seed: string; agents: number }): SimulatedAgents {
  const addresses = apps.map(({ url }) => ({ host: '127.0.0.1', port: Number(new URL(url).port) }));
  const fleet = new SimulatedAgents({
    clock,
    random,
    log: silentLogger,
    resolve: async () => addresses,
    agentVersion: 'test',
    agentsPerSecond: 10_000,
    sysinfoSize: 'small',
    localAddresses: 0,
    ...size,
  });
  t.teardown(() => fleet.stop());
  return fleet;
}

async function sumOf(apps: readonly TestApp[], metric: string): Promise<number> {
  const values = apps.map(async ({ url }) => {
    const text = await (await fetch(`${url}/metrics`)).text();
    return Number(new RegExp(`^cnapi_${metric}(?:{.*})? (.*)$`, 'm').exec(text)?.[1] ?? 0);
  });
  return (await Promise.all(values)).reduce((sum, value) => sum + value, 0);
}
