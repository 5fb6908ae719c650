/** Two instances with duties, on a real database. */
import t from 'tap';
import { DutyLostError } from '../../../lib/control/duty/duty.ts';
import { DutyKeeper } from '../../../lib/control/duty/duty-keeper.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import { createDuties } from '../../support/create-duties.ts';
import { matchLists } from '../../support/match-lists.ts';
import { createMemoryBus, MemoryHub } from '../../support/memory-bus.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';
import { killRun, liveRun } from '../legacy/support/legacy-seats.ts';
import { dutyRow, KIND, newIds, startInstance, writeAsHolder } from './support.ts';

t.test('without a handler an instance neither asks for duties nor listens for them', async (t) => {
  const ports = { clock: systemClock, log: silentLogger };
  const bus = createMemoryBus({ ...ports, hub: new MemoryHub(), random: systemRandom });
  const asked: string[] = [];
  const keeper = new DutyKeeper({
    ...ports,
    database: { query: async (text: string) => asked.push(text) } as unknown as Queryable,
    bus,
    config: { slowPollMs: 1, slowPollNoBusMs: 1 },
    run: () => '00000000-0000-4000-8000-000000000001',
    isHealthy: () => true,
  });
  keeper.start({});
  t.equal(bus.stats().topics, 0);
  keeper.offer();
  keeper.runRenewed();
  await keeper.stop();
  t.strictSame(asked, []);
});

