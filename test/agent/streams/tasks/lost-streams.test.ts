/** What the program at the agent sees when its stream is lost, or its task cancelled. */
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import path from 'node:path';
import t, { type Test } from 'tap';
import { WebSocket, WebSocketServer } from 'ws';
import { streamCommand } from '../../../../lib/agent/machine/streamed-command.ts';
import { JoinedStream } from '../../../../lib/agent/streams/joined-stream.ts';
import { connectTask } from '../../../../lib/agent/streams/tasks/connect.ts';
import { exec } from '../../../../lib/agent/streams/tasks/exec.ts';
import { vmExec } from '../../../../lib/agent/vms/tasks/vm-exec.ts';
import type { Vms } from '../../../../lib/agent/vms/vms.ts';
import { systemClock as clock } from '../../../../lib/platform/time/clock.ts';
import { CHANNELS, streamMessage } from '../../../../lib/protocol/streams/stream.ts';
import { lacksContainers } from '../../../support/container-machine.ts';
import { cannotMount } from '../../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';
import { payload, uuidOf } from '../../../support/vm-rig.ts';
import { agentOn, dataWithImage, internal_metadata } from '../../../support/vms-on-linux.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const uuid = '11111111-1111-4111-8111-111111111111';
const place = { name: `${uuid}.${uuid}`, host: '127.0.0.1', port: 1 };

/** The caller's end of a stream, and the context of a task that joins it. */
async function joined(t: Test, more: { vms?: Vms } = {}) {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1', perMessageDeflate: false });
  await once(server, 'listening');
  t.teardown(() => server.close());
  const socket = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`, {
    perMessageDeflate: false,
  });
  const [[caller]] = (await Promise.all([once(server, 'connection'), once(socket, 'open')])) as [[WebSocket], unknown];
  t.teardown(() => socket.terminate());
  const deps = { clock, directory: t.testdir(), bootId: 'b' };
  const machine = { stream: (...given: [never, never]) => streamCommand(deps, ...given) };
  const streams = { join: async () => new JoinedStream(socket, clock) };
  const context = {
    id: 't1',
    signal: new AbortController().signal,
    clock,
    machine,
    streams,
    begin: async () => undefined,
    ...more,
  } as never;
  return { caller, context };
}

/** A program of the server that ends its output, and what it sees. */
async function program(t: Test, { output }: { output: Buffer }) {
  const seen: string[] = [];
  const sockets: Socket[] = [];
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.push(socket);
    for (const event of ['data', 'end', 'close']) socket.on(event, () => seen.push(event));
    socket.on('error', (error: NodeJS.ErrnoException) => seen.push(error.code ?? error.message));
    if (output.length > 0) socket.end(output);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.teardown(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

t.test('a command whose stream is lost does not take it for the end of its input', async (t) => {
  const { caller, context } = await joined(t);
  const directory = t.testdir({});
  const file = path.join(directory, 'imported');
  const script = `trap '' TERM; echo ready; cat >${file}.new && mv ${file}.new ${file}`;
  const ended = exec.run({ stream: place, script }, context);
  await once(caller, 'message');
  caller.send(streamMessage(CHANNELS.stdin, 'a half'));
  await until(() => existsSync(`${file}.new`), 'the beginning of the import');
  caller.terminate();
  await t.rejects(ended, { code: 'StreamLost' });
  t.notOk(existsSync(file), 'it was not completed');
});

t.test('nor does a program in a VM', { skip: lacksContainers() || cannotMount() }, async (t) => {
  const data = await dataWithImage(t);
  await using agent = await agentOn(data);
  await agent.vms.create(payload(1, { internal_metadata }));
  const { caller, context } = await joined(t, agent);
  const root = path.join(data, 'containers/all', uuidOf(1), 'root/root');
  const script = `trap '' TERM; echo ready; cat >/imported.new && mv /imported.new /imported`;
  const ended = vmExec.run({ uuid: uuidOf(1), stream: place, args: ['/bin/sh', '-c', script], env: {} }, context);
  await once(caller, 'message');
  caller.send(streamMessage(CHANNELS.stdin, 'a half'));
  await until(() => existsSync(path.join(root, 'imported.new')), 'the beginning of the import');
  caller.terminate();
  await t.rejects(ended, { code: 'StreamLost' });
  t.notOk(existsSync(path.join(root, 'imported')), 'it was not completed');
});

t.test('a connection whose stream is lost is reset', async (t) => {
  const { caller, context } = await joined(t);
  const { port, seen } = await program(t, { output: Buffer.alloc(0) });
  const ended = connectTask.run({ stream: place, port }, context);
  caller.send(streamMessage(CHANNELS.stdin, 'a half'));
  await until(() => seen.length > 0, 'the data');
  caller.terminate();
  await t.rejects(ended, { code: 'StreamLost' });
  await until(() => seen.includes('close'), 'the end of the connection');
  t.same(seen, ['data', 'ECONNRESET', 'close']);
});
