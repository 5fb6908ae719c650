import t from 'tap';
import {
  ContainerError,
  ContainerExistsError,
  ContainerNotFoundError,
  ContainerStateError,
  TooManyContainersError,
} from '../../../lib/agent/containers/container-errors.ts';
import type { Containers } from '../../../lib/agent/containers/containers.ts';
import type { ContainerRuntime } from '../../../lib/agent/containers/runtime.ts';
import { MachineInMemory as Machine, specOf } from '../../support/containers-in-memory.ts';

const TERM = { signal: 'SIGTERM', timeoutMs: 5_000 };
const stateOf = (containers: Containers, id: string) => containers.get(id).state;

t.test('a container is created, runs, and stops', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  const seen: (string | undefined)[] = [];
  containers.onChange(({ container }) => seen.push(container?.state.name));
  t.match(await containers.create(specOf('a')), { state: { name: 'created' } });
  t.match(await containers.startContainer('a'), { state: { name: 'running', run: 1 } });
  t.match(await containers.usage('a'), { processes: 1 });
  t.match(await containers.stopContainer('a', TERM), { state: { name: 'stopped', exit: { signal: 'SIGTERM' } } });
  t.match(await containers.startContainer('a'), { state: { name: 'running', run: 2 } });
  await containers.delete('a', { force: true });
  t.same(containers.list(), []);
  t.same(machine.host.ids, []);
  t.same([...machine.records.kept], []);
  t.same(seen, [
    ...['creating', 'created', 'starting', 'running', 'stopping', 'stopped'],
    ...['starting', 'running', 'deleting', 'deleting', undefined],
  ]);
});

t.test('the end of a run is seen when nobody asked for it', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  await containers.create(specOf('a', ['sleep', '30']));
  await containers.startContainer('a');
  await machine.clock.advance(30_000);
  t.same(stateOf(containers, 'a'), { name: 'stopped', run: 1, exit: { code: 0 } });
  await t.rejects(containers.usage('a'), ContainerStateError);
  await t.rejects(containers.signal('a', 'SIGHUP'), ContainerStateError);
});

t.test('one that does not react to the signal is killed after the time of the stop', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  await containers.create(specOf('a'));
  await containers.startContainer('a');
  const halted = containers.stopContainer('a', { signal: 'SIGWINCH', timeoutMs: 5_000 });
  await machine.clock.advance(4_999);
  t.equal(stateOf(containers, 'a').name, 'stopping');
  await machine.clock.advance(1);
  t.match(await halted, { state: { name: 'stopped', exit: { signal: 'SIGKILL' } } });
});

/** The first kills fail, as when the runtime does not answer in time. */
const failingKills =
  (failures: number) =>
  (runtime: ContainerRuntime): Partial<ContainerRuntime> => {
    const send = runtime.signal.bind(runtime);
    let left = failures;
    return {
      signal: async (run, signal) => {
        if (signal === 'SIGKILL' && left-- > 0) throw new ContainerError('It could not be sent SIGKILL');
        await send(run, signal);
      },
    };
  };

for (const [name, repeat] of Object.entries({
  stop: (containers: Containers) => containers.stopContainer('a', TERM),
  kill: (containers: Containers) => containers.stopContainer('a', { signal: 'SIGKILL', timeoutMs: 0 }),
  delete: (containers: Containers) => containers.delete('a', { force: true }),
}))
  t.test(`after a kill that failed, a repeated ${name} works`, async (t) => {
    const machine = new Machine(t);
    const containers = await machine.agent(failingKills(1));
    await containers.create(specOf('a'));
    await containers.startContainer('a');
    await t.rejects(containers.stopContainer('a', { signal: 'SIGKILL', timeoutMs: 0 }), /could not be sent/);
    await repeat(containers);
    t.same(
      containers.list().map(({ state }) => state.name),
      name === 'delete' ? [] : ['stopped'],
    );
  });

