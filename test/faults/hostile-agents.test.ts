import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { encodeHeartbeat } from '../../lib/protocol/link/codec.ts';
import { faultTest, type Stage } from '../support/fault-test.ts';
import type { Instance } from '../support/fleet-harness.ts';
import { HANG_MS } from '../support/patience.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../support/scripted-agent.ts';
import { until } from '../support/until.ts';

/** An instance that stored all input would run out of memory. */
const SMALL_HEAP = ['--max-old-space-size=256'];
const MAX_RESIDENT_MIB = 800;

/**
 * The other agents tolerate an instance that is busy with the hostile ones, however slow the
 * machine is.
 */
const config = { serverSilenceMs: 60_000 };

const plan = { instances: 1, simulated: 5, instanceArgs: SMALL_HEAP, config };

faultTest('whatever an agent sends, only its own session is affected', plan, async (stage) => {
  const { t, zone } = stage;
  const instance = zone.instances[0] as Instance;
  const { pid } = instance.program;
  await t.test('an invalid greeting closes the connection', (t) => badGreetings(t, instance));
  await t.test('an invalid frame closes its session', (t) => badFrames(t, stage, instance));
  await t.test("the end of another server's task is ignored", (t) => foreignEnd(t, stage, instance));
  await t.test('half-open handshakes do not block others', (t) => halfOpen(t, instance));
  await t.test('a flood of frames is slowed down and stays bounded', (t) => floods(t, stage, instance));
  await t.test('an agent that never reads is cut off and does not delay others', (t) => neverReads(t, stage, instance));
  t.equal(instance.program.pid, pid, 'the instance still runs');
  t.ok(instance.program.residentMib() < MAX_RESIDENT_MIB, 'its memory is bounded');
});

async function badGreetings(t: Test, { url }: Instance): Promise<void> {
  const hello = { type: 'hello', version: 1, capabilities: [], conn: 1, epoch: 0, bootId: '', agentVersion: '0' };
  // A frame that is too long may be cut off before the reason can be sent.
  const greetings: [string, (agent: ScriptedAgent) => void, string | RegExp][] = [
    ['no JSON', (agent) => agent.socket.send('{"type":'), '1002'],
    ['not an object', (agent) => agent.socket.send('[1]'), '1002'],
    ['binary', (agent) => agent.socket.send(Buffer.from([1, 2, 3])), '1002'],
    ['not UTF-8', (agent) => agent.socket.send(Buffer.from([0xff, 0xfe]), { binary: false }), '1007'],
    ['over 64 KiB', (agent) => agent.hello({ agentVersion: 'x'.repeat(70_000) }), /1002|1006/],
    ['over 8 MiB', (agent) => agent.hello({ agentVersion: 'x'.repeat(9_000_000) }), /1002|1006|1009/],
    ['an inventory first', (agent) => agent.send({ type: 'inventory', epoch: 1, tasks: [] }), '1002'],
    ['missing fields', (agent) => agent.send(hello), '1002'],
    ["another's uuid", (agent) => agent.hello({ serverUuid: newMachine().serverUuid }), '1000'],
    ['an epoch out of range', (agent) => agent.hello({ epoch: Number.MAX_SAFE_INTEGER }), '1000'],
    ['a negative epoch', (agent) => agent.hello({ epoch: -1 }), '1002'],
  ];
  for (const [name, greet, code] of greetings) {
    const agent = await new ScriptedAgent(url, newMachine()).open();
    greet(agent);
    const closed = await agent.end();
    t.match(String(closed.code), code, `${name}: closed with ${closed.code} (${closed.reason})`);
    t.notOk(agent.frames.some(({ type }) => type === 'welcome'));
  }
  const dumb = await new ScriptedAgent(url, newMachine()).open();
  t.equal((await dumb.end()).code, 1002, 'no frame at all: closed after 2 s');
}

async function badFrames(t: Test, { zone, witness }: Stage, { url }: Instance): Promise<void> {
  const frames: [string, (agent: ScriptedAgent) => void, number][] = [
    ['no JSON', (agent) => agent.socket.send('}'), 1002],
    ['binary', (agent) => agent.socket.send(Buffer.alloc(10)), 1002],
    ['over 8 MiB', (agent) => agent.socket.send('x'.repeat(8 * 1024 * 1024 + 1)), 1009],
    ['a second hello', (agent) => agent.hello(), 1002],
    ['a second inventory', (agent) => agent.send({ type: 'inventory', epoch: 1, tasks: [] }), 1002],
    ['an end without its fields', (agent) => agent.send({ type: 'task_end', id: 'x' }), 1002],
  ];
  for (const [name, send, code] of frames) {
    const machine = newMachine();
    await witness.excuse(machine.serverUuid);
    const { agent } = await joinAgent(url, machine);
    send(agent);
    const closed = await agent.end();
    t.equal(closed.code, code, `${name}: closed with ${code} (${closed.reason})`);
    const status = async () =>
      (
        await zone.sql<{ status: string }>('select status from cnapi_roster_authority where server_uuid = $1', [
          machine.serverUuid,
        ])
      )[0]?.status;
    await until(async () => (await status()) === 'unknown');
  }
  const machine = newMachine();
  await witness.excuse(machine.serverUuid);
  const { agent } = await joinAgent(url, machine);
  agent.send({ type: 'from-the-future' });
  t.match(
    await agent.next('error'),
    { code: 'unknown-type' },
    'an unknown type gets an error, and the session continues',
  );
  agent.socket.send('['.repeat(100_000));
  await until(
    () => agent.frames.some((frame) => frame.type === 'error' && frame.code === 'too-large'),
    'an error about deep nesting',
  );
  agent.close();
}

