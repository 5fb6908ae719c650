/**
 * The synchronous standby is lost and returns, then the primary is lost and the standby promoted,
 * while tasks, waits and locks continue through two instances. Nothing is accepted that only one
 * server has. Whatever was accepted has one end and ran as often as promised. No live server
 * becomes unknown.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { lacks } from '../support/debian-programs.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { startPostgresPair } from '../support/postgres-pair.ts';
import { firstAcceptedAt, startStage, untilBusesAreHealthy } from './stage.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const options = { skip: lacks('postgres', 'pg_basebackup', 'redis-server'), timeout: FILE_TIMEOUT_MS };

t.test('promoting a synchronous standby loses nothing that was accepted', options, async (t) => {
  const pair = await startPostgresPair(t, { synchronous: true });
  // Without Redis, so that LISTEN/NOTIFY must find the new primary as well.
  const { zone, finish } = await startStage(t, { databaseUrl: pair.url, bus: 'postgres' });

  await pair.kill(pair.standby);
  const afterStandby = firstAcceptedAt(zone);
  t.equal(
    await Promise.race([afterStandby, sleep(4_000, 'nothing')]),
    'nothing',
    'nothing is accepted without the standby',
  );
  await pair.startStandby('sync');
  await afterStandby;
  await sleep(2_000);

  const killedAt = performance.now();
  await pair.kill(pair.primary);
  const accepting = firstAcceptedAt(zone);
  await pair.promote();
  const promotedMs = performance.now() - killedAt;
  const acceptedMs = (await accepting) - killedAt;
  const ratio = (acceptedMs / promotedMs).toFixed(1);
  t.comment(
    `after the kill: promoted in ${promotedMs.toFixed()} ms, a task accepted in ${acceptedMs.toFixed()} ms (× ${ratio})`,
  );
  await untilBusesAreHealthy(zone);
  await sleep(4_000);
  await finish();
});
