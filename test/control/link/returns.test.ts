import t from 'tap';
import { RETURN_BURST, RETURN_EVERY_MS } from '../../../lib/control/roster/status/authority-row.ts';
import { freshZone } from '../../support/apps.ts';
import { newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.test('an agent that reconnects again and again is told to wait and does not fill the history', async (t) => {
  const zone = await freshZone(t);
  const instances = [await zone.startApp(), await zone.startApp()];
  const machine = newMachine();
  const history = async () =>
    (await instances[0]?.get<{ status: string }[]>(`/servers/${machine.serverUuid}/status-history?limit=1000`))?.body ??
    [];
  let refusal: object | undefined;
  let epoch = 0;
  for (let conn = 1; refusal === undefined && conn < 100; conn += 1) {
    const agent = await new ScriptedAgent(instances[conn % 2]?.url ?? '', machine).open();
    agent.hello({ conn, epoch });
    const answer = await until(() => agent.frames.find(({ type }) => type === 'welcome' || type === 'refuse'));
    if (answer.type === 'refuse') refusal = answer;
    if (answer.type === 'welcome') epoch = answer.epoch;
    agent.close();
    await until(async () => (await history())[0]?.status === 'unknown');
  }
  t.match(refusal, { code: 'returns-too-often', retryAfterMs: Number });
  const counted = await Promise.all(instances.map(async ({ url }) => (await fetch(`${url}/metrics`)).text()));
  t.equal(counted.filter((text) => /^cnapi_link_returns_refused_total 1$/m.test(text)).length, 1);
  const { retryAfterMs = 0 } = refusal as { retryAfterMs?: number };
  t.ok(retryAfterMs > 0 && retryAfterMs <= RETURN_EVERY_MS, `told to return in ${retryAfterMs} ms`);
  // On a slow machine some periods have passed meanwhile.
  const entries = await history();
  t.ok(entries.length >= 2 * RETURN_BURST && entries.length % 2 === 0, `${entries.length} entries`);
});
