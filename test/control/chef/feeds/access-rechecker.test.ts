/** What users and clients have open ends with their rights. */
import t, { type Test } from 'tap';
import { AccessRechecker } from '../../../../lib/control/chef/feeds/access-rechecker.ts';
import { neededGroups, type Requestor } from '../../../../lib/control/organizations/requestor.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger as log } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { until } from '../../../support/until.ts';
import { keyPair, signedZone } from '../signatures/signed-api.ts';

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
  const access = new AccessRechecker({ database: counting, clock, log });
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

interface Asked {
  database: Queryable;
  /** Number of callers in each statement. */
  sizes: number[];
}

/** Answers that all callers may read, except as `failureOf` says about a statement. */
function answering(failureOf: (organizations: readonly string[]) => Error | undefined): Asked {
  const sizes: number[] = [];
  const database: Queryable = {
    query(_, values: readonly unknown[] = []) {
      const organizations = values[0] as string[];
      sizes.push(organizations.length);
      const failure = failureOf(organizations);
      if (failure !== undefined) return Promise.reject(failure);
      const rows = organizations.map(() => ({ isKnown: true, memberOf: [], existing: [] }));
      return Promise.resolve({ rows, rowCount: rows.length }) as never;
    },
  };
  return { database, sizes };
}

async function heldBy(t: Test, organizations: readonly string[], database: Queryable) {
  const clock = new ManualClock();
  const access = new AccessRechecker({ database, clock, log });
  const ended: string[] = [];
  const hold = (organization: string) => {
    const principal = { kind: 'user' as const, name: 'eve', uuid: 'eve', publicKey: 'key' };
    const actor = { name: 'eve', roles: [], principal };
    const groups = { groups: new Set<string>(), needs: neededGroups(new Set()) };
    return access.hold({ name: 'eve', kind: 'user', ...groups, actor }, organization, () => ended.push(organization));
  };
  for (const organization of organizations) hold(organization);
  access.start();
  t.teardown(() => access.stop());
  /** Time passes in small steps, so that what is tried again is tried in each period. */
  const pass = async (seconds: number) => {
    for (let second = 0; second < seconds; second += 1) await clock.advance(1_000);
  };
  return { access, ended, hold, pass };
}

t.test('a check that takes too long is divided, and only who is never checked is closed, in time', async (t) => {
  const organizations = Array.from({ length: 200 }, (_, number) => `org-${number}`);
  const asked = answering((some) => (some.includes('org-7') ? new DatabaseBusyError('slow') : undefined));
  const { access, ended, pass } = await heldBy(t, organizations, asked.database);
  await pass(60);
  t.equal(asked.sizes[0], 200);
  t.ok(asked.sizes.includes(1), 'down to the one that is slow');
  await pass(240);
  t.same(ended, [], 'nothing is closed for five minutes');
  await pass(30);
  t.same(ended, ['org-7']);
  t.equal(access.unchecked, 1);
});

t.test('who comes back is checked, although the stream before is released a second time', async (t) => {
  const asked = answering(() => undefined);
  const { hold, pass } = await heldBy(t, [], asked.database);
  const release = hold('acme');
  release();
  hold('acme');
  release();
  await pass(30);
  t.same(asked.sizes, [1]);
});

t.test('once it is stopped, nothing is checked any more', async (t) => {
  const asked = answering(() => undefined);
  const { access, pass } = await heldBy(t, ['acme'], asked.database);
  await pass(30);
  t.same(asked.sizes, [1]);
  await access.stop();
  await pass(60);
  t.same(asked.sizes, [1]);
});

t.test('a check that the database refuses for one organization does not keep the others from theirs', async (t) => {
  const asked = answering((some) => (some.includes('broken') ? new Error('refused') : undefined));
  const { ended, pass } = await heldBy(t, ['broken', 'acme'], asked.database);
  await pass(360);
  t.same(ended, ['broken']);
});

t.test('who has left is checked no more, also one whose check is to be repeated', async (t) => {
  const asked = answering(() => new Error('refused'));
  const { hold, pass } = await heldBy(t, [], asked.database);
  const release = hold('acme');
  await pass(31);
  t.ok(asked.sizes.length > 0, 'the check is refused, and will be repeated');
  release();
  asked.sizes.length = 0;
  await pass(120);
  t.same(asked.sizes, []);
});

t.test('connections that run out now and then do not keep open what cannot be checked', async (t) => {
  let checks = 0;
  const asked = answering(() => {
    checks += 1;
    return checks % 3 === 0 ? new DatabaseUnavailableError() : new DatabaseBusyError('slow');
  });
  const { ended, pass } = await heldBy(t, ['acme'], asked.database);
  await pass(420);
  t.same(ended, ['acme']);
});

t.test('an outage of the database closes nothing, and the rights are checked at once after it', async (t) => {
  let isDown = true;
  const asked = answering(() => (isDown ? new DatabaseUnavailableError() : undefined));
  const { ended, pass } = await heldBy(t, ['acme', 'other'], asked.database);
  await pass(3_600);
  t.same(ended, []);
  isDown = false;
  asked.sizes.length = 0;
  await pass(2);
  t.same(asked.sizes, [2]);
  await pass(600);
  t.same(ended, []);
});
