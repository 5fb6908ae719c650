import { access, stat } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { Containers } from '../../../../lib/agent/containers/containers.ts';
import { containerPaths } from '../../../../lib/agent/containers/linux/container-paths.ts';
import { ContainerLogs } from '../../../../lib/agent/containers/logs/container-logs.ts';
import { LogFiles } from '../../../../lib/agent/containers/logs/log-files.ts';
import { containerRecords } from '../../../../lib/agent/containers/open-containers.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { runPrepared, scriptRequest } from '../../../support/container-exec.ts';
import { ContainerMachine, lacksContainers, shell } from '../../../support/container-machine.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers();
const MIB = 1024 * 1024;

interface Agent {
  containers: Containers;
  logs: ContainerLogs;
  stop(): Promise<void>;
}

class Machine {
  readonly #machine: ContainerMachine;

  private constructor(machine: ContainerMachine) {
    this.#machine = machine;
  }

  static async open(t: Test): Promise<Machine> {
    return new Machine(await ContainerMachine.open(t));
  }

  get directory(): string {
    return this.#machine.directory;
  }

  async agent(): Promise<Agent> {
    const runtime = await this.#machine.agent();
    const { directory } = this;
    const deps = { clock: systemClock, log: silentLogger };
    const containers = new Containers({ ...deps, runtime, records: containerRecords(join(directory, 'records')) });
    await containers.start();
    const logs = new ContainerLogs({ ...deps, directory, containers });
    logs.start();
    const stop = () => {
      logs.stop();
      return containers.stop();
    };
    return { containers, logs, stop };
  }

  files(id: string): LogFiles {
    const { logs, control } = containerPaths(this.directory, id);
    return new LogFiles(logs, control);
  }
}

/** Joins parts of lines, which are of one stream. */
async function* linesOf(logs: ContainerLogs, id: string, follow: boolean): AsyncGenerator<string[]> {
  let begun = '';
  let skipped = 0;
  for await (const entries of logs.read(id, { follow, skipped: (files) => (skipped += files) })) {
    const lines: string[] = [];
    for (const { text, isPartial } of entries) {
      begun += text;
      if (isPartial) continue;
      lines.push(begun);
      begun = '';
    }
    yield lines;
  }
  if (skipped > 0) yield [`skipped ${skipped}`];
}

const allLines = async (logs: ContainerLogs, id: string, follow: boolean) =>
  (await Array.fromAsync(linesOf(logs, id, follow))).flat();
const numbers = (count: number) => Array.from({ length: count }, (_, index) => `${index + 1}`).join();

/** Lets a script go on that reads a line from /tmp/go. */
async function go(containers: Containers, id: string): Promise<void> {
  await runPrepared(await containers.prepareExec(id, scriptRequest('echo go > /tmp/go')));
}

/**
 * The first part ends just below the number of bytes after which the monitor begins a file by
 * itself; that happens in the second part. However slow this machine is, nothing may be lost.
 */
t.test('of a fast writer no line is lost or twice while its log is rotated', { skip }, async (t) => {
  const machine = await Machine.open(t);
  const { containers, logs, stop } = await machine.agent();
  const [first, between, last] = [1_000_000, 2_244_000, 2_500_000];
  const wanted = Array.from({ length: last - first + 1 }, (_, index) => `${first + index}`).join();
  const seq = (from: number, to: number) => `/bin/busybox seq ${from} ${to}`;
  const script = `${seq(first, between)}; read -r go < /tmp/go; ${seq(between + 1, last)}`;
  const log = { maxBytes: MIB, maxFiles: 100 };
  await containers.create(shell('fast', `/bin/busybox mkfifo /tmp/go; ${script}`, { log }));
  const begun = performance.now();
  await containers.startContainer('fast');
  const followed: string[] = [];
  for await (const lines of linesOf(logs, 'fast', true)) {
    followed.push(...lines);
    if (lines.at(-1) === `${between}`) await go(containers, 'fast');
  }
  t.comment(`followed ${followed.length} lines in ${Math.round(performance.now() - begun)} ms`);
  t.ok(followed.join() === wanted, 'a follower sees each line once, in order');
  const files = await machine.files('fast').numbers();
  t.comment(`${files.length} files`);
  t.ok(files.length > 2);
  t.ok((await allLines(logs, 'fast', false)).join() === wanted, 'the files hold the same');
  await stop();
});

t.test('old files are removed, and all of them with the container', { skip }, async (t) => {
  const machine = await Machine.open(t);
  const { containers, logs, stop } = await machine.agent();
  const log = { maxBytes: 64 * 1024, maxFiles: 3 };
  const script =
    'i=0; while [ $i -lt 400 ]; do i=$((i+1)); /bin/busybox seq 1 100; /bin/busybox usleep 5000; done; echo end >&2';
  await containers.create(shell('many', script, { log }));
  await containers.startContainer('many');
  await until(() => containers.get('many').state.name === 'stopped');
  const files = machine.files('many');
  await until(async () => (await files.numbers()).length <= 3);
  const left = await files.numbers();
  t.ok((left[0] ?? 0) > 3, `${left.join()} are left`);
  const last = (await Array.fromAsync(logs.read('many', { from: { lines: 2 } }))).flat();
  matchLists(t, last, [
    { stream: 'stdout', text: '100' },
    { stream: 'stderr', text: 'end', isPartial: false },
  ]);
  await containers.delete('many', { force: false });
  await t.rejects(access(files.directory), { code: 'ENOENT' });
  t.throws(() => logs.read('many'), { code: 'ResourceNotFound' });
  await stop();
});

t.test('the next agent goes on, also with what was written while there was none', { skip }, async (t) => {
  const machine = await Machine.open(t);
  const first = await machine.agent();
  const script =
    'echo before; read -r go < /tmp/go; /bin/busybox seq 1 20000; echo after; read -r go < /tmp/go; echo last';
  const log = { maxBytes: 64 * 1024, maxFiles: 50 };
  await first.containers.create(shell('a', `/bin/busybox mkfifo /tmp/go; ${script}`, { log }));
  await first.containers.startContainer('a');
  const files = machine.files('a');
  await until(async () => ((await files.current())?.size ?? 0) > 0);
  await go(first.containers, 'a');
  await first.stop();
  await until(async () => ((await files.current())?.size ?? 0) > 100_000 || (await files.numbers()).length > 1);
  const next = await machine.agent();
  const followed = allLines(next.logs, 'a', true);
  await until(async () => (await files.numbers()).length > 1, 'the next agent has rotated the log');
  t.ok((await stat(files.pathOf(1))).size > 64 * 1024);
  await go(next.containers, 'a');
  t.ok((await followed).join() === ['before', numbers(20_000), 'after', 'last'].join());
  await next.stop();
});

t.test('a follower of a container that runs again sees one run, the log keeps both', { skip }, async (t) => {
  const machine = await Machine.open(t);
  const { containers, logs, stop } = await machine.agent();
  await containers.create(shell('b', 'echo €; echo error >&2'));
  for (const times of [1, 2]) {
    await containers.startContainer('b');
    await allLines(logs, 'b', true);
    const seen = await allLines(logs, 'b', false);
    t.same(seen.filter((one) => one === '€').length, times);
    t.same(seen.filter((one) => one === 'error').length, times);
  }
  await stop();
});
