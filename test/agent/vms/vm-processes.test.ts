import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import t, { type Test } from 'tap';
import { readProcesses } from '../../../lib/agent/vms/vm-processes.ts';

/** A process that runs until the test ends. */
async function processWith(t: Test, args: readonly string[]): Promise<number> {
  const child = spawn('sh', ['-c', 'echo started; read line', ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  t.teardown(async () => {
    child.stdin.end();
    await ended;
  });
  await once(child.stdout, 'data');
  return Number(child.pid);
}

/** What this process has read so far, from files and from /proc. */
const bytesRead = async () => Number(/^rchar: (\d+)/m.exec(await readFile('/proc/self/io', 'utf8'))?.[1]);

t.test('only the beginning of the arguments of a process is read', async (t) => {
  const pid = await processWith(t, Array(10).fill('x'.repeat(100_000)));
  const before = await bytesRead();
  const found = await readProcesses(Array(300).fill(pid));
  const bytes = (await bytesRead()) - before;
  t.equal(found.length, 300);
  t.same(found[0]?.args.slice(0, 3), ['sh', '-c', 'echo started; read line']);
  t.ok(bytes < 300 * 12_000, `${bytes} bytes`);
});

for (const [name, args] of [
  ['long', ['x'.repeat(1_000)]],
  ['escaped', ['\u0001'.repeat(1_000)]],
  ['empty', Array(1_000).fill('')],
  ['many', Array(1_000).fill('"')],
  ['outside of the first plane', ['\u{1f600}'.repeat(500)]],
] as const)
  t.test(`arguments that are ${name} are cut so that many processes fit into a result`, async (t) => {
    const [found] = await readProcesses([await processWith(t, args)]);
    const shown = JSON.stringify(found?.args);
    t.ok(shown.startsWith('["sh","-c","echo started; read line",'), shown);
    t.ok(shown.length <= 102, `${shown.length} characters`);
    t.ok(found?.args.every((arg) => arg.isWellFormed()));
  });

t.test('a process that has ended is left out', async (t) => {
  const child = spawn('true');
  await once(child, 'exit');
  t.same(await readProcesses([Number(child.pid)]), []);
});
