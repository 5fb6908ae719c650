import { createServer, type ServerResponse } from 'node:http';
import { connect } from 'node:net';
import t, { type Test } from 'tap';
import { SLOW_READER_MS, writeInSlices } from '../../../../lib/control/http/answer/write-bounded.ts';
import { type Clock, systemClock } from '../../../../lib/platform/time/clock.ts';
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

t.test('an answer that waits for the one before it is not taken for one that nobody reads', async (t) => {
  const { response, following, socket } = await answering(t);
  const next = await following;
  const { clock, armed } = heldTimers();
  const written = writeInSlices(next, CONTENT, clock);
  t.equal(next.writableNeedDrain, true);
  t.equal(armed.length, 0, 'no time is measured yet');
  response.end();
  await until(() => armed.length > 0, 'the time to be measured');
  socket.resume();
  t.equal(await written, true);
});

/** The responses to two requests on one connection. */
async function answering(t: Test) {
  const { promise, resolve } = Promise.withResolvers<ServerResponse>();
  const { promise: following, resolve: follow } = Promise.withResolvers<ServerResponse>();
  const server = createServer((request, response) => (request.url === '/' ? resolve : follow)(response));
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as { port: number };
  const socket = connect(port, '127.0.0.1', () => {
    for (const path of ['/', '/next']) socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  });
  socket.pause().on('error', () => undefined);
  t.teardown(() => {
    socket.destroy();
    server.closeAllConnections();
    server.close();
  });
  return { response: await promise, following, socket };
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
