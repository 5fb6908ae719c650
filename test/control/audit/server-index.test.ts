import { randomUUID } from 'node:crypto';
import t from 'tap';
import { listAudit } from '../../../lib/control/audit/audit-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test('records about a server, alone or among others, are found by indexes and in order', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const server = randomUUID();
  await database.query(
    `insert into cnapi_audit (key, actor, roles, action, method, path, request_id, source, instance, server_uuid, servers)
     select gen_random_uuid(), 'a', '{}', 'action-' || n, 'POST', '/', n::text, '', gen_random_uuid(),
       case when n % 1000 = 1 then $1::uuid when n % 2 = 0 then gen_random_uuid() end,
       case when n % 1000 = 2 then array[gen_random_uuid(), $1::uuid] when n % 50 = 0 then array[gen_random_uuid()] end
     from generate_series(1, 5000) n`,
    [server],
  );
  await database.query('analyze cnapi_audit');
  const plan: string[] = [];
  const explained: Queryable = {
    async query(text, values, options) {
      const { rows } = await database.query<{ 'QUERY PLAN': string }>(`explain ${text}`, values);
      plan.push(...rows.map((row) => row['QUERY PLAN']));
      return database.query<never>(text, values, options);
    },
  };
  const actions = async (more: object) =>
    (await listAudit(explained, { serverUuid: server, limit: 4, ...more })).map(({ action }) => action);
  t.same(await actions({}), ['action-4002', 'action-4001', 'action-3002', 'action-3001']);
  t.match(plan.join('\n'), /Index Scan[^\n]*cnapi_audit_server\b/);
  t.match(plan.join('\n'), /Bitmap Index Scan on cnapi_audit_servers/);
  t.notMatch(plan.join('\n'), /Seq Scan|cnapi_audit_pkey/);
  t.same(await actions({ action: 'action-3002' }), ['action-3002']);
});
