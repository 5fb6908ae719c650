import t from 'tap';
import { DockerLines } from '../../../../lib/control/vms/docker/docker-lines.ts';
import { CHANNELS, streamMessage } from '../../../../lib/protocol/streams/stream.ts';

const refused = { refused: 'the caller has sent a line that is not one of docker-exec' };
const pipes = { isTty: false, hasExitCode: true };
const status = (value: object) => streamMessage(CHANNELS.status, JSON.stringify(value));
/** A line that tells how a program ended. */
const end = (code: number | null, signal: string | null = null) =>
  `{"type":"end","data":{"code":${code},"signal":${JSON.stringify(signal)}}}\r\n`;

t.test('the lines of a caller are messages to the agent', (t) => {
  const rows: [line: string, messages: Buffer[]][] = [
    ['{"type":"stdin","data":"a\\nb"}', [streamMessage(CHANNELS.stdin, 'a\nb')]],
    ['{"type":"tty","data":"é"}', [streamMessage(CHANNELS.stdin, 'é')]],
    ['{"type":"tty","resize":{"h":24,"w":80}}', [streamMessage(CHANNELS.resize, '{"columns":80,"rows":24}')]],
    ['{"type":"end"}', [Buffer.from([CHANNELS.close, CHANNELS.stdin])]],
    ['{"type":"stdin","data":""}', []],
    ['', []],
  ];
  for (const [line, messages] of rows) t.same(new DockerLines(pipes).read(Buffer.from(`${line}\r\n`)), messages, line);
  t.end();
});

t.test('a long line may arrive byte by byte', (t) => {
  const lines = new DockerLines(pipes);
  const data = 'x'.repeat(1_000_000);
  lines.read(Buffer.from(`{"type":"stdin","data":"${data}`));
  const usedMs = () => (process.cpuUsage().user + process.cpuUsage().system) / 1_000;
  const before = usedMs();
  for (let sent = 0; sent < 3_000; sent += 1) lines.read(Buffer.from('y'));
  // This is processor time. Searching the whole line each time takes several seconds.
  t.ok(usedMs() - before < 1_000);
  const messages = lines.read(Buffer.from('"}\n')) as Buffer[];
  t.equal(Buffer.concat(messages.map((one) => one.subarray(1))).toString(), data + 'y'.repeat(3_000));
  t.end();
});

t.test('a line may arrive in pieces that cut a character, and long data is several messages', (t) => {
  const lines = new DockerLines(pipes);
  const bytes = Buffer.from('{"type":"stdin","data":"ü"}\r\n{"type":"end"}\n');
  const cut = bytes.indexOf('ü') + 1;
  t.same(lines.read(bytes.subarray(0, cut)), []);
  t.same(lines.read(bytes.subarray(cut)), [
    streamMessage(CHANNELS.stdin, 'ü'),
    Buffer.from([CHANNELS.close, CHANNELS.stdin]),
  ]);
  const long = lines.read(Buffer.from(`{"type":"stdin","data":"${'x'.repeat(100_000)}"}\r\n`));
  t.same('refused' in long ? long : long.map(({ length }) => length), [65_537, 100_000 - 65_536 + 1]);
  t.end();
});

t.test('other lines, and lines without an end, are refused', (t) => {
  const deep = '['.repeat(900_000);
  for (const line of ['nonsense', '{"type":"kill"}', '{"type":"stdin"}', '{"type":"stdin","data":1}', 'null', deep])
    t.same(new DockerLines(pipes).read(Buffer.from(`${line}\r\n`)), refused, line.slice(0, 30));
  const lines = new DockerLines(pipes);
  t.same(lines.read(Buffer.alloc(1024 * 1024, 'x')), []);
  t.same(lines.read(Buffer.from('x')), refused);
  t.end();
});

t.test('output keeps characters that two messages share, and the end comes last', (t) => {
  const lines = new DockerLines(pipes);
  const bytes = Buffer.from('1€');
  t.equal(lines.write(streamMessage(CHANNELS.stdout, bytes.subarray(0, 2))), '{"type":"stdout","data":"1"}\r\n');
  t.equal(lines.write(streamMessage(CHANNELS.stderr, 'e')), '{"type":"stderr","data":"e"}\r\n');
  t.equal(lines.write(streamMessage(CHANNELS.stdout, bytes.subarray(2))), '{"type":"stdout","data":"€"}\r\n');
  t.equal(lines.write(streamMessage(CHANNELS.stdout, bytes.subarray(1, 2))), '');
  t.equal(lines.write(Buffer.from([CHANNELS.close, CHANNELS.stdout])), '');
  t.equal(lines.write(status({ exit_code: 3 })), `{"type":"stdout","data":"\ufffd"}\r\n${end(3)}`);
  t.end();
});

t.test('the last line has the exit code, and an error is told before', (t) => {
  const last = (value: object, options = pipes) => new DockerLines(options).write(status(value));
  const failed = (code: string) => ({ error: { code, message: 'no' } });
  t.equal(last({ exit_code: 137, signal: 'SIGKILL' }), end(137, 'SIGKILL'));
  t.equal(last({ exit_code: null, signal: 'SIGTERM' }), end(null, 'SIGTERM'));
  t.equal(last(failed('NoSuchProgram')), `{"type":"stderr","data":"cnapi: no (NoSuchProgram)\\r\\n"}\r\n${end(127)}`);
  t.equal(
    last(failed('X'), { isTty: true, hasExitCode: true }),
    `{"type":"tty","data":"cnapi: no (X)\\r\\n"}\r\n${end(126)}`,
  );
  t.equal(last({ exit_code: 0 }, { isTty: false, hasExitCode: false }), '', 'a log has no exit code');
  t.equal(
    last(failed('X'), { isTty: false, hasExitCode: false }),
    '{"type":"stderr","data":"cnapi: no (X)\\r\\n"}\r\n',
  );
  t.end();
});
