/** How many unknown servers one caller may register. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { NewServerLimiter } from '../../../lib/control/access/new-server-limiter.ts';
import type { Actor } from '../../../lib/control/access/token.ts';
import { freshZone } from '../../support/apps.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

const HOUR_MS = 3_600_000;
const agent: Actor = { name: 'fleet', roles: ['agent'], tokenUuid: randomUUID() };

t.test('one caller may register a number of new servers per hour; each counts once', async (t) => {
  const clock = new ManualClock();
  const servers = new NewServerLimiter({ newServersPerHour: 2, clock });
  const refusal = (uuid: string, actor = agent) => servers.refusalOf(actor, '10.0.0.1', uuid);
  const [first, second, third] = [randomUUID(), randomUUID(), randomUUID()];
  t.equal(refusal(first), undefined);
  await clock.advance(HOUR_MS / 2);
  t.equal(refusal(second), undefined);
  t.match(refusal(third), { code: 'TooManyNewServers', statusCode: 429, retryAfterMs: HOUR_MS / 2 });
  t.equal(refusal(first), undefined, 'the same server again, because it was not stored');
  t.equal(refusal(third, { ...agent, serverUuid: third }), undefined, 'a token bound to one server');
  t.equal(refusal(third, { ...agent, tokenUuid: randomUUID() }), undefined, 'another token');
  t.equal(servers.refused, 1);
  await clock.advance(HOUR_MS / 2);
  t.equal(refusal(third), undefined, 'an hour after the first');
  t.match(refusal(randomUUID()), { retryAfterMs: HOUR_MS / 2 });
});

t.test('without a token the address is the caller; 0 means no limit', async (t) => {
  const trusted: Actor = { name: 'network 10.0.0.0/8', roles: ['agent'] };
  const one = new NewServerLimiter({ newServersPerHour: 1, clock: new ManualClock() });
  t.equal(one.refusalOf(trusted, '10.0.0.1', randomUUID()), undefined);
  t.ok(one.refusalOf(trusted, '::ffff:10.0.0.1', randomUUID()));
  t.equal(one.refusalOf(trusted, '10.0.0.2', randomUUID()), undefined);
  const none = new NewServerLimiter({ newServersPerHour: 0, clock: new ManualClock() });
  for (let each = 0; each < 5; each += 1) t.equal(none.refusalOf(trusted, '10.0.0.1', randomUUID()), undefined);
});

t.test('a server above the limit is refused over the link and by post, and leaves no row', async (t) => {
  const zone = await freshZone(t);
  const trustedNetworks = { '127.0.0.0/8': ['agent', 'reader'] };
  const app = await zone.startApp({ access: 'tokens', trustedNetworks, newServersPerHour: 2 });
  const post = (uuid: string) =>
    app.post<{ code?: string }>(`/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: 'posts' } });
  const connect = async (machine = newMachine()) => {
    const linked = await new ScriptedAgent(app.url, machine).open();
    t.teardown(() => linked.close());
    linked.hello();
    return until(() => linked.frames.find(({ type }) => type === 'welcome' || type === 'refuse'));
  };
  const posted = randomUUID();
  t.equal((await post(posted)).status, 200);
  t.match(await connect(), { type: 'welcome' });
  t.match(await connect(), { type: 'refuse', code: 'too-many-new-servers', retryAfterMs: Number });
  t.match(await post(randomUUID()), { status: 429, body: { code: 'TooManyNewServers' } });
  t.equal((await post(posted)).status, 200, 'a known server is not new');
  const { rows } = await zone.database.query(
    'select server_uuid from cnapi_roster_authority union select uuid from cnapi_servers where uuid is not null',
  );
  t.equal(rows.length, 2);
  t.match(await (await fetch(`${app.url}/metrics`)).text(), /^cnapi_access_new_servers_refused_total 2$/m);
});
