import t, { type Test } from 'tap';
import { Agent, type AgentDeps } from '../../lib/cn-agent/agent.ts';
import type { Endpoint } from '../../lib/cn-agent/endpoints.ts';
import type { Journal } from '../../lib/cn-agent/journal.ts';
import { MemoryJournal } from '../../lib/cn-agent/journal-memory.ts';
import { dialWebSocket } from '../../lib/cn-agent/link-socket.ts';
import { Pulse } from '../../lib/cn-agent/pulse.ts';
import { catalogue } from '../../lib/cn-agent/tasks/catalogue.ts';
import { DialQueue } from '../../lib/fleet/dial-queue.ts';
import { Wire } from '../../lib/fleet/faults.ts';
import { StandInMachine } from '../../lib/fleet/stand-in-machine.ts';
import { silentLogger } from '../../lib/log.ts';
import { systemClock as clock } from '../../lib/ports/clock.ts';
import { systemRandom as random } from '../../lib/ports/random.ts';
import { refuse, type Script, ScriptedInstance } from '../support/scripted-instance.ts';
import { until } from '../support/until.ts';

async function instance(t: Test, script: Script = {}): Promise<ScriptedInstance> {
  const started = await ScriptedInstance.start(script);
  t.teardown(() => started.stop());
  return started;
}

async function agent(t: Test, known: ScriptedInstance[], fields: Partial<AgentDeps> = {}) {
  const serverUuid = random.uuid();
  const journal = fields.journal ?? new MemoryJournal({ clock, random });
  const resolutions: number[] = [];
  const made = new Agent({
    clock,
    random,
    log: silentLogger,
    pulse: new Pulse({ clock, periodMs: 50 }),
    dial: dialWebSocket(clock),
    resolve: async (): Promise<Endpoint[]> => {
      resolutions.push(clock.now());
      return known.map((one) => ({ ...one.address }));
    },
    machine: new StandInMachine({ clock, serverUuid, number: 1, agentVersion: '1.0.0', sysinfoSize: 'small' }),
    tasks: catalogue,
    serverUuid,
    agentVersion: '1.0.0',
    allowReboot: false,
    ...fields,
    journal,
  });
  t.teardown(() => made.stop());
  await made.start();
  return { agent: made, journal, serverUuid, resolutions };
}

const nop = (epoch: number) => ({ id: random.uuid(), epoch, name: 'nop' });

t.test('a greeting, an inventory, a heartbeat, a status; then a task from end to end', async (t) => {
  const one = await instance(t, { welcome: { sendSysinfo: true } });
  const { serverUuid, journal } = await agent(t, [one]);
  const session = await one.session(0);
  const hello = await session.heard('hello');
  t.match(hello, { serverUuid, conn: 1, epoch: 0, journalId: journal.state.journalId, agentVersion: '1.0.0' });
  t.ok(hello.capabilities.includes('task:command_execute'));
  t.match(await session.heard('inventory'), { epoch: 1, tasks: [] });
  t.match(await session.heard('sysinfo'), { digest: hello.sysinfoDigest, sysinfo: { UUID: serverUuid } });
  t.match(await session.heard('status'), { status: { meminfo: {}, vms: {} } });
  const beats = await until(() => session.all('heartbeat').length >= 3 && session.all('heartbeat'), 'heartbeats');
  t.same(
    beats.slice(0, 3).map(({ sequence }) => sequence),
    [1, 2, 3],
  );
  const task = { id: random.uuid(), epoch: 1, name: 'command_execute', params: { script: 'echo $1', args: ['hi'] } };
  session.task(task);
  t.match(await session.end(task.id), { outcome: 'complete', result: { exitCode: 0, stdout: 'hi\n' } });
  t.same(session.events(task.id), ['accepted', 'started', 'output']);
  await until(() => journal.state.acknowledged.has(task.id), 'the acknowledgement');
});

t.test('the inventory follows the journalled epoch, not before', async (t) => {
  const one = await instance(t);
  const inner = new MemoryJournal({ clock, random });
  let sync = () => {};
  const journal: Journal = {
    get state() {
      return inner.state;
    },
    append: (record) =>
      record.record === 'epoch'
        ? new Promise((done) => {
            sync = () => void inner.append(record).then(done);
          })
        : inner.append(record),
    renew: () => inner.renew(),
    close: () => inner.close(),
  };
  await agent(t, [one], { journal });
  const session = await one.session(0);
  session.task(nop(1));
  session.send('not json, and answered after the task was read');
  await session.heard('error');
  const heard = session.frames.map(({ type }) => type);
  t.same(heard, ['hello', 'error']);
  sync();
  await session.heard('inventory');
  t.equal(inner.state.epoch, 1);
  t.equal(inner.state.tasks.size, 0, 'a task before the inventory is not taken');
});

