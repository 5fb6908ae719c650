import { faultTest } from '../support/fault-test.ts';
import { PlainCaller } from '../support/plain-caller.ts';

faultTest('a rolling restart of all instances loses nothing, and nobody notices', { simulated: 300 }, async (stage) => {
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
  const waiting = await zone.sql<{ count: number }>(
    "select count(*)::int as count from cnapi_instances where end_reason = 'lapsed'",
  );
  t.same(waiting, [{ count: 0 }], 'each run ended itself');
});
