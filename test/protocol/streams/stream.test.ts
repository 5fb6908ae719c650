import t from 'tap';
import {
  CHANNELS,
  channelIn,
  jsonIn,
  MAX_STREAM_MESSAGE,
  streamMessages,
  streamName,
  terminal,
  terminalSize,
} from '../../../lib/protocol/streams/stream.ts';

t.test('bytes are cut into messages of at most 64 KiB, and none is lost', async (t) => {
  for (const length of [0, 1, 64 * 1024, 64 * 1024 + 1, 200_000]) {
    const bytes = Buffer.alloc(length, 'x');
    const messages = [...streamMessages(CHANNELS.stdout, bytes)];
    t.ok(messages.every((one) => one.length <= MAX_STREAM_MESSAGE && channelIn(one) === CHANNELS.stdout));
    t.strictSame(Buffer.concat(messages.map((one) => one.subarray(1))), bytes);
  }
});

t.test('what is not the JSON of its channel is ignored', async (t) => {
  const resize = (text: string) =>
    jsonIn(terminalSize, Buffer.concat([Buffer.from([CHANNELS.resize]), Buffer.from(text)]));
  t.same(resize('{"columns":80,"rows":24}'), { columns: 80, rows: 24 });
  for (const text of ['', '{', 'null', '{"columns":0,"rows":24}', '{"columns":80}', '{"columns":1e9,"rows":1}'])
    t.equal(resize(text), undefined, text);
  t.equal(channelIn(Buffer.alloc(0)), undefined);
});

t.test('a stream has a name that no path or shell can misread', async (t) => {
  const uuid = '00000000-0000-4000-8000-000000000000';
  t.ok(streamName.safeParse(`${uuid}.${uuid}`).success);
  for (const name of ['', uuid, `${uuid}.${uuid}/..`, `${uuid}/${uuid}`, `${uuid}.${uuid}\n`])
    t.notOk(streamName.safeParse(name).success, JSON.stringify(name));
});

t.test('the type of a terminal is a word', async (t) => {
  t.same(terminal.parse({ columns: 1, rows: 1 }), { columns: 1, rows: 1, type: 'xterm' });
  for (const type of ['', '-x', '../x', 'a b', 'x'.repeat(51)])
    t.notOk(terminal.safeParse({ columns: 1, rows: 1, type }).success, JSON.stringify(type));
});