/** A server may not end a task of another server, nor answer its cancel. */
async function foreignEnd(t: Test, { zone, witness, work }: Stage, { url }: Instance): Promise<void> {
  const machine = newMachine();
  await witness.excuse(machine.serverUuid);
  const { agent } = await joinAgent(url, machine);
  const victim = work.command(zone.agents[0]?.serverUuid ?? '', 3);
  const id = await until(async () => {
    const [task] = await zone.sql<{ id: string }>(
      `select id from cnapi_tasks where state = 'claimed' and server_uuid = $1 order by created_at desc limit 1`,
      [zone.agents[0]?.serverUuid],
    );
    return task?.id;
  }, 'the task to run');
  const end = { outcome: 'failure', error: { code: 'Forged', message: '' }, reportedAt: '' };
  for (const attempt of [1, 2]) agent.send({ type: 'task_end', id, attempt, ...end });
  t.match(await agent.next('task_ack'), { id }, 'it is acknowledged, so that it is not repeated for ever');
  t.equal((await victim)?.status, 'complete', 'the task itself is not affected');
  agent.close();
}

async function halfOpen(t: Test, instance: Instance): Promise<void> {
  const port = Number(new URL(instance.url).port);
  const head = `GET /agents/${newMachine().serverUuid}/link HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n`;
  const sockets: Socket[] = [];
  for (let each = 0; each < 300; each++) {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    if (each % 3 > 0) socket.write(head.slice(0, each % 3 === 1 ? 20 : undefined));
    sockets.push(socket);
  }
  const answer = await fetch(`${instance.url}/ping`);
  t.equal(answer.status, 200, 'others are served meanwhile');
  for (const socket of sockets) socket.destroy();
  const raw = connect(port, '127.0.0.1');
  raw.write(`${head}Connection: Upgrade\r\nSec-WebSocket-Key: short\r\nSec-WebSocket-Version: 13\r\n\r\n`);
  const [reply] = (await once(raw, 'data')) as [Buffer];
  t.match(reply.toString(), /^HTTP\/1\.1 400 /, 'a bad handshake is refused');
  raw.destroy();
}

/** 8 MB with as many values as JSON of that size can have. */
const EMPTY_ARRAYS = `{"type":"status","status":{"vms":[${'[],'.repeat(2_700_000)}0]}}`;

/**
 * The connection is read no faster than its quota allows, so each flood takes a few seconds
 * whatever its size.
 */
async function floods(t: Test, { witness }: Stage, { url, program }: Instance): Promise<void> {
  const machine = newMachine();
  await witness.excuse(machine.serverUuid);
  const { agent } = await joinAgent(url, machine);
  const isServed = async (sequence: number) => {
    agent.send({ type: 'heartbeat', sequence });
    const answers = () => agent.frames.some((frame) => frame.type === 'heartbeat' && frame.sequence === sequence);
    // The last flood but one is 96 MB of values, which an instance reads at a bounded rate.
    await until(answers, 'the answer to a heartbeat', 3 * HANG_MS);
  };
  const output = { name: 'output', reportedAt: '', stream: 'stdout', offset: 0, text: 'x'.repeat(15_000) };
  const floods: [string, (each: number) => void, number][] = [
    ['heartbeats', (each) => agent.socket.send(encodeHeartbeat(each)), 30_000],
    ['output of unknown tasks', () => agent.send(outputEvent()), 3_000],
    ['sysinfo', (each) => agent.send({ type: 'sysinfo', digest: String(each), sysinfo: { each } }), 500],
    ['frames of an unknown type', () => agent.send({ type: 'from-the-future' }), 1_000],
    ['pongs', () => agent.socket.pong(), 20_000],
    ['statuses of empty arrays', () => agent.socket.send(EMPTY_ARRAYS), 12],
    ['complaints', () => agent.send({ type: 'error', code: 'complaint', message: 'y'.repeat(4_000) }), 2_000],
  ];
  for (const [index, [name, send, count]] of floods.entries()) {
    for (let each = 0; each < count; each++) {
      send(each);
      if (each % 100 === 99) await sleep(1);
    }
    await isServed(100_000 + index);
    t.pass(`${count} ${name}, and it is still served`);
  }
  agent.close();
  await agent.end();
  t.ok(
    program.log().filter(({ code }) => code === 'complaint').length < 100,
    'error frames from agents do not fill the log',
  );

  function outputEvent(): object {
    return { type: 'task_event', id: newMachine().serverUuid, attempt: 1, event: output };
  }
}

/** The frames sent make the instance answer, and no answer is read. */
async function neverReads(t: Test, { zone, witness, work }: Stage, instance: Instance): Promise<void> {
  const join = async () => {
    const machine = newMachine();
    await witness.excuse(machine.serverUuid);
    const { agent } = await joinAgent(instance.url, machine);
    agent.fallSilent();
    return agent;
  };
  const pinging = await join();
  while (pinging.closed === undefined) {
    for (let each = 0; each < 500; each++) pinging.socket.ping(Buffer.alloc(125), undefined, () => undefined);
    await sleep(5);
  }
  t.pass('an agent that only pings is cut off');

  // Unsent answers grow no faster than the input is read. Their limit has a test of its own.
  const asking = await join();
  for (let round = 0; round < 1_000; round++) {
    for (let each = 0; each < 100; each++) asking.socket.send('{"type":"?"}', () => undefined);
    await sleep(5);
  }
  const served = await work.command(zone.agents[0]?.serverUuid ?? '', 0);
  t.equal(served?.status, 'complete', 'other agents are served meanwhile');
  asking.socket.terminate();
}
