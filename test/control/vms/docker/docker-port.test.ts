/** The port of one caller, with real sockets and a clock that the test moves. */
import { once } from 'node:events';
import { connect, type Server, type Socket } from 'node:net';
import t, { type Test } from 'tap';
import { DockerArchive } from '../../../../lib/control/vms/docker/docker-archive.ts';
import { DockerLines } from '../../../../lib/control/vms/docker/docker-lines.ts';
import { DockerPort, listenForCaller } from '../../../../lib/control/vms/docker/docker-port.ts';
import type { PortCodec } from '../../../../lib/control/vms/docker/port-codec.ts';
import { CHANNELS, streamMessage } from '../../../../lib/protocol/streams/stream.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { until } from '../../../support/until.ts';

const END_OF_INPUT = Buffer.from([CHANNELS.close, CHANNELS.stdin]);
const stdout = (text: string) => streamMessage(CHANNELS.stdout, text);
const status = streamMessage(CHANNELS.status, '{"exit_code":0}');
const lastLine = '{"type":"end","data":{"code":0,"signal":null}}\r\n';

async function start(t: Test, options: { hasInput?: boolean; codec?: PortCodec } = {}) {
  const clock = new ManualClock();
  const { server, port } = await listenForCaller('127.0.0.1');
  const messages: Buffer[] = [];
  const closed: string[] = [];
  let drained = 0;
  const codec = new DockerLines({ isTty: false, hasExitCode: true });
  const end = new DockerPort(
    server,
    { clock, address: '::ffff:127.0.0.1', hasInput: true, codec, ...options },
    {
      message: (message) => messages.push(message),
      drained: () => {
        drained += 1;
      },
      closed: (reason) => closed.push(reason),
    },
  );
  t.teardown(() => end.terminate());
  return {
    clock,
    server,
    end,
    messages,
    closed,
    drained: () => drained,
    call: (from = '127.0.0.1') => call(t, port, from),
  };
}

function call(t: Test, port: number, localAddress: string) {
  const socket = connect({ port, host: '127.0.0.1', localAddress, allowHalfOpen: true });
  let text = '';
  let isOver = false;
  socket.on('data', (bytes) => {
    text += String(bytes);
  });
  socket.on('error', () => undefined);
  for (const event of ['end', 'close'])
    socket.on(event, () => {
      isOver = true;
    });
  t.teardown(() => socket.destroy());
  return { socket, text: () => text, isOver: () => isOver };
}

const isListening = (server: Server) => server.listening;
const ended = (socket: Socket) => once(socket, 'end');

t.test('what is sent before the caller connects is kept, also the end', async (t) => {
  const { server, end, closed, call } = await start(t);
  t.equal(end.send(stdout('early')), true);
  end.send(status);
  end.closeWhenSent();
  t.same(closed, [], 'the caller still has time');
  const { socket, text } = call();
  await ended(socket);
  t.equal(text(), `{"type":"stdout","data":"early"}\r\n${lastLine}`);
  t.equal(isListening(server), false);
  socket.end();
  await until(() => closed.length > 0, 'the end');
});

t.test('the agent waits while much is kept, and goes on when the caller has taken it', async (t) => {
  const { end, drained, call } = await start(t);
  const piece = stdout('x'.repeat(60_000));
  const answers = Array.from({ length: 6 }, () => end.send(piece));
  t.same(answers, [true, true, true, true, false, false]);
  t.equal(drained(), 0);
  const { text } = call();
  await until(() => drained() > 0, 'the agent to go on');
  await until(() => text().length > 360_000, 'all of it');
});

t.test('nobody connects within 30 seconds', async (t) => {
  const { clock, server, closed } = await start(t);
  await clock.advance(29_000);
  t.same(closed, []);
  await clock.advance(1_000);
  t.same(closed, ['nobody has connected to the port in time']);
  t.equal(isListening(server), false);
});

