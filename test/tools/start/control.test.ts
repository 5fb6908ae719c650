import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { controlFile, parseOperation } from '../../../tools/start/control.ts';
import { askRunning } from '../../../tools/start/control-client.ts';
import { ControlServer, type ControlServerDeps } from '../../../tools/start/control-server.ts';
import { Refusal } from '../../../tools/start/refusal.ts';
import type { Teardown } from './support.ts';

type Operate = ControlServerDeps['operate'];

async function served(t: Teardown, operate: Operate) {
  const data = mkdtempSync(path.join(os.tmpdir(), 'cnapi-control-'));
  mkdirSync(path.join(data, 'config'));
  const file = controlFile(data);
  const server = new ControlServer({ file, operate, clock: systemClock });
  // A stale socket file, as a killed supervisor leaves it.
  writeFileSync(file, '');
  await server.start();
  t.teardown(async () => {
    await server.stop();
    rmSync(data, { recursive: true, force: true });
  });
  const progress: string[] = [];
  const ask = () =>
    askRunning({ data, pid: 4711, operation: { operation: 'scale', instances: 5 } }, (said) => progress.push(said));
  const say = (words: string) => text(connect(file).end(words));
  return { data, file, server, ask, say, progress };
}

t.test('the caller of an operation gets its progress and its result', async (t) => {
  const { ask, progress, file } = await served(t, async (operation, tell) => {
    tell('on the way');
    tell('nearly there');
    return JSON.stringify(operation);
  });
  t.equal(await ask(), '{"operation":"scale","instances":5}');
  t.strictSame(progress, ['on the way', 'nearly there']);
  t.equal(statSync(file).mode & 0o777, 0o600, 'only the owner may connect');
});

t.test('a refusal reaches the caller with its message', async (t) => {
  const { ask } = await served(t, () => Promise.reject(new Refusal('the disk is on fire')));
  await t.rejects(ask(), new Refusal('the disk is on fire'));
});

t.test('an invalid operation is refused, and an oversized one is not read', async (t) => {
  let asked = 0;
  const { say } = await served(t, async () => String(asked++));
  const rows = ['hello\n', '{}\n', '[1]\n', '{"operation":"scale"}\n', `${'x'.repeat(5000)}`, '\n', '\0\n'];
  for (const row of rows) t.match(await say(row), /^\{"refused":"that is not an operation/, row.slice(0, 30));
  t.equal(asked, 0);
  for (const instances of [0, 17, 1.5, '3', null])
    t.equal(parseOperation(JSON.stringify({ operation: 'scale', instances })), undefined);
});

t.test('an operation continues when its caller disconnects', async (t) => {
  const gone = Promise.withResolvers<void>();
  const finished = Promise.withResolvers<void>();
  const { file } = await served(t, async (_operation, tell) => {
    await gone.promise;
    for (let each = 0; each < 10; each++) tell('still here');
    finished.resolve();
    return 'done';
  });
  const socket = connect(file);
  socket.write('{"operation":"rolling-restart"}\n', () => socket.destroy());
  socket.once('close', () => gone.resolve());
  await finished.promise;
  t.pass('the operation has finished');
});

t.test('a supervisor that ends during an operation is reported as such', async (t) => {
  const { ask, server } = await served(t, () => {
    void server.stop();
    return new Promise(() => undefined);
  });
  await t.rejects(ask(), { message: 'pid 4711 ended before it was done' });
});

t.test('a supervisor that cannot be reached is reported with the reason', async (t) => {
  const { ask, server, file } = await served(t, async () => '');
  await server.stop();
  await t.rejects(ask(), { message: /pid 4711 cannot be asked at .*control.sock \(ENOENT\)/ });
  writeFileSync(file, '');
  chmodSync(file, 0o600);
  await t.rejects(ask(), { message: /\(ECONNREFUSED\)/ });
});

t.test('a path that is too long for a socket gives a system error to the caller', async (t) => {
  const { data } = await served(t, async () => '');
  const file = path.join(data, 'x'.repeat(200));
  await t.rejects(new ControlServer({ file, operate: async () => '', clock: systemClock }).start(), { code: 'EINVAL' });
});
