/** Lists over all servers' tasks: their summaries, order, filters, pages and bounds. */
import { randomUUID } from 'node:crypto';
import { constants } from 'node:os';
import t, { type Test } from 'tap';
import { summarizeParams, type TaskFilter } from '../../../../lib/control/tasks/store/task-list.ts';
import { listAllTasks } from '../../../../lib/control/tasks/store/task-list-store.ts';
import { cancelTask } from '../../../../lib/control/tasks/store/task-store.ts';
import type { Database } from '../../../../lib/platform/postgres/database.ts';
import { parseCursor } from '../../../../lib/protocol/api/contract/cursor.ts';
import { freshPglite } from '../../../support/pglite.ts';
import { freshDatabase } from '../../../support/postgres.ts';
import { backdate, claim, complete, create, migrations, record, seat } from '../support/task-database.ts';

t.test('a summary is the beginning of what a task does, in one line, however long that is', async (t) => {
  const command = (script: unknown, args?: unknown) =>
    summarizeParams('command_execute', { script, ...(args ? { args } : {}) });
  const rows: [string, string, string][] = [
    ['a command of one word', command('uptime\n'), 'uptime'],
    ['words that no shell splits', command('#!/bin/sh\nexec "$@"\n', ['uname', '-sr']), 'uname -sr'],
    [
      'a script and its arguments',
      command('#!/usr/bin/env bash\nset -e\n\tls "$1"\n', ['/tmp']),
      'set -e ls "$1" /tmp',
    ],
    ['nothing but an interpreter', command('#!/bin/sh'), ''],
    ['control characters', command('echo \x1b[31m\0 \u202e x'), 'echo [31m x'],
    ['parameters', summarizeParams('nop', { sleep: 5, error: 'as asked' }), 'sleep=5 error=as asked'],
    [
      'nested values',
      summarizeParams('any', { list: [1, 2], record: { a: 1 }, none: null }),
      'list=[…] record={…} none=null',
    ],
    ['no parameters', summarizeParams('server_sysinfo', {}), ''],
  ];
  for (const [name, summary, expected] of rows) t.equal(summary, expected, name);
  const long = command('a'.repeat(1_000_000), ['b'.repeat(1_000_000)]);
  t.equal(long.length, 200);
  t.ok(long.endsWith('…'));
  t.ok(
    summarizeParams('any', Object.fromEntries(Array.from({ length: 1_000 }, (_, n) => [`p${n}`, 'x']))).length <= 200,
  );
  for (let length = 195; length < 205; length++)
    t.ok(command(`${'a'.repeat(length)}😀😀😀`).isWellFormed(), 'no character is cut in two');
});

t.test('a page position is only what a page returned', async (t) => {
  const id = randomUUID();
  t.same(parseCursor(`1893456000000001_${id}`), { at: '1893456000000001', id });
  for (const text of [
    '',
    'x',
    `_${id}`,
    `1_${id}x`,
    `-1_${id}`,
    `1e3_${id}`,
    `${'9'.repeat(19)}_${id}`,
    `1_${id.toUpperCase()}`,
  ])
    t.equal(parseCursor(text), undefined, text);
});

t.test('on Postgres', async (t) => storeTests(t, (await freshDatabase(t, { migrations })).database));
t.test('on PGlite', async (t) => storeTests(t, await freshPglite(t, { migrations })));

