import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { systemClock } from '../../../lib/ports/clock.ts';
import { controlFile, parseOperation } from '../../../tools/start/control.ts';
import { askRunning } from '../../../tools/start/control-client.ts';
import { ControlServer, type ControlServerDependencies } from '../../../tools/start/control-server.ts';
import { Refusal } from '../../../tools/start/refusal.ts';
import type { Teardown } from './support.ts';

type Operate = ControlServerDependencies['operate'];

async function served(t: Teardown, operate: Operate) {
  const data = mkdtempSync(path.join(os.tmpdir(), 'cnapi-control-'));
  mkdirSync(path.join(data, 'config'));
  const file = controlFile(data);
  const server = new ControlServer({ file, operate, clock: systemClock });
  // As one that was killed leaves it.
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

t.test('who asks hears how it goes on and what holds at the end', async (t) => {
  const { ask, progress, file } = await served(t, async (operation, tell) => {
    tell('on the way');
    tell('nearly there');
    return JSON.stringify(operation);
  });
  t.equal(await ask(), '{"operation":"scale","instances":5}');
  t.strictSame(progress, ['on the way', 'nearly there']);
  t.equal(statSync(file).mode & 0o777, 0o600, 'nobody but its owner may ask');
});

t.test('what is refused is refused in its words', async (t) => {
  const { ask } = await served(t, () => Promise.reject(new Refusal('the disk is on fire')));
  await t.rejects(ask(), new Refusal('the disk is on fire'));
});

t.test('what is no operation is refused, and more than one may be is not read', async (t) => {
  let asked = 0;
  const { say } = await served(t, async () => String(asked++));
  const rows = ['hello\n', '{}\n', '[1]\n', '{"operation":"scale"}\n', `${'x'.repeat(5000)}`, '\n', '\0\n'];
  for (const row of rows) t.match(await say(row), /^\{"refused":"that is no operation/, row.slice(0, 30));
  t.equal(asked, 0);
  for (const instances of [0, 17, 1.5, '3', null])
    t.equal(parseOperation(JSON.stringify({ operation: 'scale', instances })), undefined);
});

t.test('an operation goes on when the one who asked has gone', async (t) => {
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
  t.pass('it was finished');
});

t.test('one that ends before it was done is told apart from one that was', async (t) => {
  const { ask, server } = await served(t, () => {
    void server.stop();
    return new Promise(() => undefined);
  });
  await t.rejects(ask(), { message: 'pid 4711 ended before it was done' });
});

t.test('one that cannot be asked is said to be so, with the reason', async (t) => {
  const { ask, server, file } = await served(t, async () => '');
  await server.stop();
  await t.rejects(ask(), { message: /pid 4711 cannot be asked at .*control.sock \(ENOENT\)/ });
  writeFileSync(file, '');
  chmodSync(file, 0o600);
  await t.rejects(ask(), { message: /\(ECONNREFUSED\)/ });
});

t.test('where no socket can be, that is an error of the system, for its starter to tell', async (t) => {
  const { data } = await served(t, async () => '');
  const file = path.join(data, 'x'.repeat(200));
  await t.rejects(new ControlServer({ file, operate: async () => '', clock: systemClock }).start(), { code: 'EINVAL' });
});
