/**
 * Tickets over two whole instances: the answers of Triton's CNAPI in its words, and each deliberate
 * difference (docs/compatibility.md gives the reasons).
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { freshZone } from '../../../support/apps.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { until } from '../../../support/until.ts';
import { type Answer, call, UNKNOWN_UUID } from '../../http/support.ts';

const HOUR = { expires_in: 3600 };

t.test('tickets on two instances', async (t) => {
  const zone = await freshZone(t);
  const [a, b] = [(await zone.startApp()).url, (await zone.startApp()).url];
  const server = await newServer(a);
  const tickets = `/servers/${server}/tickets`;

  /** A ticket in a queue of its own, or in the queue of `id`; created on A. */
  async function add(id: string = randomUUID(), fields: object = {}): Promise<string> {
    const { status, body } = await call(a, 'POST', tickets, { scope: 'test', id, ...HOUR, ...fields });
    if (status !== 202) throw new Error(`${status} ${JSON.stringify(body)}`);
    return body.uuid;
  }
  /** Two tickets of a new queue. */
  async function addQueued(fields: object = {}): Promise<[first: string, second: string]> {
    const id = randomUUID();
    return [await add(id), await add(id, fields)];
  }
  const statusOf = async (uuid: string) => (await call(b, 'GET', `/tickets/${uuid}`)).body.status;
  const release = (uuid: string) => call(b, 'PUT', `/tickets/${uuid}/release`, {});
  /** Starts a wait on B and resolves when it has begun; the test awaits the answer. */
  async function startWait(uuid: string, query = ''): Promise<{ answer: Promise<Answer> }> {
    const before = await waits(b);
    const answer = call(b, 'GET', `/tickets/${uuid}/wait${query}`);
    await until(async () => (await waits(b)) > before);
    return { answer };
  }

  t.test("as Triton's CNAPI: the first ticket is active at once, later ones wait in order", async (t) => {
    const asked = { scope: 'vm', id: 'one', action: 'provision', extra: { owner: 'x' }, expires_at: '3000' };
    const first = await call(a, 'POST', tickets, { ...asked, nonsense: 1, status: 'finished', uuid: UNKNOWN_UUID });
    t.equal(first.status, 202);
    t.same(Object.keys(first.body), ['uuid', 'queue']);
    t.not(first.body.uuid, UNKNOWN_UUID, 'unknown and read-only keys are dropped');
    const { uuid, created_at, updated_at, reqid: _reqid, ...rest } = first.body.queue[0];
    t.equal(uuid, first.body.uuid);
    t.equal(new Date(created_at).toISOString(), created_at);
    t.equal(new Date(updated_at).toISOString(), updated_at);
    t.same(rest, { ...asked, server_uuid: server, actor: 'open', status: 'active' });
    const second = await call(b, 'POST', tickets, { scope: 'vm', id: 'one', expires_at: '2999-12-31T23:59:59.000Z' });
    matchLists(t, second.body.queue, [
      { uuid: first.body.uuid, status: 'active' },
      { uuid: second.body.uuid, status: 'queued', expires_at: '2999-12-31T23:59:59.000Z', extra: {} },
    ]);
    t.notOk('action' in second.body.queue[1], 'an omitted field is absent');
    t.match((await call(b, 'GET', `/tickets/${uuid.toUpperCase()}`)).body, first.body.queue[0]);
    const form = 'scope=vm&id=formed&expires_at=3000';
    const formed = await call(a, 'POST', tickets, form, { 'content-type': 'application/x-www-form-urlencoded' });
    matchLists(t, formed.body.queue, [{ id: 'formed', status: 'active' }]);
  });

  t.test("as Triton's CNAPI: queues of servers and of the datacenter are separate", async (t) => {
    const other = await newServer(a);
    for (const place of [server, other, 'default']) {
      const { status, body } = await call(a, 'POST', `/servers/${place}/tickets`, { scope: 's', id: 'same', ...HOUR });
      t.equal(status, 202, place);
      matchLists(t, body.queue, [{ server_uuid: place, status: 'active' }], place);
    }
    t.match(await call(a, 'POST', `/servers/${UNKNOWN_UUID}/tickets`, { scope: 's', id: 'i', ...HOUR }), {
      status: 404,
      body: { code: 'ResourceNotFound', message: `Server ${UNKNOWN_UUID} not found` },
    });
  });

  t.test("as Triton's CNAPI: a list has tickets of every status in order of creation, in pages", async (t) => {
    const list = `/servers/${await newServer(a)}/tickets`;
    const made: string[] = [];
    for (const id of ['x', 'x', 'y']) made.push((await call(a, 'POST', list, { scope: 's', id, ...HOUR })).body.uuid);
    await release(made[0] ?? '');
    const seen = (await call(b, 'GET', list)).body.map((ticket: Record<string, unknown>) => [
      ticket.uuid,
      ticket.status,
    ]);
    t.same(seen, [
      [made[0], 'finished'],
      [made[1], 'active'],
      [made[2], 'active'],
    ]);
    const uuids = async (query: string) =>
      (await call(b, 'GET', `${list}?${query}`)).body.map(({ uuid }: { uuid: string }) => uuid);
    t.same(await uuids('limit=1&offset=1'), [made[1]]);
    t.same(await uuids('limit=1000&order=DESC&attribute=id'), made, 'order and attribute have no effect');
    t.match(await call(b, 'GET', `${list}?limit=1001`), {
      status: 409,
      body: { code: 'InvalidArgument', message: 'limit must be less than 1000' },
    });
    for (const limit of ['0', '-1', '1up', '1.5'])
      t.match(
        await call(b, 'GET', `${list}?limit=${limit}`),
        { status: 500, body: { code: 'InvalidParameters' } },
        limit,
      );
    t.equal((await call(b, 'GET', `${list}?offset=-1`)).status, 500);
    t.match((await call(b, 'GET', `${list}?status=active`)).body, {
      code: 'InvalidArgument',
      message: 'status is not an explicitly defined parameter',
    });
  });

  t.test("as Triton's CNAPI: a wait is 204 once the ticket is active, on any instance", async (t) => {
    const [first, second] = await addQueued();
    const active = await call(b, 'GET', `/tickets/${first}/wait`);
    t.match(active, { status: 204, text: '' });
    const { answer } = await startWait(second);
    const another = call(a, 'GET', `/tickets/${second}/wait?timeout=60`);
    t.match(await release(first), { status: 204, text: '' });
    t.equal((await answer).status, 204);
    t.equal((await another).status, 204, 'any number of waits');
  });

  t.test("as Triton's CNAPI: an expired ticket is 500, in two wordings", async (t) => {
    const [, second] = await addQueued({ expires_in: 5 });
    const { answer } = await startWait(second);
    t.match(await answer, { status: 500, body: { code: 'InternalError', message: 'ticket has expired' } });
    const late = await call(b, 'GET', `/tickets/${second}/wait`);
    t.match(late, { status: 500, body: { code: 'InternalError', message: `ticket ${second} is expired` } });
  });

  t.test("as Triton's CNAPI: an expiry in the past is accepted, and the ticket soon expires", async (t) => {
    const made = await call(a, 'POST', tickets, { scope: 's', id: 'past', expires_at: '2001-01-01T00:00:00Z' });
    t.equal(made.status, 202);
    // Another instance may expire it before the answer has read the queue.
    for (const one of made.body.queue) t.match(one, { status: 'active', expires_at: '2001-01-01T00:00:00Z' });
    await until(async () => (await statusOf(made.body.uuid)) === 'expired');
  });

  t.test("as Triton's CNAPI: release is 204 whatever the status, and activates the next ticket", async (t) => {
    const [first, second] = await addQueued();
    t.equal((await release(first)).status, 204);
    t.equal(await statusOf(first), 'finished');
    t.equal(await statusOf(second), 'active');
    t.equal((await release(first)).status, 204, 'a second time');
    const gone = await add(undefined, { expires_in: 0.001 });
    await until(async () => (await statusOf(gone)) === 'expired');
    t.equal((await release(gone)).status, 204);
    t.equal(await statusOf(gone), 'expired', "it stays expired; in Triton's CNAPI it becomes finished");
    t.equal((await call(a, 'PUT', `/tickets/${first}/release`)).status, 204, 'without a body');
  });

  t.test("as Triton's CNAPI: deleting a ticket is 204 and activates the next one", async (t) => {
    const [first, second] = await addQueued();
    t.match(await call(b, 'DELETE', `/tickets/${first}`), { status: 204, text: '' });
    t.equal((await call(a, 'GET', `/tickets/${first}`)).status, 404);
    t.equal(await statusOf(second), 'active');
  });

  t.test("as Triton's CNAPI: deleting all tickets of a server without ?force=true is 412", async (t) => {
    const other = await newServer(a);
    const all = `/servers/${other}/tickets`;
    await call(a, 'POST', all, { scope: 's', id: 'i', ...HOUR });
    const queued = (await call(a, 'POST', all, { scope: 's', id: 'i', ...HOUR })).body.uuid;
    for (const query of ['', '?force=1', '?force=false', '?force=TRUE'])
      t.match(
        await call(a, 'DELETE', all + query),
        {
          status: 412,
          body: { code: 'PreconditionFailed', message: 'Will not delete all tickets without ?force=true' },
        },
        query,
      );
    const { answer } = await startWait(queued);
    t.match(await call(a, 'DELETE', `${all}?force=true`), { status: 204, text: '' });
    t.match(await answer, { status: 404 }, "the wait is answered; in Triton's CNAPI it never ends");
    t.same((await call(a, 'GET', all)).body, []);
    t.equal((await call(a, 'DELETE', `${all}?force=true`)).status, 204, 'with no ticket left');
    t.equal((await call(a, 'DELETE', `/servers/${UNKNOWN_UUID}/tickets?force=true`)).status, 404);
  });

  t.test("as Triton's CNAPI: an unknown ticket is 404 with its text", async (t) => {
    const notFound = (message: string) => ({ status: 404, body: { code: 'ResourceNotFound', message } });
    t.match(await call(a, 'GET', `/tickets/${UNKNOWN_UUID}/wait`), notFound(`no such ticket ${UNKNOWN_UUID}`));
    t.match(await call(a, 'GET', `/tickets/${UNKNOWN_UUID}`), notFound(`ticket ${UNKNOWN_UUID} not found`));
    t.match(await call(a, 'PUT', `/tickets/${UNKNOWN_UUID}/release`, {}), notFound(`ticket ${UNKNOWN_UUID} not found`));
  });

  t.test("where Triton's CNAPI crashes: an id that is not a UUID is 409 and named", async (t) => {
    const calls = [
      ['GET', ''],
      ['GET', '/wait'],
      ['PUT', '/release'],
      ['DELETE', ''],
      ['POST', '/renew'],
    ] as const;
    for (const [method, path] of calls)
      t.match(
        await call(a, method, `/tickets/zzz${path}`, method === 'GET' ? undefined : {}),
        { status: 409, body: { code: 'InvalidArgument', message: 'Invalid ticket_uuid' } },
        `${method} ${path}`,
      );
    t.match((await call(a, 'POST', '/servers/zzz/tickets', {})).body, { message: 'Invalid server_uuid' });
  });

  t.test("where Triton's CNAPI crashes: an invalid ticket is 400 with all errors", async (t) => {
    const rows: [string, object, string[]][] = [
      ['nothing', {}, ['scope', 'id', 'expires_at']],
      ['a number for an id', { scope: 's', id: 1, expires_at: '3000' }, ['id']],
      ['without an expiry', { scope: 's', id: 'i' }, ['expires_at']],
      ['null as expiry', { scope: 's', id: 'i', expires_at: null }, ['expires_at']],
      ['a number as expiry', { scope: 's', id: 'i', expires_at: 3000 }, ['expires_at']],
      ['two expiries', { scope: 's', id: 'i', expires_at: '3000', expires_in: 5 }, ['expires_at']],
      ['an invalid duration', { scope: 's', id: 'i', expires_in: 'soon' }, ['expires_in']],
      ['a duration of zero', { scope: 's', id: 'i', expires_in: 0 }, ['expires_in']],
      ['an invalid time', { scope: 's', id: 'i', expires_at: 'tomorrow' }, ['expires_at']],
      ['an empty text', { scope: '', id: 'i', ...HOUR }, ['scope']],
      ['a text that is too long', { scope: 's', id: 'i'.repeat(10_000), ...HOUR }, ['id']],
      ['wrong types', { scope: 's', id: 'i', ...HOUR, action: 1, extra: [] }, ['action', 'extra']],
    ];
    for (const [name, body, fields] of rows) {
      const answer = await call(a, 'POST', tickets, body);
      t.match(answer, { status: 400, body: { code: 'InvalidParameters' } }, name);
      t.same(
        answer.body.errors?.map(({ field }: { field: string }) => field),
        fields,
        name,
      );
    }
  });

  t.test("where Triton's CNAPI waits for ever: a finished ticket is 409, before and during a wait", async (t) => {
    const [first, second] = await addQueued();
    const { answer } = await startWait(second);
    await release(second);
    const finished = { status: 409, body: { code: 'TicketFinished', message: new RegExp(second) } };
    t.match(await answer, finished);
    t.match(await call(a, 'GET', `/tickets/${second}/wait`), finished);
    t.equal(await statusOf(first), 'active', 'the other ticket stays active');
  });

  t.test("where Triton's CNAPI waits for ever: a ticket deleted during a wait is 404", async (t) => {
    // A wait is counted before it has read its ticket. If the ticket is gone by then, the answer
    // differs, so try again.
    await until(async () => {
      const [, second] = await addQueued();
      const { answer } = await startWait(second);
      await call(a, 'DELETE', `/tickets/${second}`);
      const { status, body } = await answer;
      t.match({ status, body }, { status: 404, body: { code: 'ResourceNotFound' } });
      return /was deleted/.test(body.message);
    });
  });

  t.test("where Triton's CNAPI fails: deleting an unknown ticket is 404", async (t) => {
    t.match(await call(a, 'DELETE', `/tickets/${UNKNOWN_UUID}`), {
      status: 404,
      body: { code: 'ResourceNotFound', message: `ticket ${UNKNOWN_UUID} not found` },
    });
  });

  t.test("where Triton's CNAPI loses tickets: an id may be any text", async (t) => {
    for (const id of ['a(b', '*', 'x)(status=active', "'; --", '\u{1f512} ü', '%2F/..'])
      matchLists(
        t,
        (await call(a, 'POST', tickets, { scope: 's', id, ...HOUR })).body.queue,
        [{ id, status: 'active' }],
        id,
      );
  });

  t.test('ours: a wait that times out is 408, keeps its place and can be repeated', async (t) => {
    const [first, second] = await addQueued();
    const { status, body, headers } = await call(b, 'GET', `/tickets/${second}/wait?timeout=0`);
    t.equal(status, 408);
    t.match(body, { code: 'TicketWaitTimeout', message: new RegExp(second) });
    t.equal(headers.get('retry-after'), '0');
    t.equal(await statusOf(second), 'queued', 'the ticket keeps its place');
    t.equal((await call(b, 'GET', `/tickets/${second}/wait?timeout=1`)).status, 408);
    await release(first);
    t.equal((await call(b, 'GET', `/tickets/${second}/wait?timeout=60`)).status, 204);
    t.equal((await call(b, 'GET', `/tickets/${first}/wait?timeout=soon`)).status, 500, 'as in other waits');
    t.equal(
      (await call(b, 'GET', `/tickets/${second}/wait?timeout=86400`)).status,
      204,
      'more than an hour counts as one hour',
    );
  });

  t.test('ours: renew moves the expiry of an active or queued ticket and revives none', async (t) => {
    const [first, second] = await addQueued();
    const renewed = await call(b, 'POST', `/tickets/${first}/renew`, { expires_at: '2999-01-01T00:00:00Z' });
    t.match(renewed, { status: 200, body: { uuid: first, status: 'active', expires_at: '2999-01-01T00:00:00Z' } });
    t.match(await call(a, 'POST', `/tickets/${second}/renew`, { expires_in: 7200 }), {
      status: 200,
      body: { uuid: second, status: 'queued', expires_at: /^\d{4}-.*Z$/ },
    });
    await release(first);
    t.match(await call(a, 'POST', `/tickets/${first}/renew`, HOUR), { status: 409, body: { code: 'TicketEnded' } });
    t.match(await call(a, 'POST', `/tickets/${UNKNOWN_UUID}/renew`, HOUR), { status: 404 });
    matchLists(t, await call(a, 'POST', `/tickets/${second}/renew`, {}), {
      status: 400,
      body: { errors: [{ field: 'expires_at', message: /expires_in/ }] },
    });
    t.match(await call(a, 'POST', `/tickets/${second}/renew`, { ...HOUR, scope: 's' }), { status: 409 });
  });

  t.test('ours: GET /waitlist shows holder, depth and oldest wait of each queue', async (t) => {
    const [first] = await addQueued({ action: 'second' });
    const { id } = (await call(a, 'GET', `/tickets/${first}`)).body;
    const queues = (await call(b, 'GET', '/waitlist?limit=1000')).body;
    t.match(
      queues.find((queue: { id: string }) => queue.id === id),
      { server_uuid: server, scope: 'test', depth: 1, holder: { uuid: first }, oldest_waiting_ms: Number },
    );
    const ids = async (query: string) =>
      (await call(b, 'GET', `/waitlist?${query}`)).body.map((queue: { id: string }) => queue.id);
    const all = await ids('limit=1000');
    t.same([...(await ids('limit=2')), ...(await ids('limit=1000&offset=2'))], all, 'the pages together are the list');
    t.match(await call(a, 'GET', '/waitlist?limit=1001'), { status: 400, body: { code: 'InvalidParameters' } });
    t.equal((await call(a, 'GET', '/waitlist?offset=x')).status, 400);
    t.equal((await call(a, 'GET', '/waitlist?sort=age')).status, 409);
  });

  t.test('ours: a ticket names the request that created it', async (t) => {
    const headers = { 'x-request-id': 'job-7' };
    const { body } = await call(a, 'POST', tickets, { scope: 's', id: 'job', ...HOUR }, headers);
    t.equal(body.queue[0].reqid, 'job-7');
  });

  t.test('a caller that leaves ends its wait; diagnostics and metrics count the others', async (t) => {
    const [, second] = await addQueued();
    const { answer } = await startWait(second);
    const leave = new AbortController();
    const leaving = fetch(`${b}/tickets/${second}/wait`, { signal: leave.signal }).catch(() => 'left');
    await until(async () => (await waits(b)) === 2);
    t.match((await call(b, 'GET', '/metrics')).text, /^cnapi_waitlist_waits 2$/m);
    leave.abort();
    t.equal(await leaving, 'left');
    await until(async () => (await waits(b)) === 1);
    t.same((await call(b, 'GET', '/diagnostics')).body.pendingActivationsByServer, {});
    await call(a, 'DELETE', `/tickets/${second}`);
    t.equal((await answer).status, 404);
  });
});

