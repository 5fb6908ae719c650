/**
 * Tasks that name a ticket, on every route that creates tasks. The rules are tested in
 * test/control/tasks/store/ticketed-store.test.ts.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { joinAgent, newMachine, type ScriptedAgent } from '../../../support/scripted-agent.ts';
import { until } from '../../../support/until.ts';
import { finished } from '../../http/stand-ins.ts';
import { call, SERVER, startApi, UNKNOWN_UUID } from '../../http/support.ts';

const routes: [path: string, body: object, status: number][] = [
  ['tasks', { task: 'nop' }, 202],
  ['nop', {}, 200],
  ['execute', { script: 'x' }, 500],
  ['sysinfo-refresh', {}, 500],
  ['cn-agent/pause', {}, 204],
  ['cn-agent/resume', {}, 204],
];

t.test('every route that creates a task accepts ticket_uuid and refuses an invalid one with 400', async (t) => {
  const { call, addServer, tasks } = await startApi(t);
  await addServer(SERVER);
  tasks.outcome = finished({});
  for (const [path, body, status] of routes) {
    const ticketed = await call('POST', `/servers/${SERVER}/${path}`, {
      ...body,
      ticket_uuid: UNKNOWN_UUID.toUpperCase(),
    });
    t.equal(ticketed.status, status, path);
    t.equal(tasks.created.pop()?.ticketUuid, UNKNOWN_UUID, path);
    await call('POST', `/servers/${SERVER}/${path}?ticket_uuid=${UNKNOWN_UUID}`, body);
    t.equal(tasks.created.pop()?.ticketUuid, UNKNOWN_UUID, `${path}, in the query`);
    await call('POST', `/servers/${SERVER}/${path}`, body);
    t.notOk('ticketUuid' in (tasks.created.pop() ?? {}), `${path} without one`);
    for (const ticket_uuid of ['zzz', '', null, 1])
      matchLists(
        t,
        await call('POST', `/servers/${SERVER}/${path}`, { ...body, ticket_uuid }),
        { status: 400, body: { code: 'InvalidParameters', errors: [{ field: 'ticket_uuid' }] } },
        `${path} ${ticket_uuid}`,
      );
    t.same(tasks.created, []);
  }
});

t.test('a task is accepted only while its ticket is active, on whichever instance', async (t) => {
  const zone = await freshZone(t);
  const [a, b] = [(await zone.startApp()).url, (await zone.startApp()).url];
  const { agent, server } = await startServer(t, a);
  const add = (place = server) => addTicket(a, place);
  const [first, second] = [await add(), await add()];
  const nop = (ticket_uuid: string) => call(b, 'POST', `${server}/nop`, { ticket_uuid });

  const { id } = (await nop(first)).body;
  t.equal((await agent.next('task')).id, id);
  t.equal((await call(b, 'GET', `/tasks/${id}`)).body.ticket_uuid, first);
  t.match(await nop(second), {
    status: 409,
    body: { code: 'TicketNotActive', message: new RegExp(`^Ticket ${second} is queued`) },
  });
  t.match(await call(b, 'POST', `${server}/execute`, { script: 'x', ticket_uuid: second }), {
    status: 409,
    body: { code: 'TicketNotActive' },
  });
  await call(b, 'PUT', `/tickets/${first}/release`);
  t.equal((await nop(second)).status, 200);
  t.match(await nop(first), { status: 409, body: { message: /is finished/ } });
  t.match(await nop(randomUUID()), { status: 409, body: { code: 'TicketNotActive', message: /There is no ticket/ } });
  const other = (await startServer(t, b)).server;
  t.match(await nop(await add(other)), { status: 409, body: { code: 'TicketOfAnotherServer' } });
  t.equal((await nop(await add('/servers/default'))).status, 200, 'a ticket of the whole datacenter');
});

t.test('a request repeated with its key gets its task, even if ticket and server are gone', async (t) => {
  const zone = await freshZone(t);
  const { url } = await zone.startApp();
  const { agent, server } = await startServer(t, url);
  const ticket_uuid = await addTicket(url, server);
  const send = () => call(url, 'POST', `${server}/tasks`, { task: 'nop', ticket_uuid }, { 'idempotency-key': 'k' });
  const { id } = (await send()).body;
  await call(url, 'DELETE', `/tickets/${ticket_uuid}`);
  t.match(await send(), { status: 202, body: { id } });
  agent.close();
  await until(async () => (await call(url, 'GET', server)).body.status === 'unknown');
  t.match(await send(), { status: 202, body: { id } });
});

/** A server whose agent is connected and whose sysinfo is stored. */
async function startServer(t: Test, url: string): Promise<{ agent: ScriptedAgent; server: string }> {
  const machine = newMachine();
  const { agent } = await joinAgent(url, machine);
  t.teardown(() => agent.close());
  const server = `/servers/${machine.serverUuid}`;
  await until(async () => (await call(url, 'GET', server)).body.status === 'running');
  return { agent, server };
}

async function addTicket(url: string, server: string): Promise<string> {
  const { status, body } = await call(url, 'POST', `${server}/tickets`, { scope: 'vm', id: 'one', expires_in: 3600 });
  if (status !== 202) throw new Error(JSON.stringify(body));
  return body.uuid;
}
