import t from 'tap';
import type { LinuxRuntime } from '../../../lib/agent/containers/linux-runtime.ts';
import type { ExecRequest } from '../../../lib/agent/containers/runtime.ts';
import { ContainerMachine, lacksContainers, shell } from '../../support/container-machine.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers();
const RUN = { id: 'a', number: 1 };

/** A program in the container, and what it has written so far. */
function execOf(runtime: LinuxRuntime, script: string, change: Partial<ExecRequest> = {}) {
  const written = { stdout: '', stderr: '' };
  const abort = new AbortController();
  const request: ExecRequest = {
    args: ['/bin/sh', '-c', script],
    env: {},
    directory: '/tmp',
    uid: 0,
    gid: 0,
    signal: abort.signal,
    output: (stream, chunk) => {
      written[stream] += chunk;
    },
    ...change,
  };
  return { written, abort, result: runtime.exec(RUN, request) };
}

t.test('programs run in a container', { skip }, async (t) => {
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent();
  const spec = shell('a', 'echo ready; while true; do sleep 0.1; done');
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  await machine.line('a', /ready/);
  const processes = async () => (await runtime.usage(RUN))?.processes;

  await t.test('with their output, environment, directory, user and exit code', async (t) => {
    const exec = execOf(runtime, 'pwd; id -u; echo $TOKEN >&2; exit 5', {
      env: { TOKEN: 'x y' },
      uid: 1000,
      gid: 1000,
    });
    t.same(await exec.result, { exitCode: 5 });
    t.same(exec.written, { stdout: '/tmp\n1000\n', stderr: 'x y\n' });
  });

  await t.test('with no more privileges than the container', async (t) => {
    const exec = execOf(
      runtime,
      'grep -E "^(CapEff|NoNewPrivs|Seccomp:)" /proc/self/status; unshare -r true && echo free',
    );
    await exec.result;
    t.equal(exec.written.stdout, 'CapEff:\t00000000800405fb\nNoNewPrivs:\t1\nSeccomp:\t2\n');
  });

  await t.test('one that does not exist is refused with the reason', async (t) => {
    const exec = execOf(runtime, '', { args: ['/bin/none'] });
    await t.rejects(exec.result, /could not be started: .*\/bin\/none.*no such file/);
  });

  await t.test('one that a signal ends has 128 and its number', async (t) => {
    t.same(await execOf(runtime, 'kill -TERM $$').result, { exitCode: 143 });
    t.same(await execOf(runtime, 'kill -KILL $$').result, { exitCode: 137 });
  });

  await t.test('an abort kills it with its children', async (t) => {
    const exec = execOf(runtime, 'trap "" TERM; sleep 1000 & echo ready; while true; do sleep 1; done');
    await until(() => exec.written.stdout.includes('ready'));
    t.ok(((await processes()) ?? 0) >= 4);
    exec.abort.abort();
    t.same(await exec.result, { exitCode: null });
    await until(async () => ((await processes()) ?? 0) <= 2, 'only those of the container are left');
  });

  await t.test('one that is aborted before it starts does not run', async (t) => {
    const exec = execOf(runtime, 'touch /tmp/ran', { signal: AbortSignal.abort() });
    t.same(await exec.result, { exitCode: null });
    t.same(await execOf(runtime, 'test -e /tmp/ran').result, { exitCode: 1 });
  });

  await t.test('it ends with its container', async (t) => {
    const exec = execOf(runtime, 'echo ready; sleep 1000');
    await until(() => exec.written.stdout.includes('ready'));
    await runtime.signal(RUN, 'SIGKILL');
    t.same(await exec.result, { exitCode: null });
    await runtime.remove('a');
    t.same(await machine.traces(), []);
  });
});
