import { once } from 'node:events';
import { createServer, get, type Server } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { ListenSockets } from '../../../../lib/control/http/listener/listen-sockets.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { until } from '../../../support/until.ts';

const host = '127.0.0.1';

async function openSockets(t: Test, { port = 0, maxConnections = 100 } = {}) {
  const http: Server = createServer((request, response) => response.end(request.url));
  t.teardown(() => http.closeAllConnections());
  const logged: Record<string, unknown>[] = [];
  const listenSockets = new ListenSockets({
    http,
    host,
    port,
    maxConnections,
    handshakesPerSecond: 0,
    clock: systemClock,
    log: recordingLogger(logged),
  });
  t.teardown(() => listenSockets.close());
  return { listenSockets, http, logged, port: await listenSockets.open() };
}

async function arrive(port: number) {
  const socket = connect({ host, port });
  socket.on('error', () => undefined);
  await new Promise<void>((resolve) => void socket.once('connect', () => resolve()).once('close', () => resolve()));
  return socket;
}

t.test('requests are served on all listening sockets', async (t) => {
  const { listenSockets, port } = await openSockets(t);
  const ask = async (path: string) => {
    const request = get({ host, port, path, agent: false });
    const [response] = await once(request, 'response');
    return (await response.toArray()).join('');
  };
  const paths = Array.from({ length: 60 }, (_, each) => `/${each}`);
  t.same(await Promise.all(paths.map(ask)), paths);
  t.equal(listenSockets.taken, paths.length);
});

t.test('an address in use is refused although listening sockets share theirs', async (t) => {
  const { port } = await openSockets(t);
  await t.rejects(openSockets(t, { port }), { code: 'EADDRINUSE' });
  t.equal((await openSockets(t)).port !== port, true);
});

t.test('connections above the limit are closed, counted and logged once; a closed one makes room', async (t) => {
  const { listenSockets, logged, port } = await openSockets(t, { maxConnections: 20 });
  const sockets = await Promise.all(Array.from({ length: 50 }, () => arrive(port)));
  const isOpen = () => sockets.filter(({ closed }) => !closed);
  await until(() => isOpen().length === 20, 'the others to be closed');
  t.equal(listenSockets.cut, 30);
  matchLists(t, logged, [{ level: 'warn', max_connections: 20, cut: 1, msg: /new connections are closed/ }]);
  t.equal(logged.length, 1, 'one log line for all');
  for (const socket of isOpen().slice(0, 5)) socket.destroy();
  await until(async () => {
    const late = await arrive(port);
    late.write('GET /late HTTP/1.1\r\nHost: here\r\n\r\n');
    const heard = await Promise.race([once(late, 'data'), once(late, 'close')]);
    return String(heard[0]).includes('200 OK');
  }, 'a later connection to be served');
  for (const socket of sockets) socket.destroy();
});

t.test('after close, new connections are refused and open ones continue', async (t) => {
  const { listenSockets, port } = await openSockets(t);
  const inside = await arrive(port);
  await until(() => listenSockets.taken === 1, 'the connection to be accepted');
  listenSockets.close();
  const callers = await Promise.all(Array.from({ length: 30 }, () => arrive(port)));
  t.ok(callers.every(({ destroyed }) => destroyed));
  inside.write('GET /still HTTP/1.1\r\nHost: here\r\n\r\n');
  t.match(String((await once(inside, 'data'))[0]), /200 OK/);
  inside.destroy();
});