t.test('a lost connection is made again, with what is not acknowledged in its inventory and repeated', async (t) => {
  const one = await instance(t, { acknowledge: false });
  const { journal } = await agent(t, [one]);
  const first = await one.session(0);
  await first.heard('inventory');
  const task = nop(1);
  first.task(task);
  await first.end(task.id);
  const running = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  first.task(running);
  await until(() => first.events(running.id).includes('started'), 'the start');
  first.cut();
  one.script.acknowledge = true;
  const second = await one.session(1);
  t.match(await second.heard('hello'), { conn: 2, epoch: 1, incarnation: (await first.heard('hello')).incarnation });
  t.same((await second.heard('inventory')).tasks, [
    { id: task.id, attempt: 1, state: 'ended' },
    { id: running.id, attempt: 1, state: 'running' },
  ]);
  await second.end(task.id);
  await until(() => journal.state.acknowledged.has(task.id), 'the acknowledgement');
  second.send({ type: 'task_cancel', id: running.id, attempt: 1 });
  t.match(await second.end(running.id), { error: { code: 'Cancelled' } });
});

t.test('told to go away it is with the next instance before it leaves this one', async (t) => {
  const from = await instance(t);
  const to = await instance(t);
  const { agent: mover } = await agent(t, [from]);
  const old = await from.session(0);
  await old.heard('inventory');
  const slow = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  old.task(slow);
  await until(() => old.events(slow.id).includes('started'), 'the start');
  to.script.greet = () => {
    t.equal(old.closed, undefined, 'the old session is open while the new one greets');
    return {};
  };
  old.send({ type: 'goaway', reason: 'drain', withinMs: 10_000, addresses: [from.address, to.address] });
  const fresh = await to.session(0);
  t.match(await fresh.heard('inventory'), { epoch: 2, tasks: [{ id: slow.id, state: 'running' }] });
  await until(() => old.closed, 'the old session to close');
  t.ok(mover.link.isLive);
  fresh.send({ type: 'task_cancel', id: slow.id, attempt: 1 });
  await fresh.end(slow.id);
});

t.test('from the new welcome on, tasks of the old session are refused', async (t) => {
  const from = await instance(t);
  const to = await instance(t);
  const { journal } = await agent(t, [from]);
  const old = await from.session(0);
  await old.heard('inventory');
  const late = nop(1);
  const wrongEpoch = nop(7);
  to.script.greet = (_hello, session) => {
    session.send({ type: 'heartbeat', sequence: 0 });
    return {};
  };
  old.send({ type: 'goaway', reason: 'drain', withinMs: 10_000, addresses: [to.address] });
  const fresh = await to.session(0);
  await fresh.heard('inventory');
  old.task(late);
  fresh.task(wrongEpoch);
  const good = nop(2);
  fresh.task(good);
  await fresh.end(good.id);
  t.notOk(journal.state.tasks.has(late.id) || journal.state.acknowledged.has(late.id));
  t.notOk(journal.state.acknowledged.has(wrongEpoch.id));
});

t.test('asked to go away it stays when nobody else takes it', async (t) => {
  const here = await instance(t);
  const full = await instance(t, { greet: () => refuse('full') });
  const away = await instance(t, { upgradeStatus: 503 });
  const { agent: stayer } = await agent(t, [here]);
  const session = await here.session(0);
  await session.heard('inventory');
  session.send({ type: 'goaway', reason: 'sick', addresses: [here.address, full.address, away.address] });
  await until(() => full.upgrades === 1 && away.upgrades === 1, 'one round of the others');
  await until(() => stayer.link.state.phase === 'live', 'the end of the round');
  t.equal(session.closed, undefined);
  const task = nop(1);
  session.task(task);
  await session.end(task.id);
});

