import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import t from 'tap';
import {
  END_EVENT_MS,
  KEEPALIVE_MS,
  STUCK_READER_MS,
  sendEvents,
} from '../../../../lib/control/http/answer/event-stream.ts';
import type { ServerSentEvent } from '../../../../lib/control/http/route.ts';
import type { Clock } from '../../../../lib/platform/time/clock.ts';
import type { Teardown } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';

/** A clock that a test moves. */
class ManualClock implements Clock {
  #now = 0;
  readonly #timers = new Set<{ at: number; periodMs?: number; callback: () => void }>();

  get armed(): number {
    return this.#timers.size;
  }

  now = () => this.#now;
  wallTime = () => this.#now;
  after(delayMs: number, callback: () => void) {
    return this.#arm({ at: this.#now + delayMs, callback });
  }
  every(periodMs: number, callback: () => void) {
    return this.#arm({ at: this.#now + periodMs, periodMs, callback });
  }
  /** Undefined: callbacks run at once. An array: they are held back in it. */
  polls: (() => void)[] | undefined;
  afterPoll = (callback: () => void) => (this.polls === undefined ? callback() : void this.polls.push(callback));
  sleep = () => Promise.reject(new Error('not used'));

  advance(ms: number): void {
    for (const end = this.#now + ms; ; ) {
      const next = [...this.#timers].filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (next === undefined) {
        this.#now = end;
        return;
      }
      this.#now = next.at;
      if (next.periodMs === undefined) this.#timers.delete(next);
      else next.at += next.periodMs;
      next.callback();
    }
  }

  #arm(timer: { at: number; periodMs?: number; callback: () => void }) {
    this.#timers.add(timer);
    return { cancel: () => void this.#timers.delete(timer) };
  }
}

interface Stream {
  clock: ManualClock;
  abort: AbortController;
  /** Settles when `sendEvents` does. */
  sent: Promise<void>;
  reader: IncomingMessage;
  read(): string;
}

async function stream(t: Teardown, events: AsyncIterable<ServerSentEvent>, isReading = true): Promise<Stream> {
  const clock = new ManualClock();
  const abort = new AbortController();
  const { promise: sending, resolve } = Promise.withResolvers<{ sent: Promise<void> }>();
  const server = createServer((_request: IncomingMessage, response: ServerResponse) => {
    resolve({ sent: sendEvents(response, events, { clock, signal: abort.signal, held: () => undefined }) });
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  const reader = await new Promise<IncomingMessage>((done, fail) => {
    request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }, done)
      .on('error', fail)
      .end();
  });
  let seen = '';
  reader.setEncoding('utf8').on('error', () => undefined);
  if (isReading) reader.on('data', (chunk) => (seen += chunk));
  return { clock, abort, sent: (await sending).sent, reader, read: () => seen };
}

const event = (seq: number, data: unknown = {}): ServerSentEvent => ({ id: String(seq), name: 'output', data });

t.test('headers are sent with the first event if it comes at once, and alone otherwise', async (t) => {
  for (const comesAtOnce of [true, false]) {
    const clock = new ManualClock();
    clock.polls = [];
    const end = Promise.withResolvers<void>();
    const source = (async function* () {
      if (comesAtOnce) yield { id: '7' };
      await end.promise;
    })();
    const answering = Promise.withResolvers<ServerResponse>();
    const server = createServer((_, response) => {
      void sendEvents(response, source, { clock, signal: new AbortController().signal, held: () => undefined });
      t.equal(response.headersSent, false, 'nothing is sent before the first poll');
      answering.resolve(response);
    });
    await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
    const asking = request({ port: (server.address() as AddressInfo).port, host: '127.0.0.1' }).end();
    const answered = new Promise<IncomingMessage>((done) => asking.once('response', done));
    const response = await answering.promise;
    if (comesAtOnce) await until(() => response.headersSent, 'headers and event');
    else for (const poll of clock.polls) poll();
    const reader = await answered;
    end.resolve();
    let seen = '';
    for await (const piece of reader) seen += piece;
    t.equal(seen, comesAtOnce ? 'id: 7\n\n' : '');
    for (const poll of clock.polls) poll();
    server.close();
  }
});

t.test('a quiet stream sends keepalives and leaves no timer behind', async (t) => {
  const end = Promise.withResolvers<void>();
  const { clock, sent, read } = await stream(
    t,
    (async function* () {
      yield event(1);
      await end.promise;
    })(),
  );
  await until(() => read().includes('id: 1'), 'the first event');
  clock.advance(KEEPALIVE_MS);
  await until(() => read().includes(': still here\n\n'), 'a keepalive');
  end.resolve();
  await sent;
  t.equal(clock.armed, 0);
});

t.test('a reader that does not read stops the events, and is disconnected after a while', async (t) => {
  let asked = 0;
  const endless = (async function* () {
    for (;;) yield event(++asked, 'x'.repeat(64 * 1024));
  })();
  const { clock, sent, reader } = await stream(t, endless, false);
  await until(() => clock.armed === 2, 'the stream to wait for its reader');
  await until(async () => {
    const before = asked;
    await new Promise((done) => setTimeout(done, 50));
    return asked === before;
  }, 'the source to be paused');
  t.ok(asked < 1000);
  const cut = new Promise((done) => reader.once('close', done));
  clock.advance(STUCK_READER_MS);
  await until(() => clock.armed === 2, 'the final comment to be sent');
  clock.advance(END_EVENT_MS);
  await sent;
  reader.resume();
  await cut;
  t.equal(clock.armed, 0);
});

t.test('a reader that resumes too late reads why it was disconnected', async (t) => {
  const endless = (async function* () {
    for (let seq = 1; ; seq++) yield event(seq, 'x'.repeat(64 * 1024));
  })();
  const { clock, sent, reader } = await stream(t, endless, false);
  await until(() => clock.armed === 2, 'the stream to wait for its reader');
  clock.advance(STUCK_READER_MS);
  await until(() => clock.armed === 2, 'the final comment to be sent');
  let seen = '';
  reader.on('data', (chunk) => (seen += chunk));
  await new Promise((done) => reader.once('end', done));
  await sent;
  t.match(seen.slice(-100), /: cut off: nothing was read for 60 s; resume with Last-Event-ID\n\n$/);
  t.equal(clock.armed, 0);
});

t.test('a slow reader gets all events in order', async (t) => {
  const many = (async function* () {
    for (let seq = 1; seq <= 200; seq++) yield event(seq, 'x'.repeat(64 * 1024));
  })();
  const { sent, reader, clock } = await stream(t, many, false);
  await until(() => clock.armed === 2, 'the stream to wait for its reader');
  let seen = '';
  reader.on('data', (chunk) => (seen += chunk));
  await sent;
  await new Promise((done) => reader.once('end', done));
  t.same(
    [...seen.matchAll(/^id: (\d+)$/gm)].map((match) => Number(match[1])),
    Array.from({ length: 200 }, (_, index) => index + 1),
  );
});

t.test('a stream ends when its caller leaves, even if its source does not end', async (t) => {
  const endless = (async function* () {
    for (let seq = 1; ; seq++) yield event(seq, 'x'.repeat(64 * 1024));
  })();
  const { sent, clock, abort } = await stream(t, endless, false);
  await until(() => clock.armed === 2, 'the stream to wait for its reader');
  abort.abort();
  await sent;
  t.equal(clock.armed, 0);
});
