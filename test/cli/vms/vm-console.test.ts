/** `cnapi vm console` with real instances, a real agent and a real VM. */
import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import t from 'tap';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { Cli, CNAPI, has, type Running } from '../rig.ts';
import { lacksTmux, Terminal } from '../tmux-terminal.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount() || lacksTmux();

t.test('the console of a VM', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 1, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const urls = zone.instances.map(({ url }) => url);
  const cli = new Cli(t, urls);
  const vm = async (...words: string[]) => {
    const { code, stderr } = await cli.run('vm', ...words);
    t.equal(code, 0, stderr);
  };
  const create = (alias: string, ...options: string[]) =>
    vm('create', agent.serverUuid, `image_uuid=${IMAGE}`, `alias=${alias}`, ...options);
  await create('web', '--tty', '--cmd', '["sh"]');
  const attach = (...options: string[]) => cli.start(['vm', 'console', 'web', ...options], { keepsInput: true });
  const type = ({ child }: Running, line: string) => void child.stdin?.write(`${line}\n`);
  const [first, reader] = [attach(), attach('--read-only')];

  await t.test('several callers read it, and the last that attaches writes', async (t) => {
    await first.says('# ');
    type(first, 'echo "one $((40 + 1))"');
    await Promise.all([first.says('one 41'), reader.says('one 41')]);
    const second = attach();
    await first.says('another caller writes to this console now');
    await second.says('one 41');
    type(first, 'echo "lost $((40 + 2))"');
    type(reader, 'echo "unheard $((40 + 3))"');
    type(second, 'kept=$((40 + 4)); echo "two $kept"');
    await Promise.all([first.says('two 44'), second.says('two 44'), reader.says('two 44')]);
    t.notMatch(first.stdout(), /lost|unheard/, 'what the others type does not arrive');
    second.child.kill('SIGTERM');
    t.match(await second.ended, { code: 143 });
  });

  await t.test('a caller whose input breaks is told, and attaches again', async () => {
    const broken = attach();
    await broken.says('two 44');
    type(broken, 'echo "before $((40 + 5))"');
    await broken.says('before 45');
    killConsoleInput(data);
    await broken.says('the input of this console has broken');
    const again = attach();
    await again.says('before 45');
    type(again, 'echo "after $((40 + 6))"');
    await Promise.all([again.says('after 46'), broken.says('after 46')]);
    again.child.kill('SIGTERM');
    broken.child.kill('SIGTERM');
    await Promise.all([again.ended, broken.ended]);
  });

  await t.test('the VM and its terminal outlive the agent, and another caller attaches', async (t) => {
    await agent.program.kill();
    t.match(await reader.ended, {
      code: 1,
      stderr: /connection to the agent broke.*StreamLost.*; the VM runs on: cnapi vm console/,
    });
    agent.program.start();
    const again = await until(async () => {
      const running = attach();
      const isOver = () => running.child.exitCode !== null;
      await until(() => has(running.stdout(), 'two 44') || isOver(), 'the console, or its refusal');
      return isOver() ? undefined : running;
    }, 'the next agent');
    type(again, 'echo "still $kept"');
    await again.says('still 44');
    again.child.kill('SIGTERM');
  });

  await t.test('it has the size of the terminal that writes, and ~. leaves the VM alone', async () => {
    const terminal = new Terminal(t, { CNAPI_URL: urls[0] ?? '', HOME: zone.directory, cnapi: CNAPI });
    await terminal.shows(/^\$\s*$/m);
    terminal.type('$cnapi vm console web');
    await terminal.shows(/still 44/);
    terminal.type('stty size; echo "type $TERM"');
    await terminal.shows(/^30 100\ntype xterm/m);
    terminal.resize(90, 25);
    terminal.type('clear; until stty size | grep "25 90"; do sleep 0.1; done');
    await terminal.shows(/^25 90/m);
    terminal.type("sh -c 'echo begun; exec sleep 4451'");
    await terminal.shows(/^begun$/m);
    terminal.key('C-c');
    terminal.type('echo "kept $kept"');
    await terminal.shows(/^kept 44/m);
    terminal.key('~');
    terminal.key('.');
    await terminal.shows(/\$\s*$/);
    terminal.type('echo "left with $?"');
    await terminal.shows(/^left with 0$/m);
  });

  await t.test('a VM without a terminal says how to get one', async (t) => {
    await create('plain', '--cmd', 'sleep 100000');
    const refusal = { code: 1, stderr: /no console.*without a terminal; set docker:tty.*NoConsole/ };
    t.match(await cli.start(['vm', 'console', 'plain']).ended, refusal);
    t.match(await cli.start(['vm', 'console', 'plain', '--read-only']).ended, refusal);
  });

  await t.test('it shows a bounded part of what came before, and ends with the VM', async (t) => {
    const piped = cli.start(['vm', 'console', 'web'], { input: 'seq 1 20000; echo "all $((40 + 5))"\n' });
    await piped.says('all 45');
    const late = attach();
    await late.says('all 45');
    t.ok(late.stdout().length < 16_384, `${late.stdout().length} characters`);
    t.match(late.stdout(), /\n19999\r\n20000\r\n/);
    type(late, 'exit 3');
    t.match(await late.ended, { code: 0 });
    t.match(await piped.ended, { code: 0 });
    t.match(await attach().ended, { code: 1, stderr: /does not run.*VmNotRunning/ });
  });
});

/** Kills the programs that pass input on to terminals of VMs in this directory. */
function killConsoleInput(data: string): void {
  for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name)))
    if (passesInput(pid, data)) process.kill(Number(pid), 'SIGKILL');
}

function passesInput(pid: string, data: string): boolean {
  try {
    const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8');
    return command.includes('console-input.pl') && readlinkSync(`/proc/${pid}/cwd`).startsWith(data);
  } catch {
    // It has ended.
    return false;
  }
}
