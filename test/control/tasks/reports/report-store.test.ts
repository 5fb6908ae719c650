import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import type { Report } from '../../../../lib/control/tasks/reports/report.ts';
import { recordReports } from '../../../../lib/control/tasks/reports/report-store.ts';
import { readEvents } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { claim, complete, create, migrations, record, row, seat } from '../support/task-database.ts';

t.test('on Postgres', async (t) => reportTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => reportTests(t, await freshPglite(t, { migrations })));

async function reportTests(t: Test, db: Database): Promise<void> {
  t.test('events and the end are recorded for the current attempt only', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    t.same(await record(db, mine, id, complete()), [], 'not while queued');
    await claim(db, mine);
    t.same(await record(db, mine, id, complete(), 2), [], 'not another attempt');
    t.same(await record(db, { ...mine, serverUuid: randomUUID() }, id, complete()), [], 'not by another server');
    t.same(await record(db, mine, randomUUID(), complete()), [], 'not an unknown task');
    t.same(await record(db, mine, id, { name: 'accepted' }), [{ id, ended: false }]);
    t.same(await record(db, mine, id, { name: 'started' }), [{ id, ended: false }]);
    t.same(await record(db, mine, id, complete({ text: 'a\0\udfff' })), [{ id, ended: true }]);
    t.same(await record(db, mine, id, { name: 'failure', error: { code: 'Late', message: '' } }), [], 'not twice');
    t.match(await row(db, id), { outcome: 'complete', result: { text: 'a\0\udfff' }, error: null });
    const page = await readEvents(db, id, { afterSeq: 0, limit: 10 });
    t.same(
      page?.events.map(({ seq, name }) => [seq, name]),
      [
        [1, 'accepted'],
        [2, 'started'],
        [3, 'end'],
      ],
    );
    t.same(page?.events.at(-1)?.data, { status: 'complete', result: { text: 'a\0\udfff' } });
    t.same(
      (await readEvents(db, id, { afterSeq: 1, limit: 1 }))?.events.map((event) => event.seq),
      [2],
      'pages',
    );
  });

  t.test('many reports of many tasks are one statement, in order, without duplicates', async (t) => {
    const mine = await seat(db);
    const ids = [await create(db, mine.serverUuid), await create(db, mine.serverUuid)] as const;
    await claim(db, mine);
    const reports = ids.flatMap((id) =>
      (
        [
          { name: 'accepted' },
          { name: 'accepted' },
          { name: 'started' },
          { name: 'progress', value: 10 },
          { name: 'progress', value: 20, message: 'half' },
          { name: 'output', stream: 'stdout', offset: 0, text: 'hi', bytes: 2 },
          { name: 'complete', resultJson: '{}' },
          { name: 'complete', resultJson: '{"second":true}' },
        ] as Partial<Report>[]
      ).map((report) => ({
        subject: { id, serverUuid: mine.serverUuid, attempt: 1 },
        report: { reportedAt: 'then', ...report } as Report,
      })),
    );
    t.same(
      (await recordReports(db, reports)).changed.toSorted(byId),
      ids.map((id) => ({ id, ended: true })).toSorted(byId),
    );
    for (const id of ids) {
      const page = await readEvents(db, id, { afterSeq: 0, limit: 10 });
      t.same(
        page?.events.map(({ seq, name }) => [seq, name]),
        [
          [1, 'accepted'],
          [2, 'started'],
          [3, 'progress'],
          [4, 'output'],
          [5, 'end'],
        ],
      );
      t.same(page?.events[2]?.data, { value: 20, message: 'half' });
    }
  });

  t.test('of progress reports only the newest is kept', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    for (const value of [1, 2, 3]) await record(db, mine, id, { name: 'progress', value, message: undefined });
    const page = await readEvents(db, id, { afterSeq: 0, limit: 10 });
    matchLists(t, page?.events, [{ seq: 3, name: 'progress', data: { value: 3 } }]);
    t.match(await row(db, id), { progress: { value: 3 } });
  });

  t.test('of a long output the first and last halves are kept and the cut is marked', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    const bounds = { halfBytes: 30, halfPieces: 1000 };
    const piece = (offset: number): Report => ({
      name: 'output',
      reportedAt: '',
      stream: 'stdout',
      offset,
      text: String(offset).padStart(10, '.'),
      bytes: 10,
    });
    const subject = { id, serverUuid: mine.serverUuid, attempt: 1 };
    await recordReports(db, [{ subject, report: { ...piece(0), stream: 'stderr' } as Report }], bounds);
    for (let offset = 0; offset < 500; offset += 10)
      await recordReports(db, [{ subject, report: piece(offset) }], bounds);
    const kept = await readEvents(db, id, { afterSeq: 0, limit: 1000 });
    t.ok((kept?.events.length ?? 99) <= 17, 'it never holds much more');
    await recordReports(db, [{ subject, report: { name: 'complete', reportedAt: '', resultJson: '{}' } }], bounds);
    const page = await readEvents(db, id, { afterSeq: 0, limit: 1000 });
    const stdout = page?.events.filter((event) => event.data.stream === 'stdout').map((event) => event.data);
    t.same(
      stdout?.map((data) => [data.offset, data.cut]),
      [
        [0, undefined],
        [10, undefined],
        [20, undefined],
        [30, 440],
        [470, undefined],
        [480, undefined],
        [490, undefined],
      ],
    );
    t.equal(page?.events.filter((event) => event.data.stream === 'stderr').length, 1, 'the other stream is complete');
    t.equal(page?.events.at(-1)?.name, 'end');
  });

  t.test('reports that may already be stored are stored once, and the state of their tasks is returned', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    const subject = { id, serverUuid: mine.serverUuid, attempt: 1 };
    const piece = (offset: number, text: string, stream = 'stdout') =>
      ({ name: 'output', reportedAt: '', stream, offset, text, bytes: text.length }) as Report;
    const of = (reports: Report[]) => reports.map((report) => ({ subject, report }));
    const sent = of([{ name: 'started', reportedAt: '' }, piece(0, 'one'), piece(3, 'two'), piece(0, 'err', 'stderr')]);
    const again = sent.map((report) => ({ ...report, isRepeated: true }));
    const first = (reports: Report[]) => of(reports).map((report) => ({ ...report, isRepeated: false }));
    const stored = async () => {
      const page = await readEvents(db, id, { afterSeq: 0, limit: 100 });
      return page?.events.map(({ name, data }) => data.text ?? name);
    };
    t.same((await recordReports(db, again)).changed, [{ id, ended: false }], 'a report that had never arrived');
    t.same(await stored(), ['started', 'one', 'two', 'err']);
    t.same((await recordReports(db, again)).changed, [{ id, ended: false }], 'a report that had arrived');
    t.same(await stored(), ['started', 'one', 'two', 'err']);
    const end = { name: 'complete', reportedAt: '', resultJson: '{}' } as const;
    const more = [...again, ...first([piece(6, 'six'), piece(3, 'err', 'stderr'), end])];
    t.same((await recordReports(db, more)).changed, [{ id, ended: true }]);
    t.same(await stored(), ['started', 'one', 'two', 'err', 'six', 'err', 'end']);
    t.same(
      (await recordReports(db, again)).changed,
      [{ id, ended: true }],
      'an end whose record was never acknowledged',
    );
    t.equal((await stored())?.length, 7);
  });

  t.test('output that was cut when it was stored is not stored again', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    const subject = { id, serverUuid: mine.serverUuid, attempt: 1 };
    const sent = Array.from({ length: 50 }, (_, n) => {
      const report = { name: 'output', reportedAt: '', stream: 'stdout', offset: 10 * n, text: `${n}`, bytes: 10 };
      return { subject, report: report as Report, isRepeated: true };
    });
    const bounds = { halfBytes: 30, halfPieces: 1000 };
    await recordReports(db, sent, bounds);
    const before = (await readEvents(db, id, { afterSeq: 0, limit: 100 }))?.events;
    t.equal(before?.length, 7);
    await recordReports(db, sent, bounds);
    t.same((await readEvents(db, id, { afterSeq: 0, limit: 100 }))?.events, before);
  });

  t.test('output of many small pieces is bounded too', async (t) => {
    const mine = await seat(db);
    const id = await create(db, mine.serverUuid);
    await claim(db, mine);
    const subject = { id, serverUuid: mine.serverUuid, attempt: 1 };
    const reports = Array.from({ length: 100 }, (_, offset) => ({
      subject,
      report: { name: 'output', reportedAt: '', stream: 'stdout', offset, text: 'x', bytes: 1 } as Report,
    }));
    await recordReports(db, reports, { halfBytes: 1000, halfPieces: 5 });
    const page = await readEvents(db, id, { afterSeq: 0, limit: 1000 });
    t.same(
      page?.events.map(({ data }) => [data.offset, data.cut]),
      [0, 1, 2, 3, 4, 5, 95, 96, 97, 98, 99].map((offset) => [offset, offset === 5 ? 90 : undefined]),
    );
  });
}

const byId = (a: { id: string }, b: { id: string }): number => (a.id < b.id ? -1 : 1);
