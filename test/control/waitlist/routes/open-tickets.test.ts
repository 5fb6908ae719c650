/** Filters for the list of a server's tickets. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { call } from '../../http/support.ts';

t.test('tickets can be listed by open state, queue or request id', async (t) => {
  const { startApp } = await freshZone(t);
  const { url } = await startApp();
  const list = '/servers/default/tickets';
  const take = async (scope: string, id: string, reqid = randomUUID()): Promise<string> =>
    (await call(url, 'POST', list, { scope, id, expires_in: 3600 }, { 'x-request-id': reqid })).body.uuid;
  const reqid = randomUUID();
  const made = [await take('s', 'x'), await take('s', 'x'), await take('s', 'x', reqid), await take('other', 'x')];
  const [ended, active, mine, other] = made;
  await call(url, 'PUT', `/tickets/${ended}/release`, {});
  const uuids = async (query: string) =>
    (await call(url, 'GET', `${list}?${query}`)).body.map(({ uuid }: { uuid: string }) => uuid);
  t.same(await uuids('open=true'), [active, mine, other]);
  t.same(await uuids('open=true&scope=s&id=x'), [active, mine]);
  t.same(await uuids('open=true&scope=s&id=x&offset=1&limit=1'), [mine]);
  t.same(await uuids(`open=true&reqid=${reqid}`), [mine]);
  t.same(await uuids('open=true&scope=none'), []);
  t.same(await uuids('open=false'), made);
  t.match(await call(url, 'GET', `${list}?scope=s`), {
    status: 409,
    body: { code: 'InvalidArgument', message: /open=true/ },
  });
});
