/** A running server with a fake legacy agent, which posts heartbeats until the test ends. */
import type { TestApp } from './apps.ts';
import { type FakeLegacyAgent, startFakeLegacyAgent } from './fake-legacy-agent.ts';
import type { Teardown } from './postgres.ts';
import { until } from './until.ts';

/** A fraction of the silence after which a server is unknown, also on a slow machine. */
const HEARTBEAT_MS = 1_000;

/** Resolves when the instance says that the server is running. */
export async function startLegacyServer(t: Teardown, app: TestApp, sysinfo: object = {}): Promise<FakeLegacyAgent> {
  const agent = await startFakeLegacyAgent(t);
  const server = `/servers/${agent.serverUuid}`;
  const place = { 'Admin IP': '127.0.0.1', 'CN Agent Port': agent.port };
  await app.post(`${server}/sysinfo`, {
    sysinfo: { UUID: agent.serverUuid, Hostname: 'legacy', ...place, ...sysinfo },
  });
  const beat = () => app.post(`${server}/events/heartbeat`);
  await beat();
  const heartbeats = setInterval(() => void beat().catch(() => undefined), HEARTBEAT_MS);
  t.teardown(() => clearInterval(heartbeats));
  await until(async () => (await app.get<{ status?: string }>(server)).body.status === 'running', 'the server to run');
  return agent;
}
