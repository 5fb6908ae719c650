import { spawn } from 'node:child_process';
import { once } from 'node:events';
import t from 'tap';
import type { LinuxRuntime } from '../../../../lib/agent/containers/linux/linux-runtime.ts';
import type { ExecRequest } from '../../../../lib/agent/containers/runtime.ts';
import { signalProcess } from '../../../../lib/agent/machine/proc.ts';
import { runPrepared, scriptRequest } from '../../../support/container-exec.ts';
import { ContainerMachine, lacksContainers, shell } from '../../../support/container-machine.ts';
import { FILE_TIMEOUT_MS, HANG_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers();
const RUN = { id: 'a', number: 1 };
/** The container has one process of its own. */
const OWN_PROCESSES = 1;

const prepared = (runtime: LinuxRuntime, script: string, change: Partial<ExecRequest> = {}) =>
  runtime.prepareExec(RUN, scriptRequest(script, { directory: '/tmp', ...change }));

const run = async (runtime: LinuxRuntime, script: string, change: Partial<ExecRequest> = {}) =>
  runPrepared(await prepared(runtime, script, change));

t.test('programs run in a container', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  let runtime = await machine.agent();
  const spec = shell('a', '/bin/busybox mkfifo /tmp/in; echo ready; while true; do read -r line </tmp/in; done');
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  await machine.line('a', /ready/);
  const onlyOwn = () =>
    until(async () => (await runtime.processes(RUN)).length <= OWN_PROCESSES, 'only those of the container are left');

  await t.test('with their input, output, environment, directory, user and exit code', async (t) => {
    const exec = await prepared(runtime, 'pwd; id -u; cat; echo $TOKEN >&2; exit 5', {
      env: { TOKEN: 'x y' },
      uid: 1000,
      gid: 1000,
    });
    t.match(await runPrepared(exec, { input: 'given' }), {
      exitCode: 5,
      stdout: '/tmp\n1000\ngiven',
      stderr: 'x y\n',
      outcome: { exitCode: 5 },
    });
  });

  await t.test('with no more privileges than the container', async (t) => {
    const script = 'grep -E "^(CapEff|NoNewPrivs|Seccomp:)" /proc/self/status; unshare -r true && echo free';
    t.equal((await run(runtime, script)).stdout, 'CapEff:\t00000000800405fb\nNoNewPrivs:\t1\nSeccomp:\t2\n');
  });

  await t.test('one that does not exist is refused with the reason', async (t) => {
    const { outcome } = await run(runtime, '', { args: ['/bin/none'] });
    t.match(outcome, { notStarted: /\/bin\/none.*no such file/ });
  });

  await t.test('one that a signal ends has 128 and its number', async (t) => {
    t.match(await run(runtime, 'kill -TERM $$'), { exitCode: 143, signal: 'SIGTERM' });
    t.match(await run(runtime, 'kill -KILL $$'), { exitCode: 137, signal: 'SIGKILL', outcome: { exitCode: 137 } });
  });

  await t.test('what one leaves in its session is killed, also if it holds the output', async (t) => {
    t.match(await run(runtime, 'sleep 1000 & echo done; exit 3'), { stdout: 'done\n', outcome: { exitCode: 3 } });
    await onlyOwn();
    await run(runtime, 'sleep 1000 </dev/null >/dev/null 2>&1 &');
    await onlyOwn();
  });

  await t.test('a daemon stays, and does not keep it from ending when it holds the output', async (t) => {
    for (const output of ['', '</dev/null >/dev/null 2>&1']) {
      const end = await run(runtime, `/bin/busybox setsid sleep 1000 ${output} & echo done; sleep 0.3; exit 4`);
      t.match(end, { stdout: 'done\n', killed: false, outcome: { exitCode: 4 } });
      const { stdout } = await run(runtime, 'ps -o pid,args | grep "[s]leep 1000"');
      t.match(stdout, /^\s*\d+ sleep 1000$/m, 'it belongs to the container');
      await run(runtime, `kill -9 ${Number.parseInt(stdout, 10)}`);
      await onlyOwn();
    }
  });

  await t.test('an abort kills it with all that it has started', async (t) => {
    const abort = new AbortController();
    const daemon = '/bin/busybox setsid sleep 1000 </dev/null >/dev/null 2>&1 &';
    const exec = await prepared(
      runtime,
      `trap "" TERM; ${daemon} sleep 1000 & echo ready; while true; do sleep 1; done`,
    );
    const output = (text: string) => text.includes('ready') && abort.abort();
    t.match(await runPrepared(exec, { signal: abort.signal, output }), { killed: true, outcome: { exitCode: Number } });
    await onlyOwn();
  });

  for (const [name, reader] of Object.entries({
    'that ignores SIGTERM': `trap "" TERM; echo ready; cat >/tmp/part; touch /tmp/complete`,
    'whose reader is behind a pipe': 'echo ready; cat | (cat >/tmp/part; touch /tmp/complete); true',
  }))
    await t.test(`an abort does not look like the end of its input to one ${name}`, async (t) => {
      for (let attempt = 0; attempt < 5; attempt++) {
        const abort = new AbortController();
        const exec = await prepared(runtime, `rm -f /tmp/complete; ${reader}`);
        const output = (text: string) => text.includes('ready') && abort.abort();
        const { killed } = await runPrepared(exec, { input: null, signal: abort.signal, output });
        t.ok(killed);
        await onlyOwn();
        t.match(await run(runtime, 'test -e /tmp/complete'), { exitCode: 1 });
      }
    });

  await t.test('one that is aborted before it starts does not run', async (t) => {
    const exec = await prepared(runtime, 'touch /tmp/ran');
    t.match(await runPrepared(exec, { signal: AbortSignal.abort() }), { killed: true });
    t.match(await run(runtime, 'test -e /tmp/ran'), { exitCode: 1 });
  });

  await t.test('one whose runtime is killed as soon as it is there is killed, too', async (t) => {
    for (let attempt = 0; attempt < 8; attempt++) {
      const exec = await prepared(runtime, 'trap "" HUP PIPE; while true; do sleep 1; done');
      const [file = '', ...args] = exec.argv;
      const child = spawn(file, args, { stdio: 'ignore' });
      const ended = once(child, 'exit');
      const before = new Set(await runtime.processes(RUN));
      await until(async () => (await runtime.processes(RUN)).some((pid) => !before.has(pid)));
      child.kill('SIGKILL');
      await ended;
      await exec.finish({ exitCode: null, killed: true });
      await onlyOwn();
    }
    t.pass();
  });

  await t.test('the next agent kills what a killed one has left', async (t) => {
    const exec = await prepared(
      runtime,
      'trap "" HUP PIPE; /bin/busybox setsid sleep 1000 & while true; do sleep 1; done',
    );
    const [file = '', ...args] = exec.argv;
    const child = spawn(file, args, { stdio: 'ignore' });
    const ended = once(child, 'exit');
    t.teardown(() => void (child.pid && signalProcess(child.pid, 'SIGKILL')));
    await until(async () => (await runtime.processes(RUN)).length >= OWN_PROCESSES + 2);
    runtime = await machine.agent();
    t.equal(await runtime.find(RUN), 'running');
    await onlyOwn();
    await ended;
    t.match(await run(runtime, 'echo still there'), { exitCode: 0, stdout: 'still there\n' });
  });

  await t.test('it ends with its container', async (t) => {
    const exec = await prepared(runtime, 'echo ready; sleep 1000');
    const killAtReady = (text: string) => void (text.includes('ready') && runtime.signal(RUN, 'SIGKILL'));
    t.match(await runPrepared(exec, { output: killAtReady }), { exitCode: 137, outcome: 'container-ended' });
    await runtime.remove('a');
    t.same(await machine.traces(), []);
  });
});

