/** The shell of simulated machines. */
import { spawnSync } from 'node:child_process';
import t from 'tap';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import { buildJobCommand, buildTaskParams } from '../../../lib/cli/invocation/remote-program.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import type { Clock } from '../../../lib/platform/time/clock.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

function machine(fraction = 0) {
  const slept: number[] = [];
  const clock: Clock = { ...systemClock, sleep: async (ms) => void slept.push(ms) };
  const random = { ...systemRandom, fraction: () => fraction };
  const serverUuid = systemRandom.uuid();
  const made = new SimulatedMachine({ clock, random, serverUuid, number: 7, agentVersion: '1', sysinfoSize: 'small' });
  const run = async (script: string, signal = new AbortController().signal, args: readonly string[] = []) => {
    const how = { id: 'one', signal, begin: async () => {}, output: () => {} };
    const command = { script, args: [...args], env: { NAME: 'a value', EMPTY: '' } };
    return { ...(await made.execute(command, how)), slept: slept.splice(0) };
  };
  return { made, run };
}

t.test('dummy_job fails with its probability, after its duration', async (t) => {
  const rows: [string, number, number, number[]][] = [
    ['dummy_job 0.3 20', 0.29, 1, [20_000]],
    ['dummy_job 0.3 20', 0.3, 0, [20_000]],
    ['dummy_job 0 1.5', 0, 0, [1_500]],
    ['dummy_job 1 0', 0.999, 1, [0]],
    ['sleep 2', 0, 0, [2_000]],
    ['dummy_job 2 1', 0, 2, []],
    ['dummy_job', 0, 2, []],
    ['dummy_job 0.5', 0, 2, []],
    ['dummy_job 0.5 -1', 0, 2, []],
    ['sleep', 0, 2, []],
    ['sleep long', 0, 2, []],
  ];
  for (const [script, fraction, exitCode, slept] of rows) {
    const { exitCode: code, slept: waited } = await machine(fraction).run(script);
    t.same([code, waited], [exitCode, slept], `${script}, ${fraction}`);
  }
});

t.test('an abort ends a dummy_job as killed', async (t) => {
  const abort = new AbortController();
  abort.abort();
  t.match(await machine().run('dummy_job 1 1000', abort.signal), { killed: true, exitCode: null });
});

t.test('its name in the sysinfo is its hostname', async (t) => {
  const { made } = machine();
  t.equal((await made.sysinfo()).Hostname, made.hostname);
  t.equal(made.hostname, 'node-7');
  t.match(await machine().run('uptime'), { stdout: 'node-7$ uptime\n' });
});

t.test('several words after -- are the command itself, on one server and on many', async (t) => {
  const rows: [words: string[], result: object][] = [
    [['sleep', '5'], { exitCode: 0, stdout: '', slept: [5_000] }],
    [['exit', '3'], { exitCode: 3, stdout: '' }],
    [['echo', "it's", 'a  b; c | d', '$NAME'], { exitCode: 0, stdout: "it's a  b; c | d $NAME\n" }],
    [['uname', '-sr'], { exitCode: 0, stdout: 'node-7$ uname -sr\n' }],
  ];
  for (const [words, result] of rows) {
    const program = { words, script: undefined };
    const { script, args } = buildTaskParams(program, { env: {}, secrets: [] }) as { script: string; args: string[] };
    t.match(await machine().run(script, undefined, args), result, `${words} on one server`);
    t.match(await machine().run(buildJobCommand(program).command), result, `${words} on many servers`);
  }
});

t.test('a script is interpreted as sh does it, as far as it is understood', async (t) => {
  const rows: [name: string, script: string, result: object][] = [
    ['commands in one line', 'sleep 2; echo x', { exitCode: 0, stdout: 'x\n', slept: [2_000] }],
    ['the code of exit', 'echo a; exit 3; echo b', { exitCode: 3, stdout: 'a\n' }],
    ['the code of the last command', 'echo a; false', { exitCode: 1, stdout: 'a\n' }],
    ['exit without a number', 'false; exit', { exitCode: 1 }],
    ['nothing after exec', 'exec echo a\necho b', { exitCode: 0, stdout: 'a\n' }],
    ['comments', '#!/bin/sh\n# one\necho a # two\n', { exitCode: 0, stdout: 'a\n' }],
    ['variables', `echo $NAME "\${NAME}s" '$NAME' $EMPTY $1`, { stdout: 'a value a values $NAME\n' }],
    ['quotes', `echo 'a; b' "c | d" e\\;f`, { exitCode: 0, stdout: 'a; b c | d e;f\n' }],
    ['nothing', '\n', { exitCode: 0, stdout: '' }],
  ];
  for (const [name, script, result] of rows) t.match(await machine().run(script), { stderr: '', ...result }, name);
});

t.test('a script that needs more of a shell fails where it does, and says so', async (t) => {
  const rows = [
    'echo a | wc -c',
    'for i in 1 2; do echo $i; done',
    'while true\ndo sleep 1\ndone',
    'echo a && echo b',
    'echo a > /tmp/file',
    'echo $(date)',
    'echo "$(date)"',
    'A=1',
    'time false',
    'return 3',
    'set -eu',
    'export -p',
    'export 1=a',
    'command -v sh',
    'command export A=1',
    'env',
    'env -i true',
    'env A=1 true',
    'env exit 3',
    'eval true',
    "echo 'open",
    '#!/usr/bin/python3\nprint(1)',
  ];
  for (const script of rows) {
    const [line] = script.split('\n');
    const stderr = `node-7 is simulated and cannot run: ${line}\n`;
    t.match(await machine().run(script), { exitCode: 2, stdout: '', stderr }, script);
  }
  t.match(await machine().run('echo a\nif true'), { exitCode: 2, stdout: 'a\n', stderr: /cannot run: if true\n$/ });
});

t.test('exit codes and output are those of sh', async (t) => {
  const scripts = [
    'set -e; false; echo b',
    'set -e; true; echo b',
    'set -e; set +e; false; echo b',
    'set -e\nexit',
    'false; set -e',
    'export X=1; echo "$X"',
    `export X=1 Y="a b"\necho "$X $Y" \${X}0 $X$Y`,
    'false; export X',
    'command false',
    'command echo a',
    'command exit 3; echo b',
    'false; command',
    'env false',
    'env echo a; false',
    'env env false',
    'command env false',
    'set -e; command false; echo b',
    'exec false; echo b',
    'echo "a \\"b\\" \\$NAME \\\\"',
    'echo \\"a\\" \\$NAME',
    'echo "a\\\nb" c\\\nd',
    'echo a \\\n  b',
    'fal\\\nse',
    'echo \'a"\'"\'"',
    `echo "$1x" $2 \${1}`,
    'exit 256',
    'false; exit',
  ];
  const args = ['one', 'two'];
  const env = { PATH: process.env.PATH, NAME: 'a value' };
  for (const script of scripts) {
    const sh = spawnSync('sh', ['-c', script, 'sh', ...args], { env, encoding: 'utf8' });
    const { exitCode, stdout, stderr } = await machine().run(script, undefined, args);
    t.same([exitCode, stdout, stderr], [sh.status, sh.stdout, ''], script);
  }
});