t.test('another address is not let in, and the caller still is; a second connection is not', async (t) => {
  const { messages, closed, call } = await start(t);
  const other = call('127.0.0.2');
  other.socket.write('{"type":"stdin","data":"stolen"}\r\n');
  await until(other.isOver, 'the refusal');
  const caller = call();
  const second = call();
  caller.socket.write('{"type":"stdin","data":"mine"}\r\n');
  await until(() => messages.length > 0 && second.isOver(), 'the input');
  t.same(messages.map(String), ['\0mine']);
  t.same(closed, []);
});

t.test('the input ends when the caller ends its side, and the output goes on', async (t) => {
  const { end, messages, closed, call } = await start(t);
  const { socket, text } = call();
  socket.end('{"type":"tty","resize":{"w":9,"h":8}}\r\n');
  await until(() => messages.length === 2, 'the end of the input');
  t.same(messages, [streamMessage(CHANNELS.resize, '{"columns":9,"rows":8}'), END_OF_INPUT]);
  end.send(stdout('late'));
  end.send(status);
  end.closeWhenSent();
  await ended(socket);
  t.equal(text(), `{"type":"stdout","data":"late"}\r\n${lastLine}`);
  await until(() => closed.length > 0, 'the end');
});

t.test('a program without input is told so at once, and reads nothing', async (t) => {
  const { messages, call } = await start(t, { hasInput: false });
  const { socket } = call();
  socket.write('{"type":"stdin","data":"x"}\r\n{"type":"end"}\r\n');
  await until(() => messages.length > 0, 'the end of the input');
  t.same(messages, [END_OF_INPUT]);
});

t.test('a line that is none, and a caller that leaves, end the stream', async (t) => {
  const bad = await start(t);
  bad.call().socket.write('nonsense\r\n');
  await until(() => bad.closed.length > 0, 'the end');
  t.match(bad.closed[0], /a line that is not one of docker-exec/);
  const left = await start(t);
  const { socket } = left.call();
  socket.write('{"type":"stdin","data":"x"}\r\n');
  await until(() => left.messages.length > 0, 'the input');
  socket.resetAndDestroy();
  await until(() => left.closed.length > 0, 'the end');
  t.same(left.closed.length, 1);
});

t.test('a copy that is whole ends, and one that is not breaks the connection', async (t) => {
  const head = stdout('facts\0archive');
  const whole = await start(t, { codec: new DockerArchive(), hasInput: false });
  const reader = whole.call();
  whole.end.send(head);
  whole.end.send(status);
  whole.end.closeWhenSent();
  await ended(reader.socket);
  t.equal(reader.text(), 'archive');
  for (const failure of ['{"exit_code":2}', '{"error":{"code":"StreamLost","message":"gone"}}']) {
    const part = await start(t, { codec: new DockerArchive(), hasInput: false });
    const { socket } = part.call();
    const broken = once(socket, 'error');
    part.end.send(head);
    await once(socket, 'data');
    part.end.send(streamMessage(CHANNELS.status, failure));
    part.end.closeWhenSent();
    await t.rejects(ended(socket), { code: 'ECONNRESET' }, failure);
    await broken;
  }
});

t.test('an archive without its end is not the end of the input, and its sender sees that', async (t) => {
  const { messages, closed, end: port, call } = await start(t, { codec: new DockerArchive() });
  const { socket } = call();
  let broke: NodeJS.ErrnoException | undefined;
  socket.on('error', (error) => {
    broke = error;
  });
  const failure = () => broke;
  const broken = new Promise((resolve) => socket.once('close', resolve));
  socket.write(Buffer.alloc(512));
  await until(() => messages.length > 0, 'the input');
  socket.end();
  await until(() => messages.length > 2, 'the program to be told');
  const [first, corruptTail = Buffer.of(), end] = messages;
  t.same(first, streamMessage(CHANNELS.stdin, Buffer.alloc(512)));
  t.match(String(corruptTail), /^\0x{1000}/, 'tar rejects the archive that it has received so far');
  t.same(end, END_OF_INPUT);
  t.same(closed, [], 'the program ends by itself');
  port.send(streamMessage(CHANNELS.status, '{"exit_code":0}'));
  port.closeWhenSent();
  await until(() => closed.length > 0, 'the end');
  t.match(closed[0], /only a part of it arrived/);
  await broken;
  t.equal(failure()?.code, 'ECONNRESET', 'whatever the program thinks of it');
});
