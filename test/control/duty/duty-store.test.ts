/** Who holds which duty: the statements in forced pairs (law 5). */
import t from 'tap';
import type { HeldDuty } from '../../../lib/control/duty/duty.ts';
import {
  type ClaimedDuty,
  claimDuties,
  deleteEndedDuties,
  readDutyLoad,
  readHeldDuties,
  type SettledDuties,
  settleDuties,
} from '../../../lib/control/duty/duty-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { createDuties } from '../../support/create-duties.ts';
import { type Leg, runBehindLock } from '../../support/lock-waits.ts';
import { matchLists } from '../../support/match-lists.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { killRun, liveRun } from '../legacy/support/legacy-seats.ts';
import { dutyRow, lockDuty, newIds } from './support.ts';

const END = { kind: 'end' } as const;

t.test('statements about duties', async (t) => {
  const { database, url } = await freshDatabase(t, { migrations });
  let kinds = 0;

  /** A kind of its own, so that nobody else claims it. */
  async function held(): Promise<{ duty: HeldDuty; kind: string }> {
    const kind = `kind ${++kinds}`;
    await createDuties(database, kind, newIds(1));
    const run = await liveRun(database);
    const [claimed] = await claimDuties(database, run, { kinds: [kind], limit: 9 });
    if (claimed === undefined) throw new Error('nothing was claimed');
    const { wasTakenOver: _, takeovers: __, ...duty } = claimed;
    return { duty, kind };
  }

  t.test('only a live run claims, and only what is free and of its kinds', async (t) => {
    const ids = newIds(3);
    await createDuties(database, 'some', ids);
    await createDuties(database, 'others', newIds(1));
    const dead = await liveRun(database);
    await killRun(database, dead);
    t.same(await claimDuties(database, dead, { kinds: ['some'], limit: 9 }), []);
    const run = await liveRun(database);
    const first = await claimDuties(database, run, { kinds: ['some'], limit: 2 });
    matchLists(t, first, [
      { run, kind: 'some', generation: 1, failures: 0, wasTakenOver: false },
      { run, kind: 'some', generation: 1 },
    ]);
    t.equal((await claimDuties(database, run, { kinds: ['some'], limit: 9 })).length, 1);
    t.same(await claimDuties(database, run, { kinds: ['some'], limit: 9 }), []);
    t.same((await readHeldDuties(database, run)).map(({ id }) => id).toSorted(), ids.toSorted());
  });

  t.test('who carries out a duty is the instance of the live run that holds it', async (t) => {
    const [id = ''] = newIds(1);
    const kind = `kind ${++kinds}`;
    await createDuties(database, kind, [id]);
    const holder = async () => {
      const { rows } = await database.query<{ holder: string | null }>('select cnapi_duty_holder($1::uuid) as holder', [
        id,
      ]);
      return rows[0]?.holder;
    };
    t.equal(await holder(), null, 'it waits');
    const run = await liveRun(database);
    await claimDuties(database, run, { kinds: [kind], limit: 1 });
    // Here the uuid of an instance is its run.
    t.equal(await holder(), run);
    await killRun(database, run);
    t.equal(await holder(), null, 'its holder is dead');
    const next = await liveRun(database);
    const [duty] = await claimDuties(database, next, { kinds: [kind], limit: 1 });
    t.equal(await holder(), next);
    await settleDuties(database, next, [
      { id, generation: duty?.generation ?? 0, settlement: { kind: 'end' }, pauseMs: 0 },
    ]);
    t.equal(await holder(), null, 'it has ended');
  });

  t.test('the load counts what is unfinished and what is free, and names what is claimed next', async (t) => {
    const { duty, kind } = await held();
    const [later = '', next = ''] = newIds(2);
    await createDuties(database, kind, [later, next]);
    await database.query(`update cnapi_duties set claimable_at = cnapi_now() - interval '2 s' where id = $1`, [next]);
    const before = await readDutyLoad(database, [kind]);
    t.match(before, { unfinished: 3, free: 2 });
    t.same(before.nextFree, [`${next} 0`, `${later} 0`]);
    await killRun(database, duty.run, 500);
    const { nextFree, ...load } = await readDutyLoad(database, [kind]);
    t.match(load, { unfinished: 3, free: 3 });
    t.same(nextFree.toSorted(), [`${duty.id} 1`, `${next} 0`, `${later} 0`].toSorted());
  });

  t.test('what live runs hold costs a poll and a claim next to nothing', async (t) => {
    const kind = `kind ${++kinds}`;
    const [dead, ...live] = [await liveRun(database), await liveRun(database), await liveRun(database)] as const;
    await createDuties(database, kind, newIds(10_005));
    await database.query(
      `update cnapi_duties d set state = 'held', generation = 1, held_since = cnapi_now(),
           run = case when numbered.n <= 3 then $2::uuid when numbered.n % 2 = 0 then $3::uuid else $4::uuid end
         from (select id, row_number() over () as n from cnapi_duties where kind = $1) as numbered
         where numbered.id = d.id and numbered.n <= 10003`,
      [kind, dead, ...live],
    );
    await killRun(database, dead, 500);
    await countCalls(database, 'cnapi_is_free_duty');
    const load = await readDutyLoad(database, [kind]);
    t.match(load, { unfinished: 10_005, free: 5 });
    t.ok((await callsSoFar(database)) <= 5, 'the poll asks only about duties of ended runs, and those that wait');
    const [run = ''] = live;
    t.equal((await claimDuties(database, run, { kinds: [kind], limit: 200 })).length, 5);
    t.ok((await callsSoFar(database)) <= 20, 'and so does the claim');
    await database.query('delete from cnapi_duties where kind = $1', [kind]);
  });

  t.test('a duty whose holders die soon is left alone for longer each time, but not the first time', async (t) => {
    const { duty, kind } = await held();
    const claim = async () => (await claimDuties(database, await liveRun(database), { kinds: [kind], limit: 9 }))[0];
    const lapse = (run: string, agoMs: number) => killRun(database, run, agoMs);
    await lapse(duty.run, 0);
    const first = await claim();
    t.match(first, { generation: 2, takeovers: 1 }, 'at once');
    await lapse(first?.run ?? '', 0);
    t.equal(await claim(), undefined, 'it pauses');
    t.match(await readDutyLoad(database, [kind]), { free: 0 });
    await lapse(first?.run ?? '', 5_000);
    const second = await claim();
    t.match(second, { generation: 3, takeovers: 2 });
    await lapse(second?.run ?? '', 5_000);
    t.equal(await claim(), undefined, 'the pause doubles');
    await database.query(`update cnapi_duties set held_since = held_since - interval '1 hour' where id = $1`, [
      duty.id,
    ]);
    const later = await claim();
    t.match(later, { generation: 4, takeovers: 0 }, 'its holder had it for an hour');
    await lapse(later?.run ?? '', 0);
    t.match(await claim(), { generation: 5, takeovers: 1 });
  });

  t.test('a holder that has stopped leaves a duty that is free at once, although others lapsed then', async (t) => {
    const { duty, kind } = await held();
    const [lapsed, next] = [await liveRun(database), await liveRun(database)];
    await killRun(database, lapsed, 0);
    await killRun(database, duty.run);
    const claimed = await claimDuties(database, next, { kinds: [kind], limit: 9 });
    matchLists(t, claimed, [{ id: duty.id, wasTakenOver: true, takeovers: 0 }]);
  });

  t.test('a run writes only for a duty that it still holds, not for another of the same generation', async (t) => {
    const { duty, kind } = await held();
    await createDuties(database, kind, newIds(1));
    const [other] = await claimDuties(database, duty.run, { kinds: [kind], limit: 1 });
    t.match(other, { run: duty.run, generation: duty.generation });
    await settleDuties(database, duty.run, [{ ...duty, settlement: END, pauseMs: 0 }]);
    t.equal(await lockDuty(database, duty), false);
    t.equal(await lockDuty(database, other as ClaimedDuty), true);
  });

  t.test('a repeated settlement is harmless, and a late one has no effect', async (t) => {
    const { duty, kind } = await held();
    const settlement = { ...duty, settlement: { kind: 'hand-over', hasFailed: true }, pauseMs: 60_000 } as const;
    t.same((await settleDuties(database, duty.run, [settlement])).settled, new Set([duty.id]));
    t.same(await settleDuties(database, duty.run, [settlement]), { settled: new Set(), locked: new Set() });
    t.match(await dutyRow(database, duty.id), { state: 'waiting', failures: 1, run: null });
    t.same(await claimDuties(database, duty.run, { kinds: [kind], limit: 9 }), [], 'it pauses');
    const { free, resumesInMs } = await readDutyLoad(database, [kind]);
    t.equal(free, 0);
    t.ok(resumesInMs !== null && resumesInMs > 30_000 && resumesInMs <= 60_000, 'the load says for how long');
  });

  t.test('a settlement does not wait for a duty whose row is locked, and settles the others', async (t) => {
    const { duty, kind } = await held();
    await createDuties(database, kind, newIds(1));
    const [other] = await claimDuties(database, duty.run, { kinds: [kind], limit: 1 });
    const ends = [duty, other as ClaimedDuty].map((one) => ({ ...one, settlement: END, pauseMs: 0 }));
    await database.transaction(async (holder) => {
      await holder.query('select 1 from cnapi_duties where id = $1::uuid for update', [duty.id]);
      const settled = await settleDuties(database, duty.run, ends);
      t.same(settled, { settled: new Set([other?.id]), locked: new Set([duty.id]) });
    });
    t.same((await settleDuties(database, duty.run, ends)).settled, new Set([duty.id]));
  });

  t.test("a duty does not wait longer because the database's clock was set back", async (t) => {
    const setClock = (step: string) =>
      database.query(`create or replace function cnapi_now() returns timestamptz language sql stable
        as $$ select clock_timestamp() + interval '${step}' $$`);
    const { duty, kind } = await held();
    await createDuties(database, kind, newIds(1));
    await settleDuties(database, duty.run, [
      { ...duty, settlement: { kind: 'hand-over', hasFailed: true }, pauseMs: 60_000 },
    ]);
    await setClock('-1 hour');
    t.teardown(() => setClock('0 seconds'));
    t.match(await readDutyLoad(database, [kind]), { unfinished: 2, free: 2 });
    t.equal((await claimDuties(database, await liveRun(database), { kinds: [kind], limit: 9 })).length, 2);
  });

  t.test('ended duties are deleted after their time, and no others', async (t) => {
    const { duty } = await held();
    const other = await held();
    await settleDuties(database, duty.run, [{ ...duty, settlement: END, pauseMs: 0 }]);
    t.equal(await deleteEndedDuties(database, 1, 9), 0);
    await database.query(`update cnapi_duties set ended_at = ended_at - interval '2 days' where id = $1`, [duty.id]);
    t.equal(await deleteEndedDuties(database, 1, 9), 1);
    t.match(await dutyRow(database, other.duty.id), { state: 'held' });
  });

  t.test('concurrent statements in both orders', async (t) => {
    const leg = <Result>(name: string, work: () => Promise<Result>): Leg<Result> => ({ name, run: work });
    const claimSql = (run: string, kind: string) => `select * from cnapi_claim_duties('${run}', '{${kind}}', 9)`;
    const lockSql = ({ id, run, generation }: HeldDuty) => `select cnapi_lock_duty('${id}', '${run}', ${generation})`;

    t.test('of two runs that claim, one holds it', async (t) => {
      const { duty, kind } = await held();
      const [one, two] = [await liveRun(database), await liveRun(database)];
      await killRun(database, duty.run);
      const claiming = leg<ClaimedDuty[]>('claim', () => claimDuties(database, two, { kinds: [kind], limit: 9 }));
      t.same(await runBehindLock<[ClaimedDuty[]]>(url, claimSql(one, kind), [claiming]), [[]]);
      t.match(await dutyRow(database, duty.id), { run: one, generation: 2 });
      t.same(await claiming.run(), [], 'the new holder lives');
    });

    t.test('a takeover does not wait for a write of the holder, and comes after it', async (t) => {
      const { duty, kind } = await held();
      await killRun(database, duty.run);
      const other = await liveRun(database);
      const claiming = leg<ClaimedDuty[]>('claim', () => claimDuties(database, other, { kinds: [kind], limit: 9 }));
      t.same(await runBehindLock<[ClaimedDuty[]]>(url, lockSql(duty), [claiming]), [[]]);
      matchLists(t, await claiming.run(), [{ id: duty.id, generation: 2, wasTakenOver: true }]);
    });

    t.test('a write of the holder that waits for a takeover is refused', async (t) => {
      const { duty, kind } = await held();
      await killRun(database, duty.run);
      const other = await liveRun(database);
      const writing = leg<boolean>('write', () => lockDuty(database, duty));
      t.same(await runBehindLock<[boolean]>(url, claimSql(other, kind), [writing]), [false]);
    });

    t.test('an end during a takeover has to be tried again, and then has no effect', async (t) => {
      const { duty, kind } = await held();
      await killRun(database, duty.run);
      const other = await liveRun(database);
      const ending = leg<SettledDuties>('end', () =>
        settleDuties(database, duty.run, [{ ...duty, settlement: END, pauseMs: 0 }]),
      );
      const inUse = { settled: new Set<string>(), locked: new Set([duty.id]) };
      t.same(await runBehindLock<[SettledDuties]>(url, claimSql(other, kind), [ending]), [inUse]);
      t.same(await ending.run(), { settled: new Set(), locked: new Set() });
      t.match(await dutyRow(database, duty.id), { state: 'held', run: other, generation: 2 });
    });
  });
});

/** Counts from now on how often this function about a duty is called. */
async function countCalls(database: Queryable, name: string): Promise<void> {
  await database.query('create sequence calls minvalue 0 start 0');
  await database.query(`select nextval('calls')`);
  await database.query(`alter function ${name} (cnapi_duties, timestamptz) rename to counted`);
  await database.query(
    `create function ${name} (p_duty cnapi_duties, p_moment timestamptz) returns boolean language plpgsql as $$
     begin
       perform nextval('calls');
       return counted(p_duty, p_moment);
     end $$`,
  );
}

async function callsSoFar(database: Queryable): Promise<number> {
  const { rows } = await database.query<{ calls: number }>('select last_value::int as calls from calls');
  return rows[0]?.calls ?? 0;
}
