import t from 'tap';
import type { AgentDeps } from '../../lib/agent/agent.ts';
import type { Journal } from '../../lib/agent/journal/journal.ts';
import { MemoryJournal } from '../../lib/agent/journal/journal-memory.ts';
import { dialWebSocket } from '../../lib/agent/link/link-socket.ts';
import { DialQueue } from '../../lib/agent/simulated/dial-queue.ts';
import { FaultyConnection } from '../../lib/agent/simulated/faulty-connection.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { matchLists } from '../support/match-lists.ts';
import { refuse } from '../support/scripted-instance.ts';
import { until } from '../support/until.ts';
import { agent, instance, nop } from './agent-rig.ts';

t.test('an agent greets, sends inventory, heartbeats and status, and runs a task to its end', async (t) => {
  const one = await instance(t, { welcome: { sendSysinfo: true } });
  const { serverUuid, journal } = await agent(t, [one]);
  const session = await one.session(0);
  const hello = await session.received('hello');
  t.match(hello, { serverUuid, conn: 1, epoch: 0, journalId: journal.state.journalId, agentVersion: '1.0.0' });
  t.ok(hello.capabilities.includes('task:command_execute'));
  matchLists(t, await session.received('inventory'), { epoch: 1, tasks: [] });
  t.match(await session.received('sysinfo'), { digest: hello.sysinfoDigest, sysinfo: { UUID: serverUuid } });
  t.match(await session.received('status'), { status: { meminfo: Object, vms: Object } });
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

t.test('the agent sends its inventory only after it has journalled the epoch', async (t) => {
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
  await session.received('error');
  const heard = session.frames.map(({ type }) => type);
  t.same(heard, ['hello', 'error']);
  sync();
  await session.received('inventory');
  t.equal(inner.state.epoch, 1);
  t.equal(inner.state.tasks.size, 0, 'a task that arrives before the inventory is ignored');
});

t.test('after a reconnect the inventory lists unacknowledged tasks and their ends are sent again', async (t) => {
  const one = await instance(t, { acknowledge: false });
  const { journal } = await agent(t, [one]);
  const first = await one.session(0);
  await first.received('inventory');
  const task = nop(1);
  first.task(task);
  await first.end(task.id);
  const running = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  first.task(running);
  await until(() => first.events(running.id).includes('started'), 'the task to start');
  first.cut();
  one.script.acknowledge = true;
  const second = await one.session(1);
  t.match(await second.received('hello'), {
    conn: 2,
    epoch: 1,
    incarnation: (await first.received('hello')).incarnation,
  });
  t.same((await second.received('inventory')).tasks, [
    { id: task.id, attempt: 1, state: 'ended' },
    { id: running.id, attempt: 1, state: 'running' },
  ]);
  await second.end(task.id);
  await until(() => journal.state.acknowledged.has(task.id), 'the acknowledgement');
  second.send({ type: 'task_cancel', id: running.id, attempt: 1 });
  t.match(await second.end(running.id), { error: { code: 'Cancelled' } });
});

t.test('an agent reacts to each refusal as its code requires', async (t) => {
  await t.test('superseded: it connects again immediately with a higher conn', async (t) => {
    const one = await instance(t, { greet: ({ conn }) => (conn < 6 ? refuse('superseded', { conn: 5 }) : {}) });
    await agent(t, [one]);
    t.match(await (await one.session(1)).received('hello'), { conn: 6 });
  });
  await t.test('stale journal: it begins a new journal and drops the tasks of the old one', async (t) => {
    const one = await instance(t);
    const { journal } = await agent(t, [one]);
    const first = await one.session(0);
    const { journalId } = await first.received('hello');
    await first.received('inventory');
    first.task({ ...nop(1), name: 'sleep', params: { timeout: 60_000 } });
    await until(() => journal.state.tasks.size === 1, 'the task to be journalled');
    one.script.greet = (hello) => (hello.journalId === journalId ? refuse('stale-journal') : {});
    first.cut();
    const third = await one.session(2);
    t.match(await third.received('hello'), { epoch: 0, journalId: journal.state.journalId });
    t.not(journal.state.journalId, journalId);
    matchLists(t, await third.received('inventory'), { tasks: [] });
  });
  await t.test('incarnation alive: it tries again after the time that the refusal names', async (t) => {
    const hellos: number[] = [];
    const refusal = refuse('incarnation-alive', { retryAfterMs: 500 });
    const greet = () => (hellos.push(clock.now()) < 3 ? refusal : {});
    const one = await instance(t, { greet });
    await agent(t, [one], { random: { ...random, fraction: () => 0 } });
    await (await one.session(2)).received('inventory');
    const [first = 0, second = 0, third = 0] = hellos;
    for (const gap of [second - first, third - second]) t.ok(gap >= 490, `${gap} ms between two attempts`);
  });
  await t.test('draining and HTTP errors: it tries the next address', async (t) => {
    const draining = await instance(t, { greet: () => refuse('draining') });
    const missing = await instance(t, { upgradeStatus: 404 });
    const good = await instance(t);
    await agent(t, [draining, missing, good], { random: { ...random, fraction: () => 0 } });
    await (await good.session(0)).received('inventory');
    t.same([draining.upgrades, missing.upgrades, good.upgrades], [1, 1, 1]);
  });
});

t.test('an agent does not retry a refused upgrade before its Retry-After', async (t) => {
  const one = await instance(t, { upgradeStatus: 503, upgradeHeaders: 'Retry-After: 2' });
  await agent(t, [one], { random: { ...random, fraction: () => 0 } });
  await until(() => one.upgrades === 1, 'the first attempt');
  await new Promise((done) => setTimeout(done, 700));
  t.equal(one.upgrades, 1, 'no attempt before Retry-After');
  delete one.script.upgradeStatus;
  await (await one.session(0)).received('inventory');
});

t.test('an agent ignores a welcome whose epoch is not above its own', async (t) => {
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

t.test('an agent answers invalid frames with an error and closes the session after too many', async (t) => {
  const one = await instance(t);
  await agent(t, [one]);
  const session = await one.session(0);
  await session.received('inventory');
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
  await (await one.session(1)).received('inventory');
});

t.test('an agent survives a refusal with any code', async (t) => {
  const codes = ['€'.repeat(100), '\u0000'.repeat(100), '\ud800'.repeat(100), `${'a'.repeat(99)}\u{1f600}`];
  const one = await instance(t, { greet: () => (codes.length > 0 ? refuse(codes.pop() as string) : {}) });
  await agent(t, [one]);
  await (await one.session(4)).received('inventory');
  t.match(await until(() => one.sessions[3]?.closed, 'the close'), {
    code: 1000,
    reason: `refused: ${'€'.repeat(38)}`,
  });
});

t.test('an agent that no instance accepts logs it once', async (t) => {
  const warnings: { reason?: string }[] = [];
  const log = Object.assign(Object.create(silentLogger), { warn: (fields: object) => void warnings.push(fields) });
  const one = await instance(t, { upgradeStatus: 500 });
  await agent(t, [one], { log, random: { ...random, fraction: () => 0 } });
  await until(() => one.upgrades > 20, 'many attempts');
  matchLists(t, warnings, [{ reason: 'upgrade refused with HTTP 500' }]);
});

t.test('an agent skips invalid addresses', async (t) => {
  const one = await instance(t);
  const bad = { uuid: random.uuid(), host: 'no host at all/..?', port: 1 };
  await agent(t, [one], { resolve: async () => [bad, one.address] });
  await (await one.session(0)).received('inventory');
});

t.test('an agent answers a heartbeat of the instance; a frozen agent answers nothing', async (t) => {
  const one = await instance(t, { welcome: { heartbeatMs: 60_000, serverSilenceMs: 60_000 } });
  const connection = new FaultyConnection(clock, new DialQueue(clock));
  const { agent: made } = await agent(t, [one], { dial: connection.dial });
  const session = await one.session(0);
  await session.received('heartbeat');
  session.send({ type: 'heartbeat', sequence: 1_000_000 });
  await until(() => session.all('heartbeat').length === 2, 'the answer');
  connection.freeze();
  session.send({ type: 'heartbeat', sequence: 2_000_000 });
  await new Promise((done) => setTimeout(done, 200));
  t.equal(session.all('heartbeat').length, 2);
  connection.thaw();
  await until(() => session.all('heartbeat').length === 3, 'the answer after the thaw');
  t.ok(made.link.isLive);
});

t.test('stop ends running tasks, reports them and closes the session', async (t) => {
  const one = await instance(t);
  const { agent: made, journal } = await agent(t, [one]);
  const session = await one.session(0);
  await session.received('inventory');
  const task = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  session.task(task);
  await until(() => session.events(task.id).includes('started'), 'the start');
  await Promise.all([made.stop(), made.stop()]);
  t.match(await session.end(task.id), { error: { code: 'AgentStopped' } });
  t.equal(journal.state.tasks.size, 0, 'the end is acknowledged before the agent leaves');
  t.match(await until(() => session.closed, 'the close'), { code: 1000 });
});

t.test('an agent closes a session whose instance does not read its answers', async (t) => {
  const one = await instance(t);
  const { agent: made } = await agent(t, [one], { dial: unreadAfter(20) });
  const session = await one.session(0);
  await session.received('inventory');
  for (let n = 0; n < 40; n++) session.send({ type: 'heartbeat', sequence: 1e9 + n });
  await until(() => session.closed, 'the session to be closed');
  await until(() => one.sessions.length > 1, 'the agent to connect again');
  await until(() => made.link.isLive, 'a live session');
});

t.test('an agent sends nothing more on a session that it closed', async (t) => {
  const one = await instance(t);
  const { agent: made } = await agent(t, [one]);
  const session = await one.session(0);
  await session.received('heartbeat');
  one.script.upgradeStatus = 503;
  for (let n = 0; n < 10; n++) session.send('not a frame');
  await until(() => session.closed, 'the session to be closed');
  t.notOk(made.link.isLive);
  const { heartbeats } = made.link;
  await until(() => one.upgrades >= 3, 'the agent to connect again');
  t.equal(made.link.heartbeats, heartbeats);
});

/** Sockets that accept no more data after this many frames. */
function unreadAfter(frames: number): AgentDeps['dial'] {
  const dial = dialWebSocket(clock);
  return (target, events) => {
    const socket = dial(target, events);
    let sent = 0;
    return {
      get bufferedBytes() {
        return sent > frames ? 2 ** 30 : 0;
      },
      send: (text) => {
        sent += 1;
        socket.send(text);
      },
      consumeValues: (values) => socket.consumeValues(values),
      close: (code, reason) => socket.close(code, reason),
    };
  };
}
