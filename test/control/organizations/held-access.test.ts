/** What users and clients have open ends with their rights. */
import t from 'tap';
import { HeldAccess } from '../../../lib/control/organizations/held-access.ts';
import { neededGroups, type Requestor } from '../../../lib/control/organizations/requestor.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { keyPair, signedZone } from './signed-api.ts';

t.test('an organization with users, clients and a group of readers', async (t) => {
  const { database, create } = await signedZone(t);
  const organization = await create('organizations', { name: 'acme' });
  const clock = new ManualClock();
  let checks = 0;
  const counting: Queryable = {
    query(...statement) {
      return database.query(...statement).finally(() => {
        checks += 1;
      }) as never;
    },
  };
  const access = new HeldAccess({ database: counting, clock, log });
  access.start();
  t.teardown(() => access.stop());
  const checked = async () => {
    const before = checks;
    await clock.advance(30_000);
    await until(() => checks > before, 'the check');
    await clock.advance(0);
    return checks - before;
  };

  const ended: string[] = [];
  const holder = async (kind: 'user' | 'client', name: string) => {
    const { publicKey } = keyPair();
    const where = kind === 'user' ? { organizations: [organization] } : { organization };
    const uuid = await create(`${kind}s`, { name, ...where });
    const key = await create('keys', { owner: uuid, public_key: publicKey });
    const actor = { name, roles: [], principal: { kind, name, uuid, publicKey } };
    const requestor: Requestor = { name, kind, groups: new Set(), needs: neededGroups(new Set()), actor };
    const release = access.hold(requestor, organization, () => ended.push(name));
    return { uuid, key, release };
  };
  const change = (sql: string, ...values: unknown[]) => database.query(sql, values);

  const [keyless, expired, another, left, gone, outside, kept, client, strange] = [
    await holder('user', 'keyless'),
    await holder('user', 'expired'),
    await holder('user', 'another-key'),
    await holder('user', 'left'),
    await holder('client', 'gone'),
    await holder('user', 'outside'),
    await holder('user', 'kept'),
    await holder('client', 'client'),
    await holder('user', 'released'),
  ];
  t.equal(await checked(), 1, 'one statement for the organization');
  t.same(ended, [], 'all may read');

  await change('delete from cnapi_keys where _key = $1', keyless.key);
  const expiry = { expires_at: '2020-01-01T00:00:00.000Z' };
  await change('update cnapi_keys set _value = _value || $2::jsonb where _key = $1', expired.key, expiry);
  const other = { public_key: keyPair().publicKey };
  await change('update cnapi_keys set _value = _value || $2::jsonb where _key = $1', another.key, other);
  await change('update cnapi_users set _value = _value || $2::jsonb where _key = $1', left.uuid, { organizations: [] });
  await change('delete from cnapi_clients where _key = $1', gone.uuid);
  strange.release();
  await change('delete from cnapi_users where _key = $1', strange.uuid);
  await checked();
  t.same(ended.splice(0).sort(), ['another-key', 'expired', 'gone', 'keyless', 'left']);

  const inner = await create('groups', { name: 'ops', organization, users: [kept.uuid] });
  const readers = { name: 'pushy_job_readers', organization, groups: [inner], clients: [client.uuid] };
  const group = await create('groups', readers);
  await checked();
  t.same(ended.splice(0), ['outside'], 'who is not in the group of readers');
  await change('update cnapi_groups set _value = _value || $2::jsonb where _key = $1', group, { clients: [] });
  await checked();
  t.same(ended.splice(0), ['client'], 'who was removed from it; a member of a group in it continues');

  await change('delete from cnapi_organizations where _key = $1', organization);
  await checked();
  t.same(ended, ['kept'], 'nobody reads an organization that was deleted');
  t.equal(outside.release(), undefined);
});

t.test('a check that fails for one organization does not keep the others from theirs', async (t) => {
  const clock = new ManualClock();
  const asked: unknown[] = [];
  const failing: Queryable = {
    query(_, values: readonly unknown[] = []) {
      const organization = values.find((value) => value === 'broken' || value === 'acme');
      asked.push(organization);
      if (organization === 'broken') return Promise.reject(new Error('too slow'));
      return Promise.resolve({ rows: [], rowCount: 0 }) as never;
    },
  };
  const access = new HeldAccess({ database: failing, clock, log });
  const ended: string[] = [];
  for (const organization of ['broken', 'acme']) {
    const principal = { kind: 'user' as const, name: 'eve', uuid: 'eve', publicKey: 'key' };
    const actor = { name: 'eve', roles: [], principal };
    const requestor: Requestor = {
      name: 'eve',
      kind: 'user',
      groups: new Set(),
      needs: neededGroups(new Set()),
      actor,
    };
    access.hold(requestor, organization, () => ended.push(organization));
  }
  access.start();
  t.teardown(() => access.stop());
  await clock.advance(30_000);
  await until(() => asked.length >= 2, 'both organizations to be checked');
  await until(() => ended.length > 0, 'the end of what may not be read any more');
  t.same(asked.slice(0, 2), ['broken', 'acme']);
  t.same(ended, ['acme']);
});
