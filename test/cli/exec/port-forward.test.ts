/** `cnapi port-forward` against real instances and a real agent, whose server is this machine. */
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Server, type Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import t, { type Test } from 'tap';
import { startZone } from '../../support/fleet-harness.ts';
import { until } from '../../support/until.ts';
import { Cli, type Running } from '../rig.ts';

async function listen(t: Test, onConnection: (socket: Socket) => void): Promise<number> {
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
    onConnection(socket);
  });
  t.teardown(() => server.close());
  await once(server.listen(0, '127.0.0.1'), 'listening');
  return (server.address() as AddressInfo).port;
}

/** Also after an error. */
const closeOf = (socket: Socket | undefined) =>
  new Promise<void>((resolve) => {
    if (socket?.destroyed !== false) return resolve();
    socket.once('end', () => socket.end()).once('close', () => resolve());
    socket.resume();
  });

const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** The port at which it listens for that one. */
async function portOf(running: Running, remote: number): Promise<number> {
  await running.says(new RegExp(`-> \\S+:${remote}\n`));
  return Number(new RegExp(`:(\\d+) -> \\S+:${remote}\n`).exec(running.stdout())?.[1]);
}

t.test('connections to a port of this machine reach a port of a server', async (t) => {
  const zone = await startZone(t, { instances: 2, agents: 1, simulated: 0 });
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );
  const server = zone.agents[0]?.serverUuid ?? '';
  const forward = (...args: string[]) => cli.start(['port-forward', server, ...args]);
  const to = (port: number) => {
    const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
    socket.on('error', () => undefined);
    t.teardown(() => socket.destroy());
    return socket;
  };
  const lastTask = async () => (await cli.json<{ task: string; status: string }[]>('tasks', server))[0];

  await t.test('each direction ends by itself, and all bytes arrive', async (t) => {
    // Answers when its caller has said all.
    const digest = await listen(t, async (socket) => socket.end(sha256(await buffer(socket))));
    const big = randomBytes(20_000_000);
    const source = await listen(t, (socket) => {
      socket.end(big);
      // The caller goes on after the end of what it reads.
      socket.once('data', (piece) => received.push(String(piece)));
    });
    const received: string[] = [];
    const running = forward(`:${digest}`, `:${source}`);
    const [digestPort, sourcePort] = [await portOf(running, digest), await portOf(running, source)];
    t.match(running.stdout(), new RegExp(`^Forwarding 127\\.0\\.0\\.1:${digestPort} -> ${server}:${digest}\n`));
    const asking = to(digestPort);
    asking.end(big);
    t.equal(await text(asking), sha256(big));
    const reading = to(sourcePort);
    t.equal(sha256(await buffer(reading)), sha256(big));
    reading.end('after the end');
    await until(() => received[0] === 'after the end', 'what is said after the end of the output');
    const together = Array.from({ length: 8 }, (_, each) => {
      const socket = to(digestPort);
      socket.end(`caller ${each}`);
      return text(socket);
    });
    const digests = Array.from({ length: 8 }, (_, each) => sha256(Buffer.from(`caller ${each}`)));
    t.same(await Promise.all(together), digests);
    await until(async () => (await lastTask())?.status === 'complete', 'the tasks to end');
    t.match(await lastTask(), { task: 'connect' });
    running.child.kill('SIGINT');
    t.match(await running.ended, { code: 0, stderr: '' });
  });

  await t.test('after the end of an instance it goes on listening, and connects through the other one', async (t) => {
    const echo = await listen(t, (socket) => socket.pipe(socket));
    const running = forward(`:${echo}`);
    const local = await portOf(running, echo);
    const answered = async () => {
      const socket = to(local);
      socket.end('asked');
      return (await text(socket).catch(() => '')) === 'asked';
    };
    t.ok(await answered());
    for (const instance of zone.instances) {
      const held = to(local);
      held.write('x');
      await once(held, 'data');
      await instance.program.kill();
      await until(answered, 'a connection through the other instance');
      instance.program.start();
      await zone.ready(instance);
    }
    running.child.kill('SIGTERM');
    t.match(await running.ended, { code: 143 });
  });

  await t.test('a connection that is refused is closed, and a line says why', async (t) => {
    const closed = createServer().listen(0, '127.0.0.1');
    await once(closed, 'listening');
    const { port } = closed.address() as AddressInfo;
    closed.close();
    const running = forward(`:${port}`);
    const socket = to(await portOf(running, port));
    await closeOf(socket);
    await running.says(
      `cnapi: ${server}:${port}: Nothing listens on 127.0.0.1:${port} of the server (ConnectionRefused)\n`,
    );
    await until(async () => (await lastTask())?.status === 'failure', 'the task to end');
    running.child.kill('SIGTERM');
    t.match(await running.ended, { code: 143 });
  });

  await t.test('a side that is reset closes the other one', async (t) => {
    // Once a byte has arrived, the agent knows that it is connected.
    const accepted: Socket[] = [];
    const port = await listen(t, (socket) => socket.on('data', () => accepted.push(socket)));
    const running = forward(`:${port}`);
    const local = await portOf(running, port);
    const left = to(local);
    left.write('x');
    await until(() => accepted.length === 1, 'the first connection');
    const gone = closeOf(accepted[0]);
    left.resetAndDestroy();
    await gone;
    const cut = to(local);
    cut.write('x');
    await until(() => accepted.length === 2, 'the second connection');
    accepted[1]?.resetAndDestroy();
    await closeOf(cut);
    await running.says('broke: read ECONNRESET (ConnectionLost)');
    const last = to(local);
    last.write('x');
    await until(() => accepted.length === 3, 'the third connection');
    const ended = closeOf(accepted[2]);
    running.child.kill('SIGINT');
    t.match(await running.ended, { code: 0 });
    await ended;
  });

  await t.test('a reader that is slow makes the writer wait', async (t) => {
    let written = 0;
    let isWaiting = false;
    const port = await listen(t, (socket) => {
      const piece = Buffer.alloc(1_000_000);
      const write = () => {
        while (written < 400_000_000) {
          written += piece.length;
          isWaiting = !socket.write(piece);
          if (isWaiting) return void socket.once('drain', write);
        }
        socket.end();
      };
      write();
    });
    const running = forward(`:${port}`);
    const slow = to(await portOf(running, port));
    await once(slow, 'connect');
    let before = -1;
    await until(async () => {
      const isStill = isWaiting && before === written;
      before = written;
      await new Promise((resolve) => setTimeout(resolve, 500));
      return isStill;
    }, 'the writer to wait');
    t.ok(written < 200_000_000, `${written} bytes were taken`);
    slow.destroy();
    running.child.kill('SIGINT');
    await running.ended;
  });

  await t.test('what cannot be forwarded says why', async (t) => {
    for (const port of ['0', '80:', 'x', '70000', '1:70000', '80:80:80', ''])
      t.match(await forward(port).ended, { code: 2, stderr: /is not a port; write LOCAL:REMOTE/ }, port);
    const taken = await listen(t, () => undefined);
    t.match(await forward(`${taken}:80`).ended, {
      code: 1,
      stdout: '',
      stderr: `cnapi: cannot listen on 127.0.0.1:${taken}: address already in use\n`,
    });
  });
});
