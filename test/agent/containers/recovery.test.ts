/** Runs of an earlier agent that cannot be looked up immediately. */
import t from 'tap';
import type { Containers } from '../../../lib/agent/containers/containers.ts';
import type { ContainerRuntime } from '../../../lib/agent/containers/runtime.ts';
import { MachineInMemory as Machine, specOf } from '../../support/containers-in-memory.ts';

/** Like the real runtime, this one reports the end of a run only after that run was found. */
const failingFinds =
  (failures: number) =>
  (runtime: ContainerRuntime): Partial<ContainerRuntime> => {
    const [find, onEnd] = [runtime.find.bind(runtime), runtime.onEnd.bind(runtime)];
    let left = failures;
    const found = new Set<string>();
    return {
      async find(run) {
        left -= 1;
        if (left >= 0) throw new Error('runc state: it did not answer in time');
        found.add(run.id);
        return find(run);
      },
      onEnd: (listener) => onEnd((run, exit) => void (found.has(run.id) && listener(run, exit))),
    };
  };

for (const [name, end] of Object.entries({
  stopped: (containers: Containers) => containers.stopContainer('a', { signal: 'SIGKILL', timeoutMs: 0 }),
  deleted: (containers: Containers) => containers.delete('a', { force: true }),
}))
  t.test(`a container whose run cannot be looked up at first is found later, and can be ${name}`, async (t) => {
    const machine = new Machine(t);
    const first = await machine.agent();
    await first.create(specOf('a'));
    await first.startContainer('a');
    const next = await machine.agent(failingFinds(3));
    let isDone = false;
    const ending = end(next).then(() => {
      isDone = true;
    });
    await machine.clock.advance(2_000);
    t.notOk(isDone, 'its end is not seen yet');
    await machine.clock.advance(60_000);
    t.ok(isDone);
    await ending;
    t.same(
      next.list().map(({ state }) => state.name),
      name === 'deleted' ? [] : ['stopped'],
    );
  });

t.test('the signal of a stop before the run is found is sent once', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent();
  await first.create(specOf('a'));
  await first.startContainer('a');
  const signals: string[] = [];
  const next = await machine.agent((runtime) => ({
    ...failingFinds(1)(runtime),
    signal: async (_run, signal) => void signals.push(signal),
  }));
  const stopped = next.stopContainer('a', { signal: 'SIGTERM', timeoutMs: 3_600_000 });
  await machine.clock.advance(60_000);
  t.same(signals, ['SIGTERM']);
  await Promise.race([stopped, next.stop()]);
});

t.test('an agent that stops does not look for runs any more', async (t) => {
  const machine = new Machine(t);
  const first = await machine.agent();
  await first.create(specOf('a'));
  await first.startContainer('a');
  let finds = 0;
  const next = await machine.agent(() => ({
    find: async () => {
      finds += 1;
      throw new Error('no answer');
    },
  }));
  await next.stop();
  await machine.clock.advance(60_000);
  t.equal(finds, 1);
});
