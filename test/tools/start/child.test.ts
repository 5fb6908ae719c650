import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { describeProcess, isAlive } from '../../../tools/setup/processes.mjs';
import { Child } from '../../../tools/start/child.ts';
import { endInOrder } from '../../../tools/start/end-processes.ts';
import { RotatingLog } from '../../../tools/start/rotating-log.ts';
import { processesIn, WatchdogClient } from '../../../tools/start/watchdog-client.ts';
import { matchLists } from '../../support/match-lists.ts';
import { until } from '../../support/until.ts';

interface Teardown {
  teardown(work: () => unknown): void;
}

/** Children that are shell scripts, with a real watchdog. */
function nursery(t: Teardown) {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-child-'));
  const list = path.join(folder, 'processes.json');
  const watch = new WatchdogClient(list, systemClock);
  const said: string[] = [];
  const children: Child[] = [];
  watch.start();
  t.teardown(async () => {
    for (const child of children) child.retire();
    await endInOrder(watch.endings, systemClock);
    await watch.close();
    rmSync(folder, { recursive: true, force: true });
  });
  const child = (name: string, script: string, signal: NodeJS.Signals = 'SIGTERM') => {
    const made = new Child({
      name,
      rank: 'agents',
      signal,
      command: () => ({ file: '/bin/sh', args: ['-c', script] }),
      log: new RotatingLog(path.join(folder, `${name}.log`)),
      watch,
      clock: systemClock,
      say: (text) => said.push(text),
    });
    children.push(made);
    return made;
  };
  return { folder, list, watch, said, child };
}

t.test('a child that dies after its start is restarted, with a message', async (t) => {
  const { child, said, folder } = nursery(t);
  const sleeper = child('sleeper', 'echo hello; echo problem >&2; exec sleep 60');
  sleeper.start();
  sleeper.keepUp();
  const first = sleeper.pid ?? 0;
  await until(() => sleeper.lastWords.includes('problem'), 'its output');
  process.kill(first, 'SIGKILL');
  await until(() => sleeper.pid !== undefined && sleeper.pid !== first, 'it to run again');
  t.match(said[0], new RegExp(`sleeper \\(pid ${first}\\) ended with SIGKILL; starting it again`));
  t.notOk(sleeper.hasFailed);
  const log = await until(() => {
    const text = readFileSync(path.join(folder, 'sleeper.log'), 'utf8');
    return text.split('hello').length === 3 && text;
  }, 'both to write their log');
  t.match(log, /problem/, 'stderr is logged too');
});

t.test('a child that exits 0 by itself is restarted too', async (t) => {
  const { child, said } = nursery(t);
  const polite = child('polite', `trap 'exit 0' TERM; while :; do sleep 0.05; done`);
  polite.start();
  polite.keepUp();
  const first = polite.pid ?? 0;
  await sleep(100);
  polite.ask('SIGTERM');
  await until(() => polite.pid !== undefined && polite.pid !== first, 'it to run again');
  t.match(said[0], new RegExp(`polite \\(pid ${first}\\) left in order; starting it again`));
});

t.test('the pause before a restart grows while the child keeps dying', async (t) => {
  const { child, said } = nursery(t);
  const crasher = child('crasher', 'exit 7');
  crasher.start();
  crasher.keepUp();
  await until(() => said.length >= 3, 'it to die three times');
  matchLists(t, said, [/exit code 7.* 250 ms/, / 500 ms/, / 1000 ms/]);
});

t.test('a child that ends during its start has failed, and its last output is kept', async (t) => {
  const { child, said } = nursery(t);
  const failure = child('failure', 'echo the disk is on fire >&2; exit 1');
  failure.start();
  await until(() => failure.hasFailed, 'it to fail');
  await until(() => failure.lastWords !== '', 'its output');
  t.equal(failure.lastWords, 'the disk is on fire');
  t.strictSame(said, []);
});

t.test('a missing program counts as failed', async (t) => {
  const { watch } = nursery(t);
  const child = new Child({
    name: 'nobody',
    rank: 'agents',
    signal: 'SIGTERM',
    command: () => ({ file: '/no/such/program', args: [] }),
    log: new RotatingLog('/dev/null'),
    watch,
    clock: systemClock,
    say: () => undefined,
  });
  child.start();
  await until(() => child.hasFailed, 'it to fail');
  t.match(child.lastWords, /ENOENT/);
});

t.test('a retired child is not restarted', async (t) => {
  const { child, said } = nursery(t);
  const sleeper = child('sleeper', 'exec sleep 60');
  sleeper.start();
  sleeper.keepUp();
  sleeper.retire();
  process.kill(sleeper.pid ?? 0, 'SIGKILL');
  await until(() => sleeper.pid === undefined, 'it to end');
  await sleep(400);
  t.equal(sleeper.pid, undefined);
  t.strictSame(said, []);
});

t.test('a child that ignores signals is killed with all that it started', async (t) => {
  const { child, watch, folder } = nursery(t);
  const deaf = child('deaf', `trap '' TERM; sleep 61 & echo $! > ${folder}/grandchild; wait; sleep 62`);
  deaf.start();
  const grandchild = await until(
    () => readFileOrNothing(path.join(folder, 'grandchild')) || undefined,
    'its grandchild',
  );
  const endings = [deaf.pid ?? 0, Number(grandchild)].map(describeProcess);
  deaf.retire();
  await endInOrder(watch.endings, systemClock);
  await until(() => !endings.some(isAlive), 'both to end');
  t.pass('both have ended');
});

t.test('a process list that cannot be written does not end the supervisor', async (t) => {
  const { child, folder } = nursery(t);
  rmSync(folder, { recursive: true });
  const brief = child('brief', 'exit 0');
  brief.start();
  await until(() => brief.hasFailed, 'its end to be noticed');
  t.pass('nothing was thrown');
});

t.test('the watched processes are in a file, in case supervisor and watchdog both die', async (t) => {
  const { child, list } = nursery(t);
  const sleeper = child('sleeper', 'exec sleep 60');
  sleeper.start();
  matchLists(t, processesIn(list), [{ name: 'sleeper', pid: sleeper.pid, rank: 'agents', signal: 'SIGTERM' }]);
  sleeper.retire();
  process.kill(sleeper.pid ?? 0, 'SIGKILL');
  await until(() => sleeper.pid === undefined, 'it to end');
  t.strictSame(processesIn(list), []);
  t.strictSame(processesIn('/no/such/file'), []);
});

function readFileOrNothing(file: string): string | undefined {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return undefined;
  }
}
