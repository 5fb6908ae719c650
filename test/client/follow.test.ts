import t from 'tap';
import { follow } from '../../lib/client/follow.ts';
import { EventParser, EventTooLargeError } from '../../lib/client/server-sent.ts';
import { until } from '../support/until.ts';
import { failoverClient, json, refusing, scripted } from './rig.ts';

const STREAM = { 'content-type': 'text/event-stream' };

t.test('a stream that breaks continues at the next instance after the last event received', async (t) => {
  const first = await scripted(t, (response) => {
    response.writeHead(200, STREAM);
    response.write('id: 1\nevent: a\ndata: one\n\nid: 2\nevent: a\ndata: two\n\nid: 3\nda');
    setTimeout(() => response.destroy(), 20);
  });
  const second = await scripted(t, (response, { headers }) => {
    if (headers['last-event-id'] === '4') {
      response.writeHead(204);
      return void response.end();
    }
    response.writeHead(200, STREAM);
    response.end('id: 3\ndata: three\n\ndata: four\n\nid: 4\n\n');
  });
  const reason: string[] = [];
  const seen: string[] = [];
  const client = failoverClient(t, [first.url, second.url]);
  for await (const { data } of follow(client, { path: '/events', onBroken: (text) => void reason.push(text) })) {
    seen.push(data);
    if (data === 'two') void first.stop();
  }
  t.strictSame(seen, ['one', 'two', 'three', 'four']);
  t.equal(first.heard[0]?.headers['last-event-id'], undefined);
  t.equal(second.heard[0]?.headers['last-event-id'], '2', 'an incomplete event is requested again');
  t.equal(reason.length, 2);
});

t.test('a stream counts as open after its first id, not after its headers', async (t) => {
  const said: string[] = [];
  const first = await scripted(t, (response) => {
    response.writeHead(200, STREAM);
    response.write(': nothing yet\n\n');
    setTimeout(() => response.destroy(), 20);
  });
  const second = await scripted(t, (response, { headers }) => {
    if (headers['last-event-id'] === '2') {
      response.writeHead(204);
      return void response.end();
    }
    response.writeHead(200, STREAM);
    response.end('id: 1\n\nid: 2\ndata: two\n\n');
  });
  const onOpen = () => void said.push('open');
  const onBroken = () => {
    said.push('broken');
    void first.stop();
  };
  for await (const { data } of follow(failoverClient(t, [first.url, second.url]), {
    path: '/events',
    onOpen,
    onBroken,
  }))
    said.push(data);
  t.strictSame(said, ['broken', 'open', 'two', 'broken']);
  t.equal(second.heard[0]?.headers['last-event-id'], undefined);
});

t.test('a permanent error ends the stream', async (t) => {
  const gone = await scripted(t, (response) => json(response, 404, { code: 'ResourceNotFound', message: 'no' }));
  await t.rejects(follow(failoverClient(t, [gone.url]), { path: '/events' }).next(), { code: 'ResourceNotFound' });
  await t.rejects(follow(failoverClient(t, [await refusing()]), { path: '/events' }).next(), { code: 'NoAnswer' });
});

t.test('a reader that stops closes the stream', async (t) => {
  let closed = false;
  const endless = await scripted(t, (response) => {
    response.writeHead(200, STREAM);
    response.on('close', () => {
      closed = true;
    });
    response.write('data: one\n\n');
  });
  for await (const _ of follow(failoverClient(t, [endless.url]), { path: '/events' })) break;
  await until(() => closed, 'the stream to be closed');
});

t.test('events are parsed the same however their bytes are split', async (t) => {
  const text =
    ': hello\n\nid: 7\nevent: status\ndata: {"a":"ü"}\ndata: more\n\ndata:bare\n\nevent: empty\n\nid: 8\r\ndata: crlf\r\n\r\n';
  const whole = new EventParser().push(Buffer.from(text));
  t.strictSame(whole, [
    { id: '7', name: 'status', data: '{"a":"ü"}\nmore' },
    { id: '7', name: 'message', data: 'bare' },
    { id: '8', name: 'message', data: 'crlf' },
  ]);
  const bytes = Buffer.from(text);
  for (const size of [1, 2, 3, 7]) {
    const parser = new EventParser();
    const events = [];
    for (let at = 0; at < bytes.length; at += size) events.push(...parser.push(bytes.subarray(at, at + size)));
    t.strictSame(events, whole, `${size} bytes at a time`);
  }
});

t.test('an event above the size limit throws', async (t) => {
  const parser = new EventParser();
  const piece = Buffer.alloc(1024 * 1024, 'x');
  t.throws(() => {
    for (let count = 0; count < 64; count++) parser.push(piece);
  }, new EventTooLargeError());
});
