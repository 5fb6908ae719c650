import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { type LeaseRecord, PauseKeeper } from '../../../lib/agent/pause/pause-keeper.ts';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

const HOUR_MS = 3_600_000;

async function directoryOf(t: Test): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), 'pause-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** The next process of the agent. */
async function next(directory: string, { bootId = 'b', laterMs = 0 } = {}): Promise<PauseKeeper> {
  const clock = { ...systemClock, wallTime: () => systemClock.wallTime() + laterMs };
  const files = recordFiles<LeaseRecord>(directory, ({ id }) => id);
  const keeper = new PauseKeeper({ clock, log, bootId, files });
  await keeper.start();
  return keeper;
}

t.test('an agent that restarts while its server drains stays paused until its lease is over', async (t) => {
  const directory = await directoryOf(t);
  await (await next(directory)).change({ type: 'lease', durationMs: HOUR_MS });
  t.ok((await next(directory)).isPaused);
  t.notOk((await next(directory, { laterMs: HOUR_MS })).isPaused);
});

t.test('a boot ends the lease, also for later processes', async (t) => {
  const directory = await directoryOf(t);
  await (await next(directory)).change({ type: 'lease', durationMs: HOUR_MS });
  t.notOk((await next(directory, { bootId: 'c' })).isPaused);
  t.notOk((await next(directory)).isPaused);
});

t.test('a lease that was ended, and the pause of an operator, do not outlive the agent', async (t) => {
  const directory = await directoryOf(t);
  for (const type of ['end-lease', 'resume'] as const) {
    const keeper = await next(directory);
    await Promise.all([keeper.change({ type: 'lease', durationMs: HOUR_MS }), keeper.change({ type })]);
    t.notOk(keeper.isPaused, type);
    t.notOk((await next(directory)).isPaused, type);
  }
  const keeper = await next(directory);
  await keeper.change({ type: 'pause' });
  t.ok(keeper.isPaused);
  t.notOk((await next(directory)).isPaused);
});

t.test('a lease that the disk does not take is refused, and one that cannot be read is none', async (t) => {
  const directory = await directoryOf(t);
  await writeFile(path.join(directory, 'lease.json'), '{');
  const keeper = await next(directory);
  t.notOk(keeper.isPaused);
  await rm(directory, { recursive: true });
  await t.rejects(keeper.change({ type: 'lease', durationMs: HOUR_MS }), { code: 'ENOENT' });
  t.notOk(keeper.isPaused);
  await keeper.change({ type: 'pause' });
  t.ok(keeper.isPaused, 'the next change is not affected');
});