t.test('a draining instance answers ticket waits with 503, and another instance continues them', async (t) => {
  const zone = await freshZone(t);
  const [leaving, other] = [await zone.startApp({ drainAgentsMs: 500, drainWaitsMs: 500 }), await zone.startApp()];
  const path = `/servers/${await newServer(other.url)}/tickets`;
  const add = async () => (await call(other.url, 'POST', path, { scope: 's', id: 'i', ...HOUR })).body.uuid;
  const [first, second] = [await add(), await add()];
  const wait = call(leaving.url, 'GET', `/tickets/${second}/wait`);
  await until(async () => (await waits(leaving.url)) === 1);
  t.equal((await call(other.url, 'POST', `/instances/${leaving.cnapiUuid}/drain`)).status, 202);
  const { status, body, headers } = await wait;
  t.match({ status, body }, { status: 503, body: { code: 'InstanceDraining' } });
  t.equal(headers.get('retry-after'), '0');
  const again = call(other.url, 'GET', `/tickets/${second}/wait`);
  await call(other.url, 'PUT', `/tickets/${first}/release`);
  t.equal((await again).status, 204, 'the ticket kept its place');
});

t.test('an instance that stops answers ticket waits with 503, and another instance continues them', async (t) => {
  const zone = await freshZone(t);
  const [stopping, other] = [await zone.startApp(), await zone.startApp()];
  const path = `/servers/${await newServer(other.url)}/tickets`;
  const add = async () => (await call(other.url, 'POST', path, { scope: 's', id: 'i', ...HOUR })).body.uuid;
  const [first, second] = [await add(), await add()];
  const wait = call(stopping.url, 'GET', `/tickets/${second}/wait`);
  await until(async () => (await waits(stopping.url)) === 1);
  await stopping.stop();
  t.match(await wait, { status: 503, body: { code: 'ServiceUnavailable' } });
  await call(other.url, 'PUT', `/tickets/${first}/release`);
  t.equal((await call(other.url, 'GET', `/tickets/${second}/wait`)).status, 204);
});

async function newServer(url: string): Promise<string> {
  const uuid = randomUUID();
  await call(url, 'POST', `/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid } });
  return uuid;
}

async function waits(url: string): Promise<number> {
  return (await call(url, 'GET', '/diagnostics')).body.waitlist.waits;
}
