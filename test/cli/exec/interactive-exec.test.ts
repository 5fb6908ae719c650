/** `cnapi exec -i` against real instances and a real agent. */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import t from 'tap';
import { allProcesses } from '../../../lib/agent/machine/proc.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { until } from '../../support/until.ts';
import { Cli, has } from '../rig.ts';

t.test('a command with the input of this program', async (t) => {
  const zone = await startZone(t, { instances: 2, agents: 1 });
  const urls = zone.instances.map(({ url }) => url);
  const cli = new Cli(t, urls);
  const server = zone.agents[0]?.serverUuid ?? '';
  const exec = (words: readonly string[], { input = '', options = ['-i'] } = {}) =>
    cli.start(['exec', ...options, server, '--', ...words], { input });
  /** A word that only the command line of the command contains. */
  const isRunning = async (word: string) =>
    (await Promise.all((await allProcesses()).map(({ pid }) => commandLine(pid)))).some((line) => has(line, word));

  await t.test('input, output and errors arrive whole, and the exit code is that of the command', async (t) => {
    const input = randomBytes(400_000).toString('base64');
    t.same(await exec(['cat'], { input }).ended, { code: 0, stdout: input, stderr: '' });
    t.same(await exec(['sh', '-c', 'echo out; echo err >&2; exit 7']).ended, {
      code: 7,
      stdout: 'out\n',
      stderr: 'err\n',
    });
    t.match(await exec(['kill -9 $$']).ended, { code: 137 });
    t.match(await exec(['head -c 3'], { input: 'many more than three' }).ended, { code: 0, stdout: 'man' });
    t.match(await exec(['cat; echo end'], { options: ['-i', '--env', 'A=b'] }).ended, { code: 0, stdout: 'end\n' });
    const { stdout } = await exec(['head -c 20000000 /dev/zero | tr "\\0" x']).ended;
    t.equal(stdout.length, 20_000_000);
  });

  await t.test('what cannot be run says why', async (t) => {
    t.match(await exec(['cat'], { options: ['-it'] }).ended, { code: 2, stderr: /-t needs a terminal/ });
    t.match(await exec(['cat'], { options: ['-i', '--detach'] }).ended, { code: 2, stderr: /neither --detach/ });
    t.match(await exec(['sleep', '60'], { options: ['-i', '--timeout', '1s'] }).ended, {
      code: 124,
      stderr: /TaskTimeout/,
    });
    t.match(await exec(['/no/such/program']).ended, { code: 127, stderr: /no\/such\/program/ });
  });

  await t.test('a command ends when the reader of its output does', async (t) => {
    const running = exec(['sh', '-c', 'while true; do echo word-of-the-pipe; done']);
    await running.says('word-of-the-pipe');
    running.child.stdout?.destroy();
    t.match(await running.ended, { code: 141 });
    await until(async () => !(await isRunning('word-of-the-pipe')), 'the command to end');
  });

  await t.test('a command ends when its caller is killed', async () => {
    const running = exec(['sh', '-c', 'echo begun; sleep 60 # word-of-the-caller']);
    await running.says('begun');
    running.child.kill('SIGKILL');
    await until(async () => !(await isRunning('word-of-the-caller')), 'the command to end');
  });

  await t.test('a command that does not read its input ends, too', async () => {
    const input = 'x'.repeat(50_000_000);
    const running = exec(['sh', '-c', 'echo begun; sleep 600 # word-of-the-reader'], { input });
    await running.says('begun');
    running.child.kill('SIGKILL');
    await until(async () => !(await isRunning('word-of-the-reader')), 'the command to end');
  });

  await t.test('a command ends when the instance of its caller is killed, and the caller is told', async (t) => {
    const own = new Cli(t, urls.slice(1));
    const words = ['sh', '-c', 'echo begun; sleep 600 # word-of-the-instance'];
    const running = own.start(['exec', '-i', server, '--', ...words], { input: 'x'.repeat(50_000_000) });
    await running.says('begun');
    await zone.instances[1]?.program.kill();
    t.match(await running.ended, { code: 1, stderr: /the connection broke: .*; see cnapi task/ });
    await until(async () => !(await isRunning('word-of-the-instance')), 'the command to end');
  });

  await t.test('a command ends when its agent is killed, and the caller is told', async (t) => {
    const running = exec(['sh', '-c', 'echo begun; sleep 60 # word-of-the-agent']);
    await running.says('begun');
    await zone.agents[0]?.program.kill();
    t.match(await running.ended, { code: 1, stderr: /connection to the agent broke.*StreamLost/ });
    zone.agents[0]?.program.start();
    await until(async () => !(await isRunning('word-of-the-agent')), 'the next agent to end the command');
  });
});

async function commandLine(pid: number): Promise<string> {
  return readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
}