t.test('each refusal is answered by what it asks for', async (t) => {
  await t.test('superseded: a higher conn, at once', async (t) => {
    const one = await instance(t, { greet: ({ conn }) => (conn < 6 ? refuse('superseded', { conn: 5 }) : {}) });
    await agent(t, [one]);
    t.match(await (await one.session(1)).heard('hello'), { conn: 6 });
  });
  await t.test('stale journal: a new one, and what ran in the old one is given up', async (t) => {
    const one = await instance(t);
    const { journal } = await agent(t, [one]);
    const first = await one.session(0);
    const { journalId } = await first.heard('hello');
    await first.heard('inventory');
    first.task({ ...nop(1), name: 'sleep', params: { timeout: 60_000 } });
    await until(() => journal.state.tasks.size === 1, 'the task');
    one.script.greet = (hello) => (hello.journalId === journalId ? refuse('stale-journal') : {});
    first.cut();
    const third = await one.session(2);
    t.match(await third.heard('hello'), { epoch: 0, journalId: journal.state.journalId });
    t.not(journal.state.journalId, journalId);
    t.match(await third.heard('inventory'), { tasks: [] });
  });
  await t.test('incarnation alive: it waits and comes again', async (t) => {
    let refusals = 0;
    const one = await instance(t, { greet: () => (refusals++ < 2 ? refuse('incarnation-alive') : {}) });
    await agent(t, [one]);
    await (await one.session(2)).heard('inventory');
  });
  await t.test('draining and HTTP errors: the next address', async (t) => {
    const draining = await instance(t, { greet: () => refuse('draining') });
    const old = await instance(t, { upgradeStatus: 404 });
    const good = await instance(t);
    await agent(t, [draining, old, good]);
    await (await good.session(0)).heard('inventory');
  });
});

t.test('an upgrade refused with Retry-After is not tried before', async (t) => {
  const one = await instance(t, { upgradeStatus: 503, upgradeHeaders: 'Retry-After: 2' });
  await agent(t, [one], { random: { ...random, fraction: () => 0 } });
  await until(() => one.upgrades === 1, 'the first try');
  await new Promise((done) => setTimeout(done, 700));
  t.equal(one.upgrades, 1, 'without it, there would have been many');
  delete one.script.upgradeStatus;
  await (await one.session(0)).heard('inventory');
});

t.test('an instance that stops answering is left for another, once that one has the agent', async (t) => {
  const mute = await instance(t, { echo: false, welcome: { serverSilenceMs: 600 } });
  const good = await instance(t);
  mute.script.welcome = { serverSilenceMs: 600, addresses: [mute.address, good.address] };
  await agent(t, [mute]);
  const session = await mute.session(0);
  await session.heard('inventory');
  good.script.greet = () => {
    t.equal(session.closed, undefined, 'the mute session is open while the new one greets');
    return {};
  };
  await (await good.session(0)).heard('inventory');
  await until(() => session.closed, 'the mute session to be closed');
});

t.test('an instance that stood still and speaks again keeps its agent, which beat on meanwhile', async (t) => {
  const still = await instance(t, { echo: false, welcome: { serverSilenceMs: 1000 } });
  const full = await instance(t, { greet: () => refuse('full') });
  still.script.welcome = { serverSilenceMs: 1000, addresses: [still.address, full.address] };
  const { agent: stayer } = await agent(t, [still]);
  const session = await still.session(0);
  await session.heard('inventory');
  still.script.upgradeStatus = 503;
  await until(() => full.upgrades > 0, 'the search for another');
  const beats = session.all('heartbeat').length;
  still.script.echo = true;
  await until(() => stayer.link.state.phase === 'live', 'the end of the search');
  await until(() => session.all('heartbeat').length > beats + 2, 'its heartbeats');
  t.equal(session.closed, undefined);
  t.equal(still.sessions.length, 1);
});

t.test('an instance that never speaks again is left with nobody else there, and sought again', async (t) => {
  const mute = await instance(t, { echo: false, welcome: { serverSilenceMs: 600 } });
  await agent(t, [mute]);
  const session = await mute.session(0);
  await session.heard('inventory');
  mute.script.upgradeStatus = 503;
  await until(() => session.closed, 'the mute session to be closed');
  delete mute.script.upgradeStatus;
  await (await mute.session(1)).heard('inventory');
});

t.test('an instance that accepts the upgrade and says nothing is left after five seconds', async (t) => {
  const dumb = await instance(t, { greet: () => 'silence' });
  const good = await instance(t);
  await agent(t, [dumb, good], { random: { ...random, fraction: () => 0 } });
  await dumb.session(0);
  await (await good.session(0)).heard('inventory');
});

t.test('an echo of an old welcome is not heard', async (t) => {
  const one = await instance(t);
  const journal = new MemoryJournal({ clock, random });
  await journal.append({ record: 'epoch', epoch: 40 });
  one.script.greet = () => ({ epoch: 40 });
  await agent(t, [one], { journal });
  const session = await one.session(0);
  await new Promise((done) => setTimeout(done, 200));
  t.same(
    session.frames.map(({ type }) => type),
    ['hello'],
  );
});

