/** The shell of simulated machines. */
import t from 'tap';
import { SimulatedMachine } from '../../../lib/agent/simulated/simulated-machine.ts';
import type { Clock } from '../../../lib/platform/clock.ts';
import { systemClock } from '../../../lib/platform/clock.ts';
import { systemRandom } from '../../../lib/platform/random.ts';

function machine(fraction = 0) {
  const slept: number[] = [];
  const clock: Clock = { ...systemClock, sleep: async (ms) => void slept.push(ms) };
  const random = { ...systemRandom, fraction: () => fraction };
  const serverUuid = systemRandom.uuid();
  const made = new SimulatedMachine({ clock, random, serverUuid, number: 7, agentVersion: '1', sysinfoSize: 'small' });
  const run = async (script: string, signal = new AbortController().signal) => {
    const how = { id: 'one', signal, begin: async () => {}, output: () => {} };
    return { ...(await made.execute({ script, args: [], env: {} }, how)), slept: slept.splice(0) };
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
