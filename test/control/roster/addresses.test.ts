/**
 * Which instances the agents are told to connect to: never one that is about to leave. And whether
 * any has room.
 */
import t from 'tap';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { joinAgent, newMachine } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const uuidsOf = (addresses: readonly { uuid: string }[] | undefined) => addresses?.map(({ uuid }) => uuid).sort();

t.test('agents are told the addresses of staying instances only, not of draining ones', async (t) => {
  const { startApp } = await freshZone(t);
  // The first instance keeps its agent until the test ends, so it drains while the others are
  // checked.
  const leaving = await startApp({ drainAgentsMs: 600_000, drainWaitsMs: 600_000 });
  const others = [await startApp(), await startApp()];
  const sees = async (app: TestApp, count: number, state: string) => {
    const { body } = await app.get<{ state: string }[]>('/instances');
    return body.filter((instance) => instance.state === state).length === count || undefined;
  };
  for (const app of [leaving, ...others]) await until(() => sees(app, 3, 'live'), 'all to know each other');
  const { agent: kept } = await joinAgent(leaving.url, newMachine());
  t.teardown(() => kept.close());
  const all = [leaving, ...others].map(({ cnapiUuid }) => cnapiUuid).sort();
  const welcomed = async (app: TestApp) => {
    const { agent } = await joinAgent(app.url, newMachine());
    const { addresses } = await agent.next('welcome');
    agent.close();
    return uuidsOf(addresses);
  };
  for (const app of others) t.same(await until(() => isAll(app), 'every instance to list all addresses'), all);
  async function isAll(app: TestApp) {
    const uuids = await welcomed(app);
    return uuids?.length === all.length ? uuids : undefined;
  }

  leaving.app.drain('the test');
  const staying = others.map(({ cnapiUuid }) => cnapiUuid).sort();
  const { addresses } = await kept.next('goaway');
  t.same(uuidsOf(addresses), staying, 'its own agents are told the addresses of the others');
  // Each instance reads the others with its beat, and passes on to its agents what it has read.
  for (const app of others) {
    const seen = await until(async () => {
      const uuids = await welcomed(app);
      return uuids?.includes(leaving.cnapiUuid) ? undefined : uuids;
    }, 'the leaving instance to disappear from the list');
    t.same(seen, staying);
  }
});

t.test('the zone is at capacity only while every staying instance is full', async (t) => {
  const { startApp } = await freshZone(t);
  const apps = [await startApp({ maxAgents: 1 }), await startApp({ maxAgents: 1 })];
  const becomes = (value: 0 | 1) =>
    until(async () => {
      const texts = await Promise.all(apps.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()));
      return texts.every((text) => text.includes(`\ncnapi_zone_at_capacity ${value}\n`));
    }, `cnapi_zone_at_capacity ${value}`);
  await becomes(0);
  const agents = [];
  for (const { url } of apps) agents.push((await joinAgent(url, newMachine())).agent);
  await becomes(1);
  agents.pop()?.close();
  await becomes(0);
  agents.pop()?.close();
});
