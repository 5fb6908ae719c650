import { PassThrough } from 'node:stream';
import t from 'tap';
import type { ConsoleEnd, ConsoleInput, RunConsole } from '../../../lib/agent/containers/runtime.ts';
import { VmConsoles } from '../../../lib/agent/vms/vm-consoles.ts';
import { uuidOf } from '../../support/vm-rig.ts';

const [A, B] = [uuidOf(1), uuidOf(2)];

/** A console whose input is opened when the test says so. */
function newConsole() {
  const opening: PromiseWithResolvers<ConsoleInput>[] = [];
  const console: RunConsole = {
    openInput: () => {
      const next = Promise.withResolvers<ConsoleInput>();
      opening.push(next);
      return next.promise;
    },
    resize: async () => undefined,
  };
  const open = (index: number) => {
    const { promise: ended, resolve: close } = Promise.withResolvers<ConsoleEnd>();
    opening[index]?.resolve({ input: new PassThrough(), ended, close: () => close('closed') });
  };
  return { console, open, fail: (index: number) => opening[index]?.reject(new Error('no monitor')) };
}

t.test('who writes to the console of a VM', async (t) => {
  const consoles = new VmConsoles({ find: async () => undefined });

  await t.test('is the last that asked, also if it got its input first', async (t) => {
    const { console, open } = newConsole();
    const [first, second] = [consoles.take(A, console), consoles.take(A, console)];
    open(1);
    t.equal((await second).replaced.aborted, false);
    open(0);
    t.equal((await first).replaced.aborted, true);
    (await first).close();
    await (await first).ended;
    const third = consoles.take(A, console);
    open(2);
    await third;
    t.equal((await second).replaced.aborted, true, 'the end of the first one has not released the second');
  });

  await t.test('is another one for another VM', async (t) => {
    const { console, open } = newConsole();
    const taken = consoles.take(A, console);
    open(0);
    void consoles.take(B, console);
    t.equal((await taken).replaced.aborted, false);
  });

  await t.test('is nobody if its input cannot be opened', async (t) => {
    const { console, open, fail } = newConsole();
    const failed = consoles.take(A, console);
    fail(0);
    await t.rejects(failed, /no monitor/);
    const next = consoles.take(A, console);
    open(1);
    t.equal((await next).replaced.aborted, false);
  });

  await t.test('is nobody for a VM without a terminal', async (t) => {
    await t.rejects(consoles.get(A), { code: 'NoConsole', statusCode: 409 });
  });
});
