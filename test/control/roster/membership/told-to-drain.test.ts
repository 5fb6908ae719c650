/**
 * A request to leave that came while an instance was stopped, and that its new run has to carry
 * out.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import {
  drainRun,
  insertRun,
  readLive,
  wasAskedToDrain,
} from '../../../../lib/control/roster/membership/instance-store.ts';
import { Membership } from '../../../../lib/control/roster/membership/membership.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../../lib/platform/random.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { migrationsOf } from '../../../support/migrations-of.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { until } from '../../../support/until.ts';

/** Only the beat is short, so that nothing lapses during a test. */
const times = { beatMs: 50, leaseMs: 600_000, silenceMs: 600_000, startGraceMs: 18_000 };

async function startInstance(t: Test, { hasSibling }: { hasSibling: boolean }) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'roster') });
  const cnapiUuid = randomUUID();
  const identity = { cnapiUuid, url: 'http://127.0.0.1:1', host: '127.0.0.1', port: 1, pid: 1, version: '0' };
  const healthyTimer = new HealthyTimer({ clock: systemClock, checkMs: 250 });
  /**
   * While `away`, the instance's statements fail; `losesInserts` begins this with the answer to an
   * insert.
   */
  const fault = { losesInserts: false, away: false };
  const faulty: Queryable = {
    query: async <Row>(...[text, ...rest]: Parameters<Queryable['query']>) => {
      if (fault.away) throw new DatabaseUnavailableError();
      const answer = await database.query<Row>(text, ...rest);
      fault.away = fault.losesInserts && text.includes('insert into cnapi_instances');
      if (fault.away) throw new DatabaseUnavailableError();
      return answer;
    },
  };
  const instances = new Membership({
    ...{ database: faulty, cnapiUuid, healthyTimer, times, identity: () => identity },
    ...{ clock: systemClock, random: systemRandom, log: silentLogger },
    ...{ countAgents: () => 0, admission: () => 'open', latestReturnInMs: () => undefined },
  });
  const said: string[] = [];
  instances.listen({ onDrainRequested: () => said.push('told to drain'), onRunRenewed: () => said.push('renewed') });
  if (hasSibling) await insertRun(database, randomUUID(), { ...identity, cnapiUuid: randomUUID() }, null);
  await instances.start(new AbortController().signal);
  t.teardown(() => instances.stop());
  const declareDead = (run: string, more = '') =>
    database.query(
      `update cnapi_instances set state = 'dead', end_reason = 'lapsed', ended_at = cnapi_now() ${more} where run = $1::uuid`,
      [run],
    );
  /** The state after a stop: asked to leave, and declared dead before it could learn of it. */
  const dieToldToDrain = () => declareDead(instances.run, ', draining_since = cnapi_now()');
  return { database, instances, said, fault, declareDead, dieToldToDrain };
}

t.test('a new run carries out the drain that the previous one was told, and its row shows it', async (t) => {
  const { database, instances, said, dieToldToDrain } = await startInstance(t, { hasSibling: true });
  await dieToldToDrain();
  await until(() => said.includes('told to drain'), 'the drain of the new run');
  t.same(said, ['renewed', 'told to drain']);
  t.equal(await wasAskedToDrain(database, instances.run), true);
});

t.test('a new run that is the last one left does not drain', async (t) => {
  const { database, instances, said, dieToldToDrain } = await startInstance(t, { hasSibling: false });
  await dieToldToDrain();
  await until(() => said.includes('renewed'), 'the new run to start');
  const beatOf = async () => (await readLive(database)).find(({ run }) => run === instances.run)?.beat ?? 0;
  await until(async () => (await beatOf()) >= 3, 'some beats of the new run to be written');
  t.same(said, ['renewed']);
  t.equal(await wasAskedToDrain(database, instances.run), false);
});

t.test('a drain of a run that died before the answer to its insert arrived is carried out', async (t) => {
  const { database, instances, said, fault, declareDead } = await startInstance(t, { hasSibling: true });
  fault.losesInserts = true;
  await declareDead(instances.run);
  await until(() => fault.away, 'the answer to the insert of the new run to be lost');
  const unknownRun = (await readLive(database)).find(({ cnapiUuid }) => cnapiUuid === instances.cnapiUuid)?.run ?? '';
  t.equal(await drainRun(database, unknownRun), 'draining');
  await declareDead(unknownRun);
  Object.assign(fault, { losesInserts: false, away: false });
  await until(() => said.includes('told to drain'), 'the drain of the run after it');
  t.not(instances.run, unknownRun);
  t.equal(await wasAskedToDrain(database, instances.run), true);
});