async function storeTests(t: Test, db: Database): Promise<void> {
  const one = await seat(db);
  const other = await seat(db);
  const list = (filter: Partial<TaskFilter> = {}, looked?: number) =>
    listAllTasks(db, { limit: 100, ...filter }, looked);
  const ids = async (filter: Partial<TaskFilter> = {}) => (await list(filter)).rows.map(({ id }) => id);
  const about = { actor: 'alice', summary: 'uname -sr', name: 'command_execute' };

  const first = await create(db, one.serverUuid, about);
  const second = await create(db, other.serverUuid, { actor: 'bob' });
  const third = await create(db, one.serverUuid);

  t.test('tasks of all servers are listed, newest first, each with its actor and purpose', async (t) => {
    t.same(await ids(), [third, second, first]);
    t.match((await list()).rows[2], {
      id: first,
      server_uuid: one.serverUuid,
      name: 'command_execute',
      outcome: null,
      actor: 'alice',
      summary: 'uname -sr',
      attempt: 0,
      cancel_requested: false,
      created_at: Date,
    });
    t.same((await list()).next, undefined);
  });

  t.test('an end is listed with the exit code of its command, and a failure with its error code', async (t) => {
    await claim(db, one);
    const result = { exitCode: 3, signal: null, stdout: '{"exitCode":9} \0 \ud800'.repeat(10), stderr: '' };
    await record(db, one, first, complete(result));
    await cancelTask(db, second);
    const [, cancelled, ended] = (await list()).rows;
    t.match(ended, { id: first, outcome: 'complete', exit_code: 3, ended_at: Date });
    t.match(cancelled, { id: second, outcome: 'failure', error_code: 'Cancelled', exit_code: null });
  });

  t.test('output of a command cannot pass for its exit code', async (t) => {
    const tricky = await create(db, other.serverUuid, about);
    await claim(db, other);
    const result = { stdout: '"exitCode":7,', exitCode: null, signal: 'SIGKILL' };
    await record(db, other, tricky, complete(result));
    const { rows } = await list({ serverUuid: other.serverUuid });
    t.equal(rows[0]?.exit_code, 137, 'that of the signal');
    await db.query('delete from cnapi_tasks where id = $1::uuid', [tricky]);
  });

  t.test('a command that a signal ended has the exit code that a shell gives it', async (t) => {
    const signals = Object.entries(constants.signals).filter(([name]) => !['SIGIOT', 'SIGPOLL'].includes(name));
    const names = signals.map(([name]) => name);
    const { rows } = await db.query<{ numbers: number[] }>(
      'select array(select cnapi_signal_number(name) from unnest($1::text[]) as name) as numbers',
      [[...names, 'SIGNOT']],
    );
    t.same(rows[0]?.numbers, [...signals.map(([, number]) => number), null]);
  });

  t.test('a list can be filtered by status, name, actor, server and time', async (t) => {
    t.same(await ids({ status: 'active' }), [third]);
    t.same(await ids({ status: 'complete' }), [first]);
    t.same(await ids({ status: 'failure' }), [second]);
    t.same(await ids({ name: 'command_execute' }), [first]);
    t.same(await ids({ actor: 'bob' }), [second]);
    t.same(await ids({ serverUuid: one.serverUuid }), [third, first]);
    t.same(await ids({ serverUuid: one.serverUuid, status: 'complete', actor: 'alice' }), [first]);
    const { rows } = await list();
    const at = rows.map((row) => row.created_at.toISOString());
    t.same(await ids({ since: at[0], until: new Date(Date.parse(at[0] ?? '') + 1).toISOString() }), [third]);
    await backdate(db, first, 3_600_000);
    t.same(await ids({ until: new Date(Date.now() - 1_800_000).toISOString() }), [first]);
  });

  t.test('the pages list each task once, whatever is created meanwhile and however many share one time', async (t) => {
    const wanted = await ids();
    await db.query(`update cnapi_tasks set created_at = '2030-01-01T00:00:00.123456Z' where id = any ($1::uuid[])`, [
      wanted,
    ]);
    const seen: string[] = [];
    const later: string[] = [];
    let next: string | undefined;
    do {
      const page: Awaited<ReturnType<typeof list>> = await list({
        limit: 1,
        after: next === undefined ? undefined : parseCursor(next),
      });
      seen.push(...page.rows.map(({ id }) => id));
      const made = await create(db, one.serverUuid);
      later.push(made);
      await db.query(`update cnapi_tasks set created_at = '2031-01-01' where id = $1::uuid`, [made]);
      next = page.next;
    } while (next !== undefined);
    t.same(seen, wanted.toSorted().toReversed());
    await db.query('delete from cnapi_tasks where id = any ($1::uuid[])', [later]);
  });

  t.test('a page reads a bounded number of tasks and says where the next one continues', async (t) => {
    const pages: string[][] = [];
    let next: string | undefined;
    do {
      const page: Awaited<ReturnType<typeof list>> = await list(
        { status: 'failure', after: next === undefined ? undefined : parseCursor(next) },
        1,
      );
      pages.push(page.rows.map(({ id }) => id));
      next = page.next;
    } while (next !== undefined && pages.length < 10);
    t.same(pages.flat(), [second]);
    t.equal(pages.length, 4, 'one page for each task, and the end');
  });

  t.test('active tasks are found by an index of their own, all tasks by one in their order', async (t) => {
    await db.query(
      `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, request_hash, state, outcome, created_at, queued_at, ended_at)
         select gen_random_uuid(), gen_random_uuid(), 'old', '{}', 1, false, 'h', 'ended', 'complete', moment, moment, moment
           from (select timestamptz '2020-01-01' + n * interval '1 second' as moment from generate_series(1, 20000) as n) as moments`,
    );
    await db.query('analyze cnapi_tasks');
    const plan = async (condition: string) => {
      const { rows } = await db.query<Record<string, string>>(
        `explain select id from cnapi_tasks ${condition} order by created_at desc, id desc limit 100`,
      );
      return rows.map((row) => Object.values(row)[0]).join('\n');
    };
    t.match(await plan(`where (state || '') <> 'ended'`), /cnapi_tasks_unfinished/);
    const after = `where (created_at, id) < (timestamptz 'epoch' + 1577900000000000::bigint * interval '1 microsecond', '${randomUUID()}')`;
    for (const condition of ['', after]) {
      t.match(await plan(condition), /cnapi_tasks_created/);
      t.notMatch(await plan(condition), /Sort/);
    }
    t.equal((await list({ name: 'nobody' })).rows.length, 0);
    t.ok((await list({ name: 'nobody' })).next, 'there is more to read');
  });
}
