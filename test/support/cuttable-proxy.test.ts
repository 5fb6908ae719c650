/**
 * A disturbance without effect would make every fault test pass, so these tests show that each has
 * its effect.
 */
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { CuttableProxy } from './cuttable-proxy.ts';
import { until } from './until.ts';

interface End {
  socket: Socket;
  text: () => string;
  ended: () => 'no' | 'end' | 'error';
}

function endOf(socket: Socket): End {
  let [text, ended]: [string, 'no' | 'end' | 'error'] = ['', 'no'];
  socket.on('data', (bytes) => {
    text += bytes.toString();
  });
  socket.on('end', () => {
    ended = 'end';
  });
  socket.on('error', () => {
    ended = 'error';
  });
  return { socket, text: () => text, ended: () => ended };
}

async function connected(t: Test): Promise<{ proxy: CuttableProxy; near: End; far: End }> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const target = server.address() as { address: string; port: number };
  const proxy = await CuttableProxy.start({
    host: '127.0.0.1',
    port: 0,
    target: { host: target.address, port: target.port },
  });
  const accepted = once(server, 'connection') as Promise<[Socket]>;
  const near = endOf(connect(proxy.port, '127.0.0.1'));
  const far = endOf((await accepted)[0]);
  t.teardown(async () => {
    near.socket.destroy();
    far.socket.destroy();
    await proxy.stop();
    server.close();
  });
  near.socket.write('up ');
  far.socket.write('down ');
  await until(() => far.text() === 'up ' && near.text() === 'down ', 'the data to pass');
  return { proxy, near, far };
}

t.test('a cut in one direction lets the other pass, and held data arrives after it is healed', async (t) => {
  const { proxy, near, far } = await connected(t);
  proxy.swallow({ only: 'up' });
  near.socket.write('lost');
  far.socket.write('passes');
  await until(() => near.text() === 'down passes', 'the data of the other direction');
  await sleep(50);
  t.equal(far.text(), 'up ');
  proxy.heal();
  await until(() => far.text() === 'up lost', 'the held data');
  proxy.swallow({ only: 'down' });
  far.socket.write(' lost');
  near.socket.write(' passes');
  await until(() => far.text() === 'up lost passes', 'the data of the other direction');
  await sleep(50);
  t.equal(near.text(), 'down passes');
});

t.test('a cut in both directions passes nothing, and neither end notices', async (t) => {
  const { proxy, near, far } = await connected(t);
  proxy.swallow();
  near.socket.write('lost');
  far.socket.write('lost');
  await sleep(100);
  t.same([near.text(), far.text(), near.ended(), far.ended()], ['down ', 'up ', 'no', 'no']);
});

t.test('a FIN and a reset reach both ends', async (t) => {
  const one = await connected(t);
  one.proxy.finish();
  await until(() => one.near.ended() === 'end' && one.far.ended() === 'end', 'both ends to notice the FIN');
  const two = await connected(t);
  two.proxy.reset();
  await until(() => two.near.ended() === 'error' && two.far.ended() === 'error', 'both ends to notice the reset');
  t.pass('both ends noticed');
});

t.test('delayed data arrives late and in order, and a bandwidth limit slows it down', async (t) => {
  const { proxy, near, far } = await connected(t);
  proxy.delay(200);
  const begunAt = performance.now();
  for (const piece of ['a', 'b', 'c']) near.socket.write(piece);
  await until(() => far.text() === 'up abc', 'the pieces');
  t.ok(performance.now() - begunAt >= 195, 'no data early');
  proxy.heal();
  proxy.throttle(10_000);
  const throttledAt = performance.now();
  near.socket.write(Buffer.alloc(3_000, 'x'));
  await sleep(20);
  near.socket.write('!');
  await until(() => far.text().endsWith('!'), 'the end');
  t.ok(performance.now() - throttledAt >= 280, 'ten bytes per millisecond');
});
