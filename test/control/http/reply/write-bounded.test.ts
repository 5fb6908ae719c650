import { createServer, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { SLOW_READER_MS, writeInSlices } from '../../../../lib/control/http/reply/write-bounded.ts';
import { type Clock, systemClock } from '../../../../lib/platform/clock.ts';
import { until } from '../../../support/until.ts';

const CONTENT = Buffer.alloc(32 * 1024 * 1024, 'x');

t.test('a caller that stops reading is dropped after a timeout, one that reads gets everything', async (t) => {
  for (const isReading of [true, false]) {
    const { response, socket } = await answering(t);
    const { clock, armed, fire } = heldTimers();
    if (isReading) socket.resume();
    const written = writeInSlices(response, CONTENT, clock);
    if (!isReading) {
      await until(() => response.writableLength > 0 && armed.length > 0, 'the writer to wait');
      t.equal(armed.at(-1)?.delayMs, SLOW_READER_MS);
      let isStuck = false;
      // The kernel's buffers may still take some of it.
      void written.then(() => (isStuck = true));
      const fired = () => {
        fire();
        return isStuck;
      };
      await until(fired, 'the writer to give up');
    }
    t.equal(await written, isReading);
    t.equal(armed.length, 0, 'no timer is left');
  }
});

t.test('a caller that leaves ends the write', async (t) => {
  const { response, socket } = await answering(t);
  const written = writeInSlices(response, CONTENT, systemClock);
  socket.destroy();
  t.equal(await written, false);
});

async function answering(t: Test) {
  const { promise, resolve } = Promise.withResolvers<ServerResponse>();
  const server = createServer((_request, response) => resolve(response));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as { port: number };
  const socket = connect(port, '127.0.0.1', () => socket.write('GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'));
  socket.pause().on('error', () => undefined);
  t.teardown(() => {
    socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { response: await promise, socket };
}

/** Timers that fire on demand. */
function heldTimers() {
  const armed: { delayMs: number; callback: () => void }[] = [];
  const clock: Clock = {
    ...systemClock,
    after(delayMs, callback) {
      const timer = { delayMs, callback };
      armed.push(timer);
      return { cancel: () => void (armed.includes(timer) && armed.splice(armed.indexOf(timer), 1)) };
    },
  };
  return { clock, armed, fire: () => armed.at(-1)?.callback() };
}
