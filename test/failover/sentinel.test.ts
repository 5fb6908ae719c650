/**
 * The Redis master is lost and Sentinel fails over while waits and locks continue. The bus recovers
 * by itself.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { lacks } from '../support/debian-programs.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { startRedisGroup } from '../support/redis-group.ts';
import { until } from '../support/until.ts';
import { busHealth, startStage, untilBusesAreHealthy } from './stage.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const options = { skip: lacks('redis-server'), timeout: FILE_TIMEOUT_MS };

t.test('when Sentinel fails over, waits continue and the bus recovers at the new master', options, async (t) => {
  const group = await startRedisGroup(t);
  const { zone, finish } = await startStage(t, { config: { redisUrl: group.url } });
  const former = await group.master();
  t.ok((await busHealth(zone)).every(Boolean), 'the bus is healthy');
  const killedAt = performance.now();
  await former.program.kill();
  await until(async () => !(await busHealth(zone)).some(Boolean));
  await until(async () => (await group.master()) !== former);
  const switchedMs = performance.now() - killedAt;
  await untilBusesAreHealthy(zone);
  const healthyMs = performance.now() - killedAt;
  t.comment(
    `after the kill: another master in ${switchedMs.toFixed()} ms, every bus healthy in ${healthyMs.toFixed()} ms`,
  );
  const master = await group.master();
  for (const name of ['cnapi-bus-publish', 'cnapi-bus-subscribe'])
    t.equal(
      await group.connections(master, name),
      zone.instances.length,
      `${name} of each instance is connected to the new master`,
    );

  // The former master returns as a replica, and no bus may connect to it.
  former.program.start();
  await sleep(3_000);
  await untilBusesAreHealthy(zone);
  t.equal(await group.connections(former, 'cnapi-bus-publish'), 0);
  await finish();
});