t.test(
  'nonsense from an instance is answered with an error and costs nothing else, until it is too much',
  async (t) => {
    const one = await instance(t);
    await agent(t, [one]);
    const session = await one.session(0);
    await session.heard('inventory');
    session.send('not json');
    session.send({ type: 'task', id: 'no uuid' });
    session.send({ type: 'frobnicate' });
    await until(() => session.all('error').length === 3, 'three errors');
    t.same(
      session.all('error').map(({ code }) => code),
      ['json', 'fields', 'type'],
    );
    const task = nop(1);
    session.task(task);
    await session.end(task.id);
    for (let n = 0; n < 20; n++) session.send('[]');
    await until(() => session.closed, 'the session to be closed');
    await (await one.session(1)).heard('inventory');
  },
);

t.test('a refusal of any words is survived', async (t) => {
  const codes = ['€'.repeat(100), '\u0000'.repeat(100), '\ud800'.repeat(100), `${'a'.repeat(99)}\u{1f600}`];
  const one = await instance(t, { greet: () => (codes.length > 0 ? refuse(codes.pop() as string) : {}) });
  await agent(t, [one]);
  await (await one.session(4)).heard('inventory');
  t.match(await until(() => one.sessions[3]?.closed, 'the close'), {
    code: 1000,
    reason: `refused: ${'€'.repeat(38)}`,
  });
});

t.test('an agent that nobody takes says so, once', async (t) => {
  const warnings: { why?: string }[] = [];
  const log = Object.assign(Object.create(silentLogger), { warn: (fields: object) => void warnings.push(fields) });
  const one = await instance(t, { upgradeStatus: 500 });
  await agent(t, [one], { log, random: { ...random, fraction: () => 0 } });
  await until(() => one.upgrades > 20, 'many rounds');
  t.match(warnings, [{ why: 'upgrade refused with HTTP 500' }]);
  t.equal(warnings.length, 1);
});

t.test('addresses that are none are passed over', async (t) => {
  const one = await instance(t);
  const bad = { uuid: random.uuid(), host: 'no host at all/..?', port: 1 };
  await agent(t, [one], { resolve: async () => [bad, one.address] });
  await (await one.session(0)).heard('inventory');
});

t.test('a question from the instance is answered with a heartbeat, and a frozen agent answers nothing', async (t) => {
  const one = await instance(t, { welcome: { heartbeatMs: 60_000, serverSilenceMs: 60_000 } });
  const wire = new Wire(clock, new DialQueue(clock));
  const { agent: made } = await agent(t, [one], { dial: wire.dial });
  const session = await one.session(0);
  await session.heard('heartbeat');
  session.send({ type: 'heartbeat', sequence: 1_000_000 });
  await until(() => session.all('heartbeat').length === 2, 'the answer');
  wire.freeze();
  session.send({ type: 'heartbeat', sequence: 2_000_000 });
  await new Promise((done) => setTimeout(done, 200));
  t.equal(session.all('heartbeat').length, 2);
  wire.thaw();
  await until(() => session.all('heartbeat').length === 3, 'the answer after the thaw');
  t.ok(made.link.isLive);
});

t.test('a stop ends what runs, says so and leaves', async (t) => {
  const one = await instance(t);
  const { agent: made, journal } = await agent(t, [one]);
  const session = await one.session(0);
  await session.heard('inventory');
  const task = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  session.task(task);
  await until(() => session.events(task.id).includes('started'), 'the start');
  await Promise.all([made.stop(), made.stop()]);
  t.match(await session.end(task.id), { error: { code: 'AgentStopped' } });
  t.equal(journal.state.tasks.size, 0, 'acknowledged before it left');
  t.match(await until(() => session.closed, 'the close'), { code: 1000 });
});

t.test('an instance that asks and does not read the answers loses the session, not the agent its memory', async (t) => {
  const one = await instance(t);
  const { agent: made } = await agent(t, [one], { dial: unreadAfter(20) });
  const session = await one.session(0);
  await session.heard('inventory');
  for (let n = 0; n < 40; n++) session.send({ type: 'heartbeat', sequence: 1e9 + n });
  await until(() => session.closed, 'the session to be closed');
  await until(() => one.sessions.length > 1, 'the agent to come again');
  await until(() => made.link.isLive, 'a session');
});

/** Sockets whose network takes nothing more after so many frames. */
function unreadAfter(frames: number): AgentDeps['dial'] {
  const dial = dialWebSocket(clock);
  return (target, events) => {
    const socket = dial(target, events);
    let sent = 0;
    return {
      get bytesRead() {
        return socket.bytesRead;
      },
      get bufferedBytes() {
        return sent > frames ? 2 ** 30 : 0;
      },
      send: (text) => {
        sent += 1;
        socket.send(text);
      },
      close: (code, reason) => socket.close(code, reason),
    };
  };
}
