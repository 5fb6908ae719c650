/** The order in which the requests of one connection are carried out (RFC 9112, 9.3.2). */
import { connect, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { until } from '../../../support/until.ts';
import { SERVER, startApi } from '../support.ts';

const request = (method: string, path: string, length = 0) =>
  `${method} ${path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${length}\r\n\r\n`;
const nop = request('POST', `/servers/${SERVER}/nop`);
const list = request('GET', `/servers/${SERVER}/task-history`);

async function start(t: Test) {
  const api = await startApi(t);
  await api.addServer(SERVER);
  const { id } = await api.tasks.create({ serverUuid: SERVER, name: 'nop', params: {} });
  const task = await api.tasks.get(id);
  const begun: string[] = [];
  const changes = Promise.withResolvers<void>();
  const create = api.tasks.create.bind(api.tasks);
  api.tasks.create = async (...args) => {
    begun.push('change');
    await changes.promise;
    return create(...args);
  };
  api.tasks.history = async () => {
    begun.push('read');
    return { rows: [], next: undefined };
  };
  const send = (bytes: string) => {
    let text = '';
    const socket: Socket = connect(api.port, '127.0.0.1', () => socket.write(bytes));
    socket.on('data', (chunk) => (text += chunk)).on('error', () => undefined);
    t.teardown(() => socket.destroy());
    return { socket, statuses: () => [...text.matchAll(/HTTP\/1\.1 (\d+) /g)].map(([, status]) => Number(status)) };
  };
  const staysAt = (count: number) => t.rejects(until(() => begun.length !== count, 'another to begin', 300));
  const wait = request('GET', `/tasks/${id}/wait?timeout=600`);
  const endTask = () => {
    task.outcome = 'complete';
  };
  return { ...api, begun, permitChanges: changes.resolve, send, staysAt, wait, endTask };
}

t.test('nothing begins behind an unanswered change', async (t) => {
  const { begun, permitChanges, send, staysAt } = await start(t);
  const { statuses } = send(nop + nop + list);
  await until(() => begun.length === 1, 'the first change to begin');
  await staysAt(1);
  permitChanges();
  await until(() => statuses().length === 3, 'three answers');
  t.same(begun, ['change', 'change', 'read']);
  t.same(statuses(), [200, 200, 200]);
});

t.test('a change begins when all before it is answered, and reads run in parallel', async (t) => {
  const { begun, permitChanges, send, staysAt, wait, endTask, tasks } = await start(t);
  permitChanges();
  const { statuses } = send(wait + list + nop + list);
  await until(() => begun.length === 1 && tasks.waiting === 1, 'the wait and the read to begin');
  await staysAt(1);
  endTask();
  await until(() => statuses().length === 4, 'four answers');
  t.same(begun, ['read', 'change', 'read']);
});

t.test('a change whose caller leaves, or whose instance stops, before its turn is not carried out', async (t) => {
  for (const isStopped of [true, false]) {
    const { begun, send, staysAt, wait, tasks, listener } = await start(t);
    const { socket } = send(wait + nop);
    await until(() => tasks.waiting === 1 && listener.unanswered === 2, 'the wait to begin');
    await staysAt(0);
    if (isStopped) await listener.stop();
    else socket.destroy();
    await until(() => listener.unanswered === 0, 'both to end');
    t.same(begun, []);
  }
});

t.test('a change whose body breaks off is carried out or refused, as its answer says', async (t) => {
  const { port, call } = await start(t);
  const path = `/servers/${SERVER}`;
  let text = '';
  const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
  socket.on('data', (chunk) => (text += chunk)).end(request('DELETE', path, 5));
  await new Promise((resolve) => socket.once('close', resolve).once('end', resolve));
  socket.destroy();
  const isThere = (await call('GET', path)).status === 200;
  t.match(text, isThere ? /^HTTP\/1.1 400 / : /^HTTP\/1.1 204 /);
});
