import { randomUUID } from 'node:crypto';
import t from 'tap';
import { readGroups, readPresentRights } from '../../../lib/control/organizations/organization-store.ts';
import { Organizations } from '../../../lib/control/organizations/organizations.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { freshDatabase } from '../../support/postgres.ts';

t.test('the groups of a member, also nested ones, are found by an index and not by reading all groups', async (t) => {
  const { database } = await freshDatabase(t, { migrations });
  const organizations = new Organizations({ database, random });
  await organizations.prepare();
  await organizations.prepare();
  const organization = randomUUID();
  await database.query(
    `insert into cnapi_groups (_key, _value, _etag, _mtime)
     select key, jsonb_build_object('uuid', key, 'name', 'group-' || n, 'organization', $1::text,
       'users', jsonb_build_array(gen_random_uuid())), 'etag', now()
     from generate_series(1, 500) n, lateral (select gen_random_uuid()::text || left(n::text, 0) as key) keys`,
    [organization],
  );
  await database.query('analyze cnapi_groups');
  const plans: string[] = [];
  const explained: Queryable = {
    async query(text, values, options) {
      const { rows } = await database.query<{ 'QUERY PLAN': string }>(`explain ${text}`, values);
      plans.push(...rows.map((row) => row['QUERY PLAN']));
      return database.query<never>(text, values, options);
    },
  };
  const readsOnlyIndex = (what: string) => {
    t.equal(plans.filter((line) => line.includes('Bitmap Index Scan on cnapi_groups_members')).length, 2, what);
    t.notOk(
      plans.some((line) => line.includes('Filter') && /cnapi_group_members|\bg\._value/.test(line)),
      what,
    );
    plans.length = 0;
  };
  const member = { kind: 'user', uuid: randomUUID() } as const;
  const wanted = ['admins', 'group-7'];
  t.same(await readGroups(explained, { organizationUuid: organization, ...member }, wanted), {
    memberOf: [],
    existing: ['group-7'],
  });
  readsOnlyIndex('of a caller');
  t.same(
    await readPresentRights(explained, [{ ...member, organizationUuid: organization, publicKey: 'a key' }], wanted),
    [{ isKnown: false, memberOf: [], existing: ['group-7'] }],
  );
  readsOnlyIndex('of callers that have something open');
});
