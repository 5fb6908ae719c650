import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import t, { type Test } from 'tap';
import type { ProcessGroup } from '../../../lib/agent/journal/journal.ts';
import { buildEnvironment, parseInterpreter, runCommand } from '../../../lib/agent/machine/command.ts';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import type { Command } from '../../../lib/agent/machine/machine.ts';
import { allProcesses, parseStat } from '../../../lib/agent/machine/proc.ts';
import { streamCommand } from '../../../lib/agent/machine/streamed-command.ts';
import { TaskFailure } from '../../../lib/agent/task-failure.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../../lib/platform/time/clock.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';

async function folder(t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'command-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

interface CommandOptions extends Partial<Command> {
  begin?: (group?: ProcessGroup) => Promise<void>;
  abort?: AbortController;
  clock?: Clock;
}

async function start(
  t: Test,
  { begin, abort = new AbortController(), clock = systemClock, ...command }: CommandOptions,
) {
  const directory = await folder(t);
  const output: string[] = [];
  const groups: ProcessGroup[] = [];
  const run = {
    id: random.uuid(),
    signal: abort.signal,
    begin: async (group?: ProcessGroup) => {
      if (group) groups.push(group);
      await begin?.(group);
    },
    output: (stream: string, _offset: number, text: string) => void output.push(`${stream}: ${text}`),
  };
  const given = { script: '', args: [], env: {}, ...command };
  const result = runCommand({ clock, directory, bootId: 'boot' }, given, run);
  return { result, abort, output, groups, directory };
}

const run = async (t: Test, given: CommandOptions) => (await start(t, given)).result;

const aliveIn = async (group: ProcessGroup | undefined) =>
  (await allProcesses()).filter((one) => one.pgid === group?.pgid && one.state !== 'Z').length;

for (const [name, runs] of Object.entries({
  'a command': async (t: Test, begin: NonNullable<CommandOptions['begin']>) => {
    await run(t, { script: 'true', begin });
  },
  'one with streams': async (t: Test, begin: NonNullable<CommandOptions['begin']>) => {
    const deps = { clock: systemClock, directory: await folder(t), bootId: 'boot' };
    const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
    const command = { program: { script: 'true', args: [] }, env: {}, streams, onResize: () => undefined };
    await streamCommand(deps, command, { id: random.uuid(), signal: new AbortController().signal, begin });
  },
}))
  t.test(`${name} that the journal cannot hold leaves no process`, async (t) => {
    let group: ProcessGroup | undefined;
    const begin = async (given?: ProcessGroup) => {
      group = given;
      throw new Error('ENOSPC: no space left on device');
    };
    await t.rejects(runs(t, begin), /ENOSPC/);
    t.ok(group);
    await untilGone(group);
  });

/** A killed process takes a moment to disappear. */
async function untilGone(group: ProcessGroup | undefined): Promise<void> {
  await until(async () => (await aliveIn(group)) === 0, 'its processes to disappear');
}

const stop = () => new TaskFailure('Cancelled', '');

t.test('a script runs under its own interpreter with its arguments and variables, without the agent’s', async (t) => {
  process.env.AGENT_SECRET = 'not to be seen';
  t.match(await run(t, { script: 'echo "$1-$2 $X"; echo err >&2; exit 3', args: ['a b', 'c'], env: { X: 'y' } }), {
    exitCode: 3,
    signal: null,
    stdout: 'a b-c y\n',
    stderr: 'err\n',
    killed: false,
  });
  t.match(await run(t, { script: 'echo "$go"', env: { go: 'of the caller' } }), { stdout: 'of the caller\n' });
  t.match(await run(t, { script: '#!/bin/bash -e\nfalse\necho never' }), { exitCode: 1, stdout: '' });
  t.match(await run(t, { script: '#!/usr/bin/env bash\n[[ a == a* ]] && echo bash' }), { stdout: 'bash\n' });
  t.match(await run(t, { script: '#!/no/such/interpreter\n' }), { exitCode: 127, stderr: /not found/ });
  const { stdout } = await run(t, { script: 'env; ls -l /proc/self/fd | wc -l' });
  t.notMatch(stdout, /AGENT_SECRET/);
  t.match(stdout, /^PATH=/m);
});

t.test(
  'a command that a signal ended has the exit code 128 + N, also if Node has no name for the signal',
  async (t) => {
    const byNumber = { 9: 'SIGKILL', 15: 'SIGTERM', 34: null, 64: null };
    for (const [number, signal] of Object.entries(byNumber)) {
      const script = `#!/bin/bash\nkill -${number} $$; exit 7`;
      t.match(await run(t, { script }), { exitCode: 128 + Number(number), signal, stderr: '', killed: false });
    }
  },
);

t.test('a signal that a command sends to its process group does not hide its exit code', async (t) => {
  const script = '#!/bin/bash\ntrap "echo seen" TERM 34\nkill -TERM 0; kill -34 0; exit 3';
  t.match(await run(t, { script }), { exitCode: 3, signal: null, stdout: 'seen\nseen\n', stderr: '' });
});

t.test('a command that handles SIGTERM at an abort ends with its own exit code', async (t) => {
  const script = 'trap "sleep 0.1; echo tidied; exit 3" TERM; echo up; while :; do sleep 0.1; done';
  const { result, abort, output } = await start(t, { script });
  await until(() => output.length > 0, 'output');
  abort.abort(stop());
  t.match(await result, { exitCode: 3, signal: null, stdout: 'up\ntidied\n', killed: true });
});

t.test('output that an agent reads late, because it stood still, is complete', async (t) => {
  const clock = new ManualClock();
  // More than is read before the first pause, and no more than the connection holds.
  const script = 'head -c 150000 /dev/zero | tr "\\0" x';
  const { result, output } = await start(t, { script, isPaced: true, clock });
  await until(() => clock.timers >= 3, 'a pause, a flush, and the exit');
  await clock.stall(5_000);
  let isEnded = false;
  void result.finally(() => {
    isEnded = true;
  });
  await until(async () => {
    await clock.advance(10);
    return isEnded;
  });
  t.match(await result, { exitCode: 0, killed: false });
  t.equal((await result).stdout.length, 150_000);
  t.equal(output.join('').replaceAll('stdout: ', '').length, 150_000, 'live');
});

t.test('a process that has left the group and goes on writing does not keep a command from ending', async (t) => {
  // It ends when nobody reads any more; the count ends it if this test fails.
  const writer = 'i=0; while [ $i -lt 5000 ] && echo more; do sleep 0.02; i=$((i+1)); done';
  const { result } = await start(t, { script: `echo first; setsid sh -c '${writer}' & sleep 0.2` });
  let isEnded = false;
  void result.finally(() => {
    isEnded = true;
  });
  await until(() => isEnded, 'the end');
  t.match(await result, { exitCode: 0, stdout: /^first\nmore\n/, killed: false });
});

t.test('the first line selects the interpreter as the kernel would', async (t) => {
  const rows: [string, string[]][] = [
    ['echo', ['/bin/sh']],
    ['#! /bin/bash\n', ['/bin/bash']],
    ['#!/usr/bin/env python3 -u\n', ['/usr/bin/env', 'python3 -u']],
    ['#!\necho', ['/bin/sh']],
    [' #!/bin/bash', ['/bin/sh']],
  ];
  for (const [script, argv] of rows) t.same(parseInterpreter(script), argv, JSON.stringify(script));
  t.same(buildEnvironment({ HOME: '/x' }, { PATH: '/p', SECRET: 's' }), { PATH: '/p', HOME: '/x', LANG: 'C.UTF-8' });
});

t.test('a command does not run before its process group is journalled', async (t) => {
  const directory = await folder(t);
  const marker = join(directory, 'ran');
  let journalled = () => {};
  const written = new Promise<void>((done) => {
    journalled = done;
  });
  const { result, groups } = await start(t, { script: `echo x > ${marker}`, begin: () => written });
  const group = await until(() => groups[0], 'the group');
  await new Promise((done) => setTimeout(done, 200));
  t.same(await readdir(directory), []);
  t.equal(await aliveIn(group), 1, 'the process waits for its group to be journalled');
  journalled();
  t.match(await result, { exitCode: 0 });
  t.same(await readdir(directory), ['ran']);
});

t.test('an abort before the start runs nothing', async (t) => {
  const abort = new AbortController();
  const { result, groups } = await start(t, { script: 'echo ran', abort, begin: async () => abort.abort(stop()) });
  t.match(await result, { stdout: '', killed: true });
  t.equal(await aliveIn(groups[0]), 0);
});

t.test('an abort kills the whole process group', async (t) => {
  const { result, abort, groups, output } = await start(t, {
    script: 'sleep 1000 & sh -c "sleep 1000" & echo up; wait',
  });
  await until(() => output.length > 0, 'output');
  t.ok((await aliveIn(groups[0])) >= 3);
  abort.abort(stop());
  t.match(await result, { killed: true, signal: 'SIGTERM', stdout: 'up\n' });
  await untilGone(groups[0]);
});

t.test('a process group that ignores SIGTERM gets SIGKILL', async (t) => {
  const script = 'trap "" TERM; echo up; while :; do sleep 0.1; done';
  const { result, abort, groups, output } = await start(t, { script });
  await until(() => output.length > 0, 'output');
  abort.abort(stop());
  t.match(await result, { killed: true, signal: 'SIGKILL' });
  await untilGone(groups[0]);
});

t.test('a command ends although a background child holds its output open', async (t) => {
  const { result, groups } = await start(t, { script: 'sleep 1000 & echo done; exit 4' });
  t.match(await result, { exitCode: 4, stdout: 'done\n', killed: false });
  await untilGone(groups[0]);
});

t.test('the output kept of a command is bounded to its first and last halves', async (t) => {
  const { stdout } = await run(t, { script: 'echo first; yes "and so on" | head -c 3000000; echo last' });
  t.match(stdout, /^first\n[\s\S]*bytes cut[\s\S]*last\n$/);
  t.ok(stdout.length < 1024 * 1024 + 100);
});

t.test('a command that writes without end does not block the agent', async (t) => {
  const { result, abort, output } = await start(t, { script: 'yes' });
  await until(() => output.length > 3, 'output');
  const turnsInHalfASecond = async () => {
    let turns = 0;
    for (const end = Date.now() + 500; Date.now() < end; turns++) await new Promise((done) => setImmediate(done));
    return turns;
  };
  // If the command blocked the agent, no half second would pass; on a busy machine some do not.
  await until(async () => (await turnsInHalfASecond()) > 20, 'half a second with many turns of the event loop');
  abort.abort(stop());
  t.match(await result, { killed: true });
});

t.test('a paced command is slowed down so that its live output is complete', async (t) => {
  const script = 'seq 100000 400000; seq 400000 -1 100000 >&2';
  const paced = await start(t, { script, isPaced: true });
  t.match(await paced.result, { exitCode: 0, stdout: /bytes cut/ });
  const shown = (name: string) =>
    paced.output
      .filter((piece) => piece.startsWith(`${name}: `))
      .map((piece) => piece.slice(name.length + 2))
      .join('');
  const numbers = Array.from({ length: 300_001 }, (_, n) => `${100_000 + n}\n`);
  t.ok(shown('stdout') === numbers.join(''));
  t.ok(shown('stderr') === numbers.reverse().join(''));
});

t.test('live output does not split characters that arrive in parts', async (t) => {
  const script = "printf '\\303'; sleep 0.3; printf '\\244\\342'; sleep 0.3; printf '\\202\\254'";
  const { result, output } = await start(t, { script });
  t.match(await result, { stdout: 'ä€' });
  t.same(output.join(''), 'stdout: ästdout: €');
});

t.test('only the owner can read a command’s script file, which is removed afterwards', async (t) => {
  const { result, directory } = await start(t, { script: 'stat -c %a "$0"' });
  t.match(await result, { stdout: '700\n' });
  t.same(await readdir(directory), []);
});

t.test('the next agent kills what a killed agent left running, and nothing else', async (t) => {
  const runDirectory = await folder(t);
  const machine = await openLinuxMachine({
    clock: systemClock,
    serverUuid: random.uuid(),
    agentVersion: '1',
    runDirectory,
  });
  const abort = new AbortController();
  const begun: ProcessGroup[] = [];
  const result = machine.execute(
    { script: 'sleep 1000 & sleep 1000', args: [], env: {} },
    {
      id: 'left',
      signal: abort.signal,
      begin: async (group) => void begun.push(group as ProcessGroup),
      output: () => {},
    },
  );
  const group = await until(() => begun[0], 'the group');
  t.teardown(() => abort.abort(stop()));
  await machine.endGroup({ ...group, startTime: '1' });
  await machine.endGroup({ ...group, bootId: 'another boot' });
  t.ok((await aliveIn(group)) > 0, 'a group with the same number but another start time or boot is not killed');
  await machine.endGroup(group);
  t.equal(await aliveIn(group), 0);
  t.match(await result, { signal: 'SIGKILL' });
});

t.test('a process is identified by its start time, whatever its name', async (t) => {
  const text = '42 (a) b (c)) S 1 40 41 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 123456 1000';
  t.same(parseStat(42, text), { pid: 42, parent: 1, state: 'S', pgid: 40, session: 41, startTime: '123456' });
  t.equal(parseStat(42, 'nonsense'), undefined);
});

t.test('a command line that is too long for the kernel fails with SpawnFailed', async (t) => {
  const args = Array.from({ length: 1000 }, () => 'x'.repeat(10_000));
  await t.rejects(run(t, { script: 'true', args }), { code: 'SpawnFailed', message: /E2BIG/ });
  await t.rejects(run(t, { script: 'true', args: ['x'.repeat(200_000)] }), { code: 'SpawnFailed' });
});