t.test('a kill that fails when the time of a stop is over is repeated', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent(failingKills(2));
  await containers.create(specOf('a'));
  await containers.startContainer('a');
  const halted = containers.stopContainer('a', { signal: 'SIGWINCH', timeoutMs: 1_000 });
  for (let n = 0; n < 3; n++) await machine.clock.advance(5_000);
  t.match(await halted, { state: { name: 'stopped', exit: { signal: 'SIGKILL' } } });
});

t.test('a stop whose signal cannot be sent still kills when its time is over', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent((runtime) => {
    const send = runtime.signal.bind(runtime);
    return {
      signal: async (run, signal) => {
        if (signal === 'SIGTERM') throw new ContainerError('It could not be sent SIGTERM');
        await send(run, signal);
      },
    };
  });
  await containers.create(specOf('a'));
  await containers.startContainer('a');
  await t.rejects(containers.stopContainer('a', TERM), /could not be sent/);
  await machine.clock.advance(5_000);
  t.match(stateOf(containers, 'a'), { name: 'stopped', exit: { signal: 'SIGKILL' } });
});

t.test('the next agent finds what runs, and what has ended meanwhile', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent();
  for (const [id, args] of Object.entries({ long: ['serve'], short: ['exit', '3'], idle: ['serve'] })) {
    await first.create(specOf(id, args));
    if (id !== 'idle') await first.startContainer(id);
  }
  await first.stop();
  await machine.clock.advance(1_000);
  const next = await machine.agent();
  t.same(stateOf(next, 'long'), { name: 'running', run: 1 });
  t.same(stateOf(next, 'short'), { name: 'stopped', run: 1, exit: { code: 3 } });
  t.same(stateOf(next, 'idle'), { name: 'created' });
  t.match(await next.stopContainer('long', TERM), { state: { name: 'stopped', exit: { signal: 'SIGTERM' } } });
});

t.test('the next agent ends a stop that the one before had begun', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent();
  await first.create(specOf('a'));
  await first.startContainer('a');
  void first.stopContainer('a', { signal: 'SIGWINCH', timeoutMs: 5_000 });
  await machine.settle();
  const next = await machine.agent();
  t.equal(stateOf(next, 'a').name, 'stopping');
  await machine.clock.advance(5_000);
  t.same(stateOf(next, 'a'), { name: 'stopped', run: 1, exit: { signal: 'SIGKILL' } });
});

t.test('after a restart of the machine a container is stopped, and the reason says so', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent();
  await first.create(specOf('a'));
  await first.startContainer('a');
  await first.stop();
  machine.host.restart();
  const next = await machine.agent();
  t.match(stateOf(next, 'a'), { name: 'stopped', exit: { unknown: /The agent ended/ } });
  t.match(await next.startContainer('a'), { state: { name: 'running', run: 2 } });
});

t.test('a container whose creation fails says why, and can be deleted', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent(() => ({
    prepare: () => Promise.reject(new ContainerError('There is no layer /layers/base')),
  }));
  t.match(await containers.create(specOf('a')), {
    state: { name: 'failed', reason: 'There is no layer /layers/base' },
  });
  await t.rejects(containers.startContainer('a'), /could not be created; delete it \(There is no layer/);
  await containers.delete('a', { force: false });
  t.same(containers.list(), []);
});

t.test('a start that fails stops the container with the reason', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent(() => ({
    start: () => Promise.reject(new ContainerError('There is no program serve')),
  }));
  await containers.create(specOf('a'));
  t.match(await containers.startContainer('a'), {
    state: { name: 'stopped', exit: { unknown: 'There is no program serve' } },
  });
});

t.test('a creation that lost its agent has failed', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent(() => ({ prepare: () => new Promise(() => undefined) }));
  void first.create(specOf('a'));
  await machine.settle();
  const next = await machine.agent();
  t.match(stateOf(next, 'a'), { name: 'failed', reason: /The agent ended/ });
});