t.test('duties on two instances', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const zone = () => ({ database, hub: new MemoryHub() });
  // Each test has the database for itself.
  t.afterEach(() => database.query(`delete from cnapi_duties; delete from cnapi_instances`));

  t.test('a duty is claimed after a hint, carried out once, and ends once', async (t) => {
    const world = zone();
    const one = await startInstance(t, world);
    const two = await startInstance(t, world);
    const [id = ''] = newIds(1);
    t.same(await createDuties(database, KIND, [id]), [id]);
    t.same(await createDuties(database, KIND, [id]), [], 'a repetition creates nothing');
    one.keeper.offer();
    const { handler, keeper, run } = await until(
      () => [one, two].find((instance) => instance.handler.working.has(id)),
      'the work to begin',
    );
    matchLists(t, handler.begun, [{ id, kind: KIND, run, generation: 1, failures: 0 }]);
    t.match(await dutyRow(database, id), { state: 'held', run, generation: 1 });
    handler.working.get(id)?.end();
    await until(() => keeper.held === 0, 'the end to be stored');
    t.match(await dutyRow(database, id), { state: 'ended', run: null });
    t.same(await createDuties(database, KIND, [id]), [], 'what has ended does not begin again');
    t.equal(one.handler.begun.length + two.handler.begun.length, 1);
    t.match(keeper.stats(), { claimed: 1, ended: 1, takenOver: 0 });
  });

  t.test('without a hint the slow poll finds it', async (t) => {
    const one = await startInstance(t, zone(), { slowPollMs: 100 });
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    await until(() => one.handler.working.has(id), 'the slow poll');
    one.handler.working.get(id)?.end();
    await until(async () => (await dutyRow(database, id)).state === 'ended', 'the end');
  });

  t.test('the living instances share the duties of a dead one, although the clock was set back', async (t) => {
    const world = zone();
    const dead = await liveRun(database);
    const ids = newIds(6);
    await createDuties(database, KIND, ids);
    await database.query(`select * from cnapi_claim_duties($1::uuid, $2::text[], 9)`, [dead, [KIND]]);
    // They are never overdue, however slow this machine is, or the clock of the database is set.
    const one = await startInstance(t, world, { patienceMs: 600_000 });
    const two = await startInstance(t, world, { patienceMs: 600_000 });
    one.keeper.trigger();
    two.keeper.trigger();
    // Both have read that there is nothing for them while the run lives.
    t.same(one.handler.begun.length + two.handler.begun.length, 0);
    await killRun(database, dead);
    const setClock = (step: string) =>
      database.query(`create or replace function cnapi_now() returns timestamptz language sql stable
        as $$ select clock_timestamp() + interval '${step}' $$`);
    await setClock('-1 hour');
    t.teardown(() => setClock('0 seconds'));
    one.keeper.trigger();
    two.keeper.trigger();
    await until(() => one.handler.working.size + two.handler.working.size === 6, 'the take-over');
    t.same([one.handler.working.size, two.handler.working.size], [3, 3]);
    t.ok(one.handler.begun.every(({ generation }) => generation === 2));
    t.equal(one.keeper.stats().takenOver, 3);
  });

  t.test('what an unhealthy instance leaves is taken by the others after a while', async (t) => {
    const world = zone();
    const one = await startInstance(t, world, { isHealthy: false });
    const two = await startInstance(t, world);
    const ids = newIds(4);
    await createDuties(database, KIND, ids);
    two.keeper.offer();
    await until(() => two.handler.working.size === 4, 'all of them at the healthy instance');
    t.equal(one.handler.begun.length, 0);
  });

  t.test('an instance takes no more than its limit, and offers the rest', async (t) => {
    const world = zone();
    const one = await startInstance(t, world, { limit: 1 });
    const two = await startInstance(t, world);
    const ids = newIds(3);
    await createDuties(database, KIND, ids);
    one.keeper.offer();
    await until(() => one.handler.working.size + two.handler.working.size === 3, 'both to work');
    t.ok(one.handler.working.size <= 1);
  });

  t.test('an instance offers to the others what was created on it, and nothing else', async (t) => {
    const world = zone();
    const witness = createMemoryBus({ ...world, clock: systemClock, log: silentLogger, random: systemRandom });
    await witness.start();
    t.teardown(() => witness.stop());
    let offers = 0;
    witness.subscribe('duties', () => {
      offers += 1;
    });
    await createDuties(database, KIND, newIds(3));
    const one = await startInstance(t, world, { limit: 1 });
    let rounds = 0;
    // Each round asks for it once.
    Object.defineProperty(one, 'isHealthy', {
      get() {
        rounds += 1;
        return true;
      },
    });
    const roundIsOver = async () => {
      const before = rounds;
      one.keeper.trigger();
      await until(() => rounds >= before + 2 || void one.keeper.trigger(), 'a round to end');
    };
    await until(() => one.handler.working.size === 1, 'its first round');
    await roundIsOver();
    t.equal(offers, 0, 'it has created none');
    one.keeper.offer();
    await until(() => offers === 1, 'its offer');
    await roundIsOver();
    t.equal(offers, 1, 'an offer is made once');
  });

  t.test('a holder that learns that its run is dead stops, and writes nothing after the take-over', async (t) => {
    const world = zone();
    const one = await startInstance(t, world);
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    const former = one.handler.begun[0];
    if (former === undefined) throw new Error('no duty');
    await writeAsHolder(database, former);
    const two = await startInstance(t, world);
    await killRun(database, one.run, 1_000);
    two.keeper.trigger();
    await until(() => two.handler.working.has(id), 'the take-over');
    await t.rejects(writeAsHolder(database, former), DutyLostError, 'the former holder is fenced');
    const work = one.handler.working.get(id);
    one.run = await liveRun(database);
    one.keeper.runRenewed();
    t.equal(work?.signal.aborted, true, 'it stops at once');
    await until(() => one.keeper.held === 0, 'the work to have stopped');
    t.match(await dutyRow(database, id), { state: 'held', run: two.run, generation: 2 });
    two.handler.working.get(id)?.end();
    await until(async () => (await dutyRow(database, id)).state === 'ended', 'one end');
    t.match(await dutyRow(database, id), { generation: 2 });
  });

  t.test('an end that comes too late is not stored', async (t) => {
    const world = zone();
    const one = await startInstance(t, world);
    one.handler.isDeaf = true;
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    const work = one.handler.working.get(id);
    await killRun(database, one.run, 1_000);
    const two = await startInstance(t, world);
    await until(() => two.handler.working.has(id), 'the take-over');
    // It has not heard of its death yet.
    work?.end();
    await until(() => one.keeper.held === 0, 'the answer that it has lost it');
    t.match(await dutyRow(database, id), { state: 'held', run: two.run });
    t.match(one.keeper.stats(), { lost: 1, ended: 0 });
    two.handler.working.get(id)?.end();
    await until(() => two.keeper.held === 0, 'the end');
    t.match(await dutyRow(database, id), { state: 'ended' });
  });

  t.test('a duty that was taken away is stopped by the slow poll', async (t) => {
    const one = await startInstance(t, zone(), { slowPollMs: 100 });
    const other = await liveRun(database);
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    const work = one.handler.working.get(id);
    await database.query('update cnapi_duties set run = $2::uuid, generation = 2 where id = $1::uuid', [id, other]);
    await until(() => work?.signal.aborted === true, 'the work to be aborted');
    await until(() => one.keeper.held === 0, 'it to be released');
    t.match(await dutyRow(database, id), { state: 'held', run: other, generation: 2 });
  });

  t.test('work that ignores its abort neither runs twice here nor keeps its duty from others', async (t) => {
    const logged: Record<string, unknown>[] = [];
    const world = zone();
    const one = await startInstance(t, world, { abortWithinMs: 50, log: recordingLogger(logged) });
    one.handler.isDeaf = true;
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    const work = one.handler.working.get(id);
    one.run = await liveRun(database);
    await killRun(database, one.handler.begun[0]?.run ?? '', 1_000);
    one.keeper.runRenewed();
    await until(async () => (await dutyRow(database, id)).failures === 1, 'the next generation to be handed over');
    t.match(await dutyRow(database, id), { generation: 2 });
    t.equal(one.handler.begun.length, 1);
    matchLists(
      t,
      logged.filter(({ level }) => level === 'error'),
      [
        { msg: 'duty: work does not stop when aborted', duty_id: id, generation: 1 },
        { msg: 'duty: work failed', duty_id: id, generation: 2 },
      ],
    );
    const two = await startInstance(t, world);
    await killRun(database, one.run, 0);
    await until(() => two.handler.working.has(id), 'another instance to carry it out');
    t.equal(one.handler.begun.length, 1);
    await one.keeper.stop();
    t.match(two.handler.working.get(id)?.duty, { failures: 1 }, 'a stop does not wait for it');
    work?.end();
  });

  t.test('a claim whose answer was lost is carried out, once', async (t) => {
    const one = await startInstance(t, zone());
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    await database.query(`select * from cnapi_claim_duties($1::uuid, $2::text[], 9)`, [one.run, [KIND]]);
    one.keeper.trigger();
    await until(() => one.handler.working.has(id), 'the work to begin');
    one.keeper.trigger();
    one.handler.working.get(id)?.end();
    await until(async () => (await dutyRow(database, id)).state === 'ended', 'the end');
    t.equal(one.handler.begun.length, 1);
  });

  t.test('work that meets a slow or unreachable database continues under the same generation', async (t) => {
    const one = await startInstance(t, zone());
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    const errors = [new DatabaseBusyError('locked'), new DatabaseUnavailableError(new Error('reset'))];
    for (const [index, error] of errors.entries()) {
      await until(() => one.handler.begun.length === index + 1, `try ${index + 1}`);
      one.handler.working.get(id)?.end(error);
    }
    await until(() => one.handler.begun.length === 3, 'the work to begin again');
    for (const duty of one.handler.begun) t.match(duty, { id, generation: 1, failures: 0 });
    one.handler.working.get(id)?.end();
    await until(() => one.keeper.held === 0, 'the end');
    t.match(await dutyRow(database, id), { state: 'ended', generation: 1, failures: 0 });
    t.match(one.keeper.stats(), { claimed: 1, ended: 1, handedOver: 0, failed: 0, retried: 2 });
  });

  t.test('work that waits for the database stops when it is aborted', async (t) => {
    const one = await startInstance(t, zone());
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    one.handler.working.get(id)?.end(new DatabaseBusyError('slow'));
    await until(() => one.keeper.stats().retried === 1, 'the pause to begin');
    await one.keeper.stop();
    t.match(await dutyRow(database, id), { state: 'waiting', failures: 0 });
    t.equal(one.handler.begun.length, 1);
  });

  t.test('work that failed is continued as soon as its pause ends', async (t) => {
    const one = await startInstance(t, zone());
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    one.handler.working.get(id)?.end(new Error('no luck'));
    await until(() => one.handler.begun.length === 2, 'its next generation');
    t.match(one.handler.begun[1], { generation: 2, failures: 1 });
  });

  t.test('work that fails is continued after a pause, and other duties are not delayed', async (t) => {
    const one = await startInstance(t, zone());
    const [failing = '', good = ''] = newIds(2);
    await createDuties(database, KIND, [failing]);
    one.keeper.offer();
    await until(() => one.handler.working.has(failing), 'the work to begin');
    one.handler.working.get(failing)?.end(new Error('no luck'));
    await until(async () => (await dutyRow(database, failing)).state === 'waiting', 'it to be handed over');
    t.match(await dutyRow(database, failing), { failures: 1, generation: 1, run: null });
    await createDuties(database, KIND, [good]);
    one.keeper.offer();
    await until(() => one.handler.working.has(good), 'the other one');
    t.notOk(one.handler.working.has(failing), 'it pauses');
    await database.query('update cnapi_duties set claimable_at = cnapi_now() where id = $1::uuid', [failing]);
    one.keeper.trigger();
    await until(() => one.handler.working.has(failing), 'its next generation');
    t.match(one.handler.working.get(failing)?.duty, { generation: 2, failures: 1 });
  });

  t.test('a duty whose row is locked ends a moment later', async (t) => {
    const one = await startInstance(t, zone());
    const [id = '', other = ''] = newIds(2);
    await createDuties(database, KIND, [id, other]);
    one.keeper.offer();
    await until(() => one.handler.working.size === 2, 'the work to begin');
    await database.transaction(async (holder) => {
      await holder.query('select 1 from cnapi_duties where id = $1::uuid for update', [id]);
      for (const { end } of one.handler.working.values()) end();
      await until(async () => (await dutyRow(database, other)).state === 'ended', 'the other one');
    });
    await until(async () => (await dutyRow(database, id)).state === 'ended', 'the locked one');
    t.match(one.keeper.stats(), { ended: 2, lost: 0 });
  });

  t.test('an instance that leaves hands over what it holds', async (t) => {
    const world = zone();
    const one = await startInstance(t, world);
    const ids = newIds(3);
    await createDuties(database, KIND, ids);
    one.keeper.offer();
    await until(() => one.handler.working.size === 3, 'the work to begin');
    const two = await startInstance(t, world);
    one.keeper.beginDrain();
    t.equal(one.handler.working.size, 3, 'an instance that drains continues');
    await database.query('update cnapi_instances set draining_since = cnapi_now() where run = $1::uuid', [one.run]);
    one.keeper.handOver();
    await until(() => two.handler.working.size === 3, 'the other instance to continue');
    t.equal(one.keeper.held, 0);
    for (const { duty } of two.handler.working.values()) t.match(duty, { generation: 2, failures: 0 });
  });

  t.test('a stop waits until the duties are free again', async (t) => {
    const one = await startInstance(t, zone());
    const [id = ''] = newIds(1);
    await createDuties(database, KIND, [id]);
    one.keeper.offer();
    await until(() => one.handler.working.has(id), 'the work to begin');
    await one.keeper.stop();
    t.match(await dutyRow(database, id), { state: 'waiting', run: null, failures: 0 });
  });
});
