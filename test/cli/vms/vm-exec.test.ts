/** `cnapi vm exec` and `cnapi vm logs` with real instances, a real agent and a real VM. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { allProcesses } from '../../../lib/agent/machine/proc.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { Cli, has } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();

/** Prints what is written to /in, as long as it runs. */
const PRINTER = 'mkfifo /in; while true; do cat /in; done';
/** Leads a session of its own and holds no output. */
const DAEMON = 'setsid sleep';

t.test('programs in VMs, and what VMs print', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 2, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );
  const vm = async (...words: string[]) => {
    const ran = await cli.run('vm', ...words);
    if (ran.code !== 0) throw new Error(`cnapi vm ${words.join(' ')}: ${ran.stderr}`);
  };
  const internal_metadata = { 'docker:entrypoint': '["/bin/sh","-c"]', 'docker:cmd': JSON.stringify([PRINTER]) };
  const fields = [`image_uuid=${IMAGE}`, `internal_metadata=${JSON.stringify(internal_metadata)}`];
  const create = (alias: string) =>
    vm('create', agent.serverUuid, `alias=${alias}`, 'max_physical_memory=64', ...fields);
  await create('web');
  const exec = (words: readonly string[], { input = '', options = ['-i'], name = 'web' } = {}) =>
    cli.start(['vm', 'exec', ...options, name, '--', ...words], { input });
  const script = (text: string, options: { input?: string; options?: string[]; name?: string } = {}) =>
    exec(['sh', '-c', text], options);
  const logs = (...options: string[]) => cli.start(['vm', 'logs', 'web', ...options]);
  /** Resolves when no process of the machine has this word in its command line. */
  const isGone = (word: string) =>
    until(async () => {
      const lines = await Promise.all((await allProcesses()).map(({ pid }) => commandLine(pid)));
      return !lines.some((line) => has(line, word));
    }, `what has ${word} to end`);

  await t.test('input, output and errors arrive whole, and the exit code is that of the program', async (t) => {
    const input = randomBytes(400_000).toString('base64');
    t.same(await exec(['cat'], { input }).ended, { code: 0, stdout: input, stderr: '' });
    t.same(await script('echo out; echo err >&2; exit 7').ended, { code: 7, stdout: 'out\n', stderr: 'err\n' });
    t.match(await script('kill -9 $$').ended, { code: 137 });
    t.match(await script('echo $A', { options: ['--env', 'A=b'] }).ended, { code: 0, stdout: 'b\n' });
    const { stdout } = await script('head -c 20000000 /dev/zero | tr "\\0" x').ended;
    t.equal(stdout.length, 20_000_000);
  });

  await t.test('what cannot be run says why', async (t) => {
    t.match(await exec(['/no/such']).ended, {
      code: 127,
      stderr: /could not be started: .*no such file.*NoSuchProgram/,
    });
    t.match(await exec(['cat'], { options: [], input: 'x' }).ended, {
      code: 2,
      stderr: /input does not reach.*give -i/,
    });
    t.match(await exec(['cat'], { options: ['-it'] }).ended, { code: 2, stderr: /-t needs a terminal/ });
    t.match(await exec([]).ended, { code: 2, stderr: /Which program should run/ });
    t.match(await exec(['sleep', '4444'], { options: ['--timeout', '1s'] }).ended, {
      code: 124,
      stderr: /TaskTimeout/,
    });
    await isGone('sleep 4444');
  });

  await t.test('a process that is left and holds the output does not delay the end', async (t) => {
    t.match(await script('sleep 4445 & echo done; exit 3').ended, { code: 3, stdout: 'done\n' });
    await isGone('sleep 4445');
  });

  await t.test('when the reader of the output ends, so does the program', async (t) => {
    const running = script('while true; do echo word-of-the-reader; done');
    await running.says('word-of-the-reader');
    running.child.stdout?.destroy();
    t.match(await running.ended, { code: 141 });
    await isGone('word-of-the-reader');
  });

  await t.test('a caller that does not read makes the program wait, and nobody else keep its output', async (t) => {
    const running = script(
      'n=0; while true; do head -c 65536 /dev/zero | tr "\\0" x; n=$((n + 1)); echo $n >/count; done',
    );
    const count = async () => Number((await script('cat /count').ended).stdout);
    await running.says('xxx');
    running.child.kill('SIGSTOP');
    let last = 0;
    await until(async () => {
      const before = last;
      last = await count();
      return last > 0 && last === before;
    }, 'the program to wait');
    t.ok(last * 65_536 < 200_000_000, `${last} blocks were written`);
    running.child.kill('SIGCONT');
    await until(async () => (await count()) > last, 'the program to go on');
    running.child.kill('SIGTERM');
    t.match(await running.ended, { code: 143 });
  });

  await t.test('a program ends with all that it has started when its caller is killed', async () => {
    const running = script(`${DAEMON} 4446 </dev/null >/dev/null 2>&1 & trap "" TERM; echo begun; sleep 4446`);
    await running.says('begun');
    running.child.kill('SIGKILL');
    await isGone('sleep 4446');
  });

  await t.test('and when its agent is killed: the next agent ends it', async (t) => {
    const running = script(
      `${DAEMON} 4447 </dev/null >/dev/null 2>&1 & trap "" HUP PIPE; echo begun; sleep 4447; sleep 4447`,
    );
    await running.says('begun');
    await agent.program.kill();
    t.match(await running.ended, { code: 1, stderr: /connection to the agent broke.*StreamLost/ });
    agent.program.start();
    await isGone('sleep 4447');
    await until(async () => (await script('echo again').ended).stdout === 'again\n', 'the VM runs on');
  });

  await t.test('the log is shown from its end, followed, and ended with its reader', async (t) => {
    await script('seq 1 1000 >/in').ended;
    await until(async () => (await logs('--tail', '1').ended).stdout === '1000\n', 'the log');
    t.match(await logs('--tail', '3').ended, { code: 0, stdout: '998\n999\n1000\n' });
    const all = (await logs().ended).stdout;
    t.ok(all.endsWith('\n999\n1000\n') && all.includes('1\n2\n3\n'));
    const followed = logs('--follow', '--tail', '0');
    const ended = logs('--follow', '--tail', '1');
    await ended.says('1000');
    await until(async () => {
      await script('echo more >/in').ended;
      return has(followed.stdout(), 'more');
    }, 'the new line');
    t.notMatch(followed.stdout(), /1000/);
    ended.child.stdout?.destroy();
    await script('echo more >/in').ended;
    t.match(await ended.ended, { code: 141 });
    followed.child.kill('SIGTERM');
    t.match(await followed.ended, { code: 143 });
    await until(async () => {
      const tasks = await cli.json<{ task: string; status: string }[]>('tasks', '--limit', '100');
      return !tasks.some(({ task, status }) => task === 'vm_logs' && status === 'running');
    }, 'the tasks to end');
  });

  await t.test('following continues where it was when its instance and its agent are killed', async (t) => {
    await script('seq 1 4000 | while read -r n; do echo "n $n"; done >/in').ended;
    await until(async () => (await logs('--tail', '1').ended).stdout === 'n 4000\n', 'the log');
    const followed = logs('--follow', '--tail', '1000');
    await followed.says('n 4000');
    // It passes through one of them.
    for (const instance of zone.instances) {
      await instance.program.kill();
      instance.program.start();
      await zone.ready(instance);
    }
    const prints = (word: string) =>
      until(async () => has(followed.stdout(), word) || void (await script(`echo ${word} >/in`).ended), word);
    await prints('between');
    await agent.program.kill();
    agent.program.start();
    await prints('again');
    followed.child.kill('SIGTERM');
    const { code, stdout, stderr } = await followed.ended;
    t.equal(code, 143);
    t.ok(stderr.split('continuing where it was').length > 2, stderr);
    const numbered = stdout.split('\n').filter((line) => line.startsWith('n '));
    const wanted = Array.from({ length: 1_000 }, (_, index) => `n ${3_001 + index}`);
    t.same(numbered, wanted, 'each line once');
  });

  await t.test('a log of many empty lines is read whole, and only the newest part is kept', async (t) => {
    await script('yes "" | head -n 600000 >/in; echo last >/in').ended;
    await until(async () => (await logs('--tail', '1').ended).stdout === 'last\n', 'the log');
    const { stdout } = await logs('--tail', '100000').ended;
    t.equal(stdout, `${'\n'.repeat(99_999)}last\n`);
  });

  await t.test('following ends when the VM is deleted, and a program in it ends, too', async (t) => {
    await create('other');
    const followed = cli.start(['vm', 'logs', 'other', '--follow']);
    const running = script('echo begun; echo printed >/in; sleep 4448', { name: 'other' });
    await running.says('begun');
    await followed.says('printed');
    await vm('delete', 'other');
    t.match(await running.ended, { code: 1, stderr: /does not run.*VmNotRunning/ });
    t.match(await followed.ended, { code: 0, stdout: 'printed\n' });
    await isGone('sleep 4448');
    t.match(await exec(['true'], { name: 'other' }).ended, { code: 2, stderr: /There is no VM other/ });
  });

  await t.test('nothing runs in a VM that has stopped, and its log remains', async (t) => {
    await vm('kill', 'web');
    t.match(await exec(['true']).ended, { code: 1, stderr: /does not run; start it first \(VmNotRunning\)/ });
    t.match(await logs('--follow', '--tail', '1').ended, { code: 0, stdout: 'last\n' });
  });
});

async function commandLine(pid: number): Promise<string> {
  const line = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
  return line.replaceAll('\0', ' ');
}