/**
 * A process of the container that opens the output of each program that writes its pid to /tmp/in.
 */
const HOLDER = `/bin/busybox mkfifo /tmp/in; echo ready; while true; do
  read -r pid writes </tmp/in
  (exec >/proc/$pid/fd/1; touch /tmp/held-$pid; if test "$writes"; then while echo more; do sleep 0.05; done; fi; sleep 1000) &
done`;
const heldProgram = (writes = '') =>
  `echo $$ ${writes} >/tmp/in; until test -e /tmp/held-$$; do sleep 0.1; done; echo end; exit 5`;

t.test('a container that holds the output of a program does not keep it from ending', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', HOLDER);
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  await machine.line('a', /ready/);
  const ended = { killed: false, outcome: { exitCode: 5 } };
  const terminal = { columns: 80, rows: 24, type: 'xterm' };
  const inPipes = async (script: string) =>
    runPrepared(await prepared(runtime, script), { signal: AbortSignal.timeout(HANG_MS) });
  const inTerminal = async (script: string) =>
    runPrepared(await prepared(runtime, script, { hasTerminal: true }), {
      terminal,
      signal: AbortSignal.timeout(HANG_MS),
    });
  t.match(await inPipes(heldProgram()), { ...ended, stdout: 'end\n' }, 'with pipes');
  t.match(await inPipes(heldProgram('writes')), { ...ended, stdout: /^(more\n)*end\n/ }, 'with pipes, and writes');
  t.match(await inTerminal(heldProgram()), { ...ended, stdout: 'end\r\n' }, 'in a terminal');
  await runtime.remove('a');
  t.same(await machine.traces(), []);
});
