import t from 'tap';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { matchLists } from '../support/match-lists.ts';
import { refuse } from '../support/scripted-instance.ts';
import { until } from '../support/until.ts';
import { agent, instance, nop } from './agent-rig.ts';

t.test('an agent that receives goaway joins the next instance before it leaves the current one', async (t) => {
  const from = await instance(t);
  const to = await instance(t);
  const { agent: mover } = await agent(t, [from]);
  const old = await from.session(0);
  await old.received('inventory');
  const slow = { ...nop(1), name: 'sleep', params: { timeout: 60_000 } };
  old.task(slow);
  await until(() => old.events(slow.id).includes('started'), 'the task to start');
  to.script.greet = () => {
    t.equal(old.closed, undefined, 'the old session is open while the new one greets');
    return {};
  };
  old.send({ type: 'goaway', reason: 'drain', withinMs: 10_000, addresses: [from.address, to.address] });
  const fresh = await to.session(0);
  matchLists(t, await fresh.received('inventory'), { epoch: 2, tasks: [{ id: slow.id, state: 'running' }] });
  await until(() => old.closed, 'the old session to close');
  t.ok(mover.link.isLive);
  fresh.send({ type: 'task_cancel', id: slow.id, attempt: 1 });
  await fresh.end(slow.id);
});

t.test('after a new welcome, the agent refuses tasks of the old session', async (t) => {
  const from = await instance(t);
  const to = await instance(t);
  const { journal } = await agent(t, [from]);
  const old = await from.session(0);
  await old.received('inventory');
  const late = nop(1);
  const wrongEpoch = nop(7);
  to.script.greet = (_hello, session) => {
    session.send({ type: 'heartbeat', sequence: 0 });
    return {};
  };
  old.send({ type: 'goaway', reason: 'drain', withinMs: 10_000, addresses: [to.address] });
  const fresh = await to.session(0);
  await fresh.received('inventory');
  old.task(late);
  fresh.task(wrongEpoch);
  const good = nop(2);
  fresh.task(good);
  await fresh.end(good.id);
  t.notOk(journal.state.tasks.has(late.id) || journal.state.acknowledged.has(late.id));
  t.notOk(journal.state.acknowledged.has(wrongEpoch.id));
});

t.test('after a soft goaway the agent stays if no other instance accepts it', async (t) => {
  const here = await instance(t);
  const full = await instance(t, { greet: () => refuse('full') });
  const away = await instance(t, { upgradeStatus: 503 });
  const { agent: stayer } = await agent(t, [here]);
  const session = await here.session(0);
  await session.received('inventory');
  session.send({ type: 'goaway', reason: 'sick', addresses: [here.address, full.address, away.address] });
  await until(() => full.upgrades === 1 && away.upgrades === 1, 'one attempt at each other instance');
  await until(() => stayer.link.state.phase === 'live', 'the end of the attempts');
  t.equal(session.closed, undefined);
  const task = nop(1);
  session.task(task);
  await session.end(task.id);
});

t.test('an agent leaves an instance that stops answering once another instance has accepted it', async (t) => {
  const mute = await instance(t, { echo: false, welcome: { serverSilenceMs: 600 } });
  const good = await instance(t);
  mute.script.welcome = { serverSilenceMs: 600, addresses: [mute.address, good.address] };
  await agent(t, [mute]);
  const session = await mute.session(0);
  await session.received('inventory');
  good.script.greet = () => {
    t.equal(session.closed, undefined, 'the silent session is open while the new one greets');
    return {};
  };
  await (await good.session(0)).received('inventory');
  await until(() => session.closed, 'the silent session to be closed');
});

t.test('an agent keeps an instance that stalls and recovers, and sends heartbeats meanwhile', async (t) => {
  const still = await instance(t, { echo: false, welcome: { serverSilenceMs: 1000 } });
  const full = await instance(t, { greet: () => refuse('full') });
  still.script.welcome = { serverSilenceMs: 1000, addresses: [still.address, full.address] };
  const { agent: stayer } = await agent(t, [still]);
  const session = await still.session(0);
  await session.received('inventory');
  still.script.upgradeStatus = 503;
  await until(() => full.upgrades > 0, 'the search for another instance');
  const beats = session.all('heartbeat').length;
  still.script.echo = true;
  await until(() => stayer.link.state.phase === 'live', 'the end of the search');
  await until(() => session.all('heartbeat').length > beats + 2, 'more heartbeats');
  t.equal(session.closed, undefined);
  t.equal(still.sessions.length, 1);
});

t.test('an agent closes a dead session even with no other instance, then connects again', async (t) => {
  const mute = await instance(t, { echo: false, welcome: { serverSilenceMs: 600 } });
  await agent(t, [mute]);
  const session = await mute.session(0);
  await session.received('inventory');
  mute.script.upgradeStatus = 503;
  await until(() => session.closed, 'the silent session to be closed');
  delete mute.script.upgradeStatus;
  await (await mute.session(1)).received('inventory');
});

t.test('an agent leaves an instance that accepts the upgrade and sends nothing for five seconds', async (t) => {
  let greeted = 0;
  const greet = () => {
    greeted = clock.now();
    return 'silence' as const;
  };
  const dumb = await instance(t, { greet });
  const good = await instance(t);
  await agent(t, [dumb, good], { random: { ...random, fraction: () => 0 } });
  await (await good.session(0)).received('inventory');
  t.equal(dumb.sessions.length, 1);
  const stayedMs = clock.now() - greeted;
  t.ok(stayedMs > 2500, `it waited ${stayedMs} ms, and not only until its next attempt`);
});
