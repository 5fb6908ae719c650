import t from 'tap';
import { Tasks } from '../../../lib/control/tasks/tasks.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { noPosts } from './support/no-posts.ts';

t.test('a dispatch that waits for the database at its stop leaves half of the time to the recorder', async (t) => {
  const clock = new ManualClock();
  const deps = {
    database: { query: async () => ({ rows: [], rowCount: 0 }) },
    bus: { publish: () => undefined },
    sessions: { run: () => '', get: () => undefined, all: () => [] },
    clock,
    log: silentLogger,
    createPostDispatch: () => ({ ...noPosts, stop: () => new Promise<void>(() => undefined) }),
    config: { slowPollMs: 5_000, taskStartByMs: 30_000, taskResendMs: 5_000, taskOverdueMs: 60_000 },
    random: systemRandom,
  };
  let isStopped = false;
  void new Tasks(deps as unknown as ConstructorParameters<typeof Tasks>[0]).stop().then(() => {
    isStopped = true;
  });
  await clock.advance(900);
  t.notOk(isStopped);
  await clock.advance(200);
  t.ok(isStopped, 'the recorder has stopped');
});
