import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import t, { type Test } from 'tap';
import { type DrainRecord, PauseKeeper } from '../../../lib/agent/pause/pause-keeper.ts';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

const HOUR_MS = 3_600_000;
const jobId = 'a-job';
const drain = { type: 'begin-drain', jobId, durationMs: HOUR_MS } as const;

async function directoryOf(t: Test): Promise<string> {
  const directory = await mkdtemp(path.join(tmpdir(), 'pause-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  return directory;
}

/** The next process of the agent. */
async function next(directory: string, { bootId = 'b', laterMs = 0 } = {}): Promise<PauseKeeper> {
  const clock = { ...systemClock, wallTime: () => systemClock.wallTime() + laterMs };
  const files = recordFiles<DrainRecord>(directory, ({ id }) => id);
  const keeper = new PauseKeeper({ clock, log, bootId, files });
  await keeper.start();
  return keeper;
}

t.test(
  'an agent that restarts while its server drains stays paused for its job until the time of that is over',
  async (t) => {
    const directory = await directoryOf(t);
    await (await next(directory)).change(drain);
    const keeper = await next(directory, { laterMs: HOUR_MS / 2 });
    t.strictSame([keeper.isPaused, keeper.isDrainedFor(jobId), keeper.isDrainedFor('another')], [true, true, false]);
    t.notOk((await next(directory, { laterMs: HOUR_MS })).isPaused);
    await keeper.change({ type: 'begin-change', jobId });
    t.ok((await next(directory, { laterMs: HOUR_MS })).isPaused, 'its whole time begins again');
  },
);

t.test('an operator is refused while the server changes, and told which job does that', async (t) => {
  const directory = await directoryOf(t);
  const keeper = await next(directory);
  await keeper.change(drain);
  await keeper.change({ type: 'begin-change', jobId });
  await t.rejects(keeper.change({ type: 'resume' }), {
    code: 'ServerChanging',
    message: /^Workflow job a-job reboots or resets this server .* cnapi workflow cancel a-job$/,
  });
  t.ok(keeper.isPaused);
  await (await next(directory)).change({ type: 'resume' });
  t.notOk((await next(directory)).isPaused, 'an agent that has restarted changes nothing any more');
});

t.test('a boot ends the drain, also for later processes', async (t) => {
  const directory = await directoryOf(t);
  await (await next(directory)).change(drain);
  t.notOk((await next(directory, { bootId: 'c' })).isPaused);
  t.notOk((await next(directory)).isPaused);
});

t.test('a drain that was ended, and the pause of an operator, do not outlive the agent', async (t) => {
  const directory = await directoryOf(t);
  for (const event of [{ type: 'end-drain', jobId }, { type: 'resume' }] as const) {
    const keeper = await next(directory);
    await Promise.all([keeper.change(drain), keeper.change(event)]);
    t.notOk(keeper.isPaused, event.type);
    t.notOk((await next(directory)).isPaused, event.type);
  }
  const keeper = await next(directory);
  await keeper.change({ type: 'pause' });
  t.ok(keeper.isPaused);
  t.notOk((await next(directory)).isPaused);
});

t.test('a drain that the disk does not take is refused, and one that cannot be read is none', async (t) => {
  const directory = await directoryOf(t);
  await writeFile(path.join(directory, 'drain.json'), '{');
  const keeper = await next(directory);
  t.notOk(keeper.isPaused);
  await rm(directory, { recursive: true });
  await t.rejects(keeper.change(drain), { code: 'ENOENT' });
  t.notOk(keeper.isPaused);
  await keeper.change({ type: 'pause' });
  t.ok(keeper.isPaused, 'the next change is not affected');
});