t.test('a delete that fails says so and can be repeated', async (t) => {
  const machine = new Machine(t);
  let isBusy = true;
  const containers = await machine.agent((runtime) => {
    const remove = runtime.remove.bind(runtime);
    return { remove: (id) => (isBusy ? Promise.reject(new ContainerError('It is busy')) : remove(id)) };
  });
  await containers.create(specOf('a'));
  await t.rejects(containers.delete('a', { force: false }), /It is busy/);
  t.equal(stateOf(containers, 'a').name, 'deleting');
  await containers.startContainer('a').catch(() => undefined);
  await containers.create(specOf('b'));
  await containers.startContainer('b');
  await t.rejects(containers.delete('b', { force: true }), /It is busy/);
  isBusy = false;
  await containers.delete('a', { force: false });
  await containers.delete('b', { force: false });
  t.same(containers.list(), []);
});

t.test('a create can be repeated, and two containers cannot share an id', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  const [first, second] = await Promise.all([containers.create(specOf('a')), containers.create(specOf('a'))]);
  t.same(second, first);
  await t.rejects(containers.create(specOf('a', ['true'])), ContainerExistsError);
  await containers.create(specOf('b'));
  await containers.create(specOf('c'));
  await t.rejects(containers.create(specOf('d')), TooManyContainersError);
});

t.test('a running container is deleted only by force, and an unknown one not at all', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  await containers.create(specOf('a'));
  await containers.startContainer('a');
  await t.rejects(containers.delete('a', { force: false }), /Container a is running; stop it first/);
  await t.rejects(containers.delete('b', { force: true }), ContainerNotFoundError);
});

t.test('commands to one container take turns, and one that is being stopped cannot be started', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  await containers.create(specOf('a'));
  const all = await Promise.allSettled([
    containers.startContainer('a'),
    containers.stopContainer('a', TERM),
    containers.startContainer('a'),
    containers.delete('a', { force: true }),
    containers.startContainer('a'),
  ]);
  t.same(
    all.map(({ status }) => status),
    ['fulfilled', 'fulfilled', 'rejected', 'fulfilled', 'rejected'],
  );
});

t.test('with a full disk nothing starts, and what runs can be stopped and deleted', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent();
  await containers.create(specOf('a'));
  await containers.startContainer('a');
  await containers.create(specOf('b'));
  machine.records.fill();
  await t.rejects(containers.create(specOf('c')), /cannot be recorded: ENOSPC/);
  t.throws(() => containers.get('c'), ContainerNotFoundError);
  await t.rejects(containers.startContainer('b'), /cannot be recorded: ENOSPC/);
  t.equal(stateOf(containers, 'b').name, 'created');
  t.match(await containers.stopContainer('a', TERM), { state: { name: 'stopped' } });
  await containers.delete('a', { force: false });
  t.same(machine.host.ids, ['b']);
});

t.test('a container that was made on a disk that is full now has failed, and can be deleted', async (t) => {
  const machine = new Machine(t);
  const containers = await machine.agent((runtime) => {
    const prepare = runtime.prepare.bind(runtime);
    return {
      prepare: async (spec) => {
        machine.records.fill();
        await prepare(spec);
      },
    };
  });
  t.match(await containers.create(specOf('a')), { state: { name: 'failed', reason: /cannot be recorded: ENOSPC/ } });
  await containers.delete('a', { force: false });
  t.same(machine.host.ids, []);
});

t.test('what no record names is removed at the start; a damaged record keeps its container', async (t) => {
  const machine = new Machine(t);
  machine.host.prepare(specOf('lost'));
  machine.host.prepare(specOf('damaged'));
  machine.records.damage('damaged', 'Unexpected end of JSON input');
  const containers = await machine.agent();
  t.same(machine.host.ids, ['damaged']);
  t.same(containers.list(), []);
  const busy = { code: 'ContainerBusy', message: /cannot be read \(Unexpected end of JSON input\).*repair the record/ };
  t.throws(() => containers.get('damaged'), busy);
  await t.rejects(containers.create(specOf('damaged')), busy);
  await t.rejects(containers.startContainer('damaged'), busy);
  await t.rejects(containers.delete('damaged', { force: true }), busy);
  t.same([machine.host.ids, [...machine.records.kept]], [['damaged'], []], 'nothing of it has changed');
  for (const id of ['b', 'c']) await containers.create(specOf(id));
  await t.rejects(containers.create(specOf('d')), { code: 'TooManyContainers' }, 'and it counts');
});
