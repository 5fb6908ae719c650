/**
 * Whole instances: a token that is revoked at one of them is refused at the other, and what it
 * opened ends.
 */
import { once } from 'node:events';
import t, { type Test } from 'tap';
import { WebSocket } from 'ws';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { freshZone, type TestApp } from '../../support/apps.ts';
import { until } from '../../support/until.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

async function start(t: Test) {
  const { database, startApp } = await freshZone(t);
  const apps = [await startApp({ access: 'tokens' }), await startApp({ access: 'tokens' })] as const;
  const tokens = new Tokens({ database, random: systemRandom });
  const [admin, operator] = [await headersOf('admin'), await headersOf('operator')];
  async function headersOf(role: 'admin' | 'operator') {
    const { token, uuid } = await tokens.create({ name: role, role, createdBy: 'the test' });
    return { uuid, headers: { authorization: `Bearer ${token}` } };
  }
  return { apps, tokens, admin, operator };
}

const statusAt = async ({ url }: TestApp, path: string, headers: Record<string, string>) =>
  (await fetch(url + path, { headers })).status;

t.test('a token that is revoked at one instance is refused by another that uses it constantly', async (t) => {
  const { apps, admin, operator } = await start(t);
  const [a, b] = apps;
  const seen: number[] = [];
  let isOver = false;
  const caller = (async () => {
    while (!isOver) seen.push(await statusAt(b, '/servers', operator.headers));
  })();
  await until(async () => seen.length > 20, 'the token to be in use');
  const answer = await fetch(`${a.url}/tokens/${operator.uuid}`, { method: 'DELETE', headers: admin.headers });
  t.equal(answer.status, 204);
  await until(async () => seen.at(-1) === 401, 'the other instance to refuse it');
  const refusedFrom = seen.indexOf(401);
  const since = seen.length;
  await until(async () => seen.length > since + 20, 'some more requests');
  isOver = true;
  await caller;
  t.same(new Set(seen.slice(0, refusedFrom)), new Set([200]));
  t.same(new Set(seen.slice(refusedFrom)), new Set([401]), 'after the first refusal, all are refused');
});

t.test("an agent's link ends when its token is revoked, and cannot be opened again", async (t) => {
  const { apps, tokens, admin, operator } = await start(t);
  const [a, b] = apps;
  const made = await tokens.create({ name: 'agent', role: 'agent', createdBy: 'the test', serverUuid: SERVER });
  const dial = () => {
    const url = `${b.url.replace('http', 'ws')}/agents/${SERVER}/link`;
    const socket = new WebSocket(url, { headers: { authorization: `Bearer ${made.token}` } });
    socket.on('error', () => undefined);
    return socket;
  };
  const socket = dial();
  await once(socket, 'open');
  const closed = once(socket, 'close');
  await fetch(`${a.url}/tokens/${made.uuid}`, { method: 'DELETE', headers: admin.headers });
  await closed;
  await until(async () => {
    const again = dial();
    const [, response] = await once(again, 'unexpected-response').catch(() => []);
    again.terminate();
    return (response as { statusCode?: number } | undefined)?.statusCode === 401;
  }, 'a new link to be refused');
  t.equal(await statusAt(b, '/servers', operator.headers), 200, 'other tokens are not affected');
});

t.test('a wait at the other instance ends when its token is revoked', async (t) => {
  const { apps, admin, operator } = await start(t);
  const [a, b] = apps;
  const create = async () =>
    (await (
      await fetch(`${b.url}/servers/default/tickets`, {
        method: 'POST',
        headers: { ...operator.headers, 'content-type': 'application/json' },
        body: JSON.stringify({ scope: 'test', id: 'x', expires_in: 3600 }),
      })
    ).json()) as { uuid: string };
  await create();
  const { uuid } = await create();
  const wait = fetch(`${b.url}/tickets/${uuid}/wait`, { headers: operator.headers });
  await fetch(`${a.url}/tokens/${operator.uuid}`, { method: 'DELETE', headers: admin.headers });
  const answer = await wait;
  t.equal(answer.status, 401);
  t.match(await answer.json(), { code: 'TokenEnded' });
});
