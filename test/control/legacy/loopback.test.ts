/**
 * Whether an instance calls a legacy agent at a loopback address, as its configuration decides. The
 * test uses whole instances to find a setting that does not reach the caller, or reaches it
 * inverted.
 */
import t from 'tap';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { freshZone } from '../../support/apps.ts';
import { startFakeLegacyAgent } from '../../support/fake-legacy-agent.ts';
import { matchLists } from '../../support/match-lists.ts';

const cases: { when: string; config: Record<string, unknown>; isCalled: boolean }[] = [
  { when: 'anybody on this machine may do everything', config: { access: 'open' }, isCalled: true },
  { when: 'callers need tokens', config: { access: 'tokens' }, isCalled: false },
  {
    when: 'callers need tokens and the network of agents is on loopback',
    config: { access: 'tokens', agentNetworks: ['127.0.0.0/8'] },
    isCalled: true,
  },
  {
    when: 'callers need tokens and the network of agents is another one',
    config: { access: 'tokens', agentNetworks: ['10.99.0.0/24'] },
    isCalled: false,
  },
];

for (const { when, config, isCalled } of cases) {
  t.test(`a legacy agent on loopback is ${isCalled ? '' : 'not '}called when ${when}`, async (t) => {
    const zone = await freshZone(t);
    const app = await zone.startApp(config);
    const tokens = new Tokens({ database: zone.database, random });
    const tokenOf = async (role: 'agent' | 'operator') =>
      (await tokens.create({ name: `the ${role}`, role, createdBy: 'the test' })).token;
    const [agents, operators] = [await tokenOf('agent'), await tokenOf('operator')];
    const call = async <Body>(token: string, method: string, path: string, body?: object) => {
      const headers = { 'content-type': 'application/json', authorization: `Bearer ${token}` };
      const sent = body === undefined ? {} : { body: JSON.stringify(body) };
      const text = await (await fetch(`${app.url}${path}`, { method, headers, ...sent })).text();
      return (text === '' ? undefined : JSON.parse(text)) as Body;
    };
    const agent = await startFakeLegacyAgent(t);
    const { serverUuid: UUID, port } = agent;
    const place = { 'Admin IP': '127.0.0.1', 'CN Agent Port': port };
    await call(agents, 'POST', `/servers/${UUID}/sysinfo`, { sysinfo: { UUID, Hostname: 'old', ...place } });
    const { id } = await call<{ id: string }>(operators, 'POST', `/servers/${UUID}/tasks`, { task: 'nop', params: {} });
    const end = await call<Task>(operators, 'GET', `/tasks/${id}/wait?timeout=60`);
    t.equal(agent.received.length, isCalled ? 1 : 0);
    if (isCalled) t.match(end, { status: 'complete' });
    else
      matchLists(t, end, {
        status: 'failure',
        history: [{ event: { error: { code: 'NoAgentAddress', message: /loopback/ } } }, { name: 'finish' }],
      });
  });
}
