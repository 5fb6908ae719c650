import { faultTest } from '../support/fault-test.ts';
import { PlainCaller } from '../support/plain-caller.ts';

/**
 * An instance that starts on a busy machine is slow to renew its lease. No run should end because
 * of that.
 */
const config = { leaseMs: 30_000 };

faultTest(
  'a rolling restart of all instances loses nothing and fails no request',
  { simulated: 300, config },
  async (stage) => {
    const { t, zone } = stage;
    const [agent] = zone.agents;
    const caller = new PlainCaller(zone);
    caller.start(agent?.serverUuid ?? '');
    for (const { program, ...instance } of zone.instances) {
      await program.kill('SIGTERM');
      t.equal(program.exitCode, 0, `${program.name} left by itself`);
      program.start();
      await zone.ready({ program, ...instance });
    }
    t.same(await caller.finish(), [], 'no request failed that retried on a refused connection');
    t.ok(caller.refused > 0, `${caller.answers} answers, ${caller.refused} refused connections`);
    const ends = await zone.sql(
      `select end_reason, count(*)::int from cnapi_instances where state = 'dead' group by end_reason`,
    );
    t.same(ends, [{ end_reason: 'stopped', count: zone.instances.length }], 'each run ended itself');
  },
);
