import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { TokenAuthenticator } from '../../../lib/control/access/token-authenticator.ts';
import type { TokenFilter } from '../../../lib/control/access/token-store.ts';
import { Tokens } from '../../../lib/control/access/tokens.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { migrationsOf } from '../../support/migrations-of.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { until } from '../../support/until.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
/** Part of the statement that checks held tokens by uuid. */
const FULL_CHECK = 'left join cnapi_tokens';

async function start(t: Test) {
  const { database } = await freshDatabase(t, { migrations: migrationsOf('moray', 'access') });
  const clock = new ManualClock();
  const link = {
    ...{ isCut: false, statements: 0, answers: 0, hold: undefined as Promise<void> | undefined },
    /** Whether the database takes too long for this statement. */
    isSlow: (_text: string, _values: unknown) => false,
    /** Until then the background connection does not answer. */
    backgroundHold: undefined as Promise<void> | undefined,
    /** How many tokens each statement of the full check was about. */
    fullChecks: [] as number[],
  };
  const existingRead = Promise.withResolvers<void>();
  const queryable: Queryable = {
    query: async (text, values, options) => {
      if (text.includes('order by last_used_at')) {
        const existing = await database.query<never>(text, values, options);
        setImmediate(existingRead.resolve);
        return existing;
      }
      link.statements += 1;
      const { hold } = link;
      if (link.isSlow(text, values)) {
        await clock.sleep(100);
        throw new DatabaseBusyError('slow');
      }
      if (link.isCut) throw new DatabaseUnavailableError(new Error('cut'));
      const answer = await database.query<never>(text, values, options);
      link.answers += 1;
      await hold;
      return answer;
    },
  };
  const backgroundDatabase: Queryable = {
    query: async (text, values, options) => {
      if (text.includes(FULL_CHECK)) link.fullChecks.push((values as string[][])[0]?.length ?? 0);
      await link.backgroundHold;
      return queryable.query<never>(text, values, options);
    },
  };
  const authenticator = new TokenAuthenticator({ database: queryable, backgroundDatabase, clock, log: silentLogger });
  authenticator.start();
  t.teardown(() => authenticator.stop());
  // Otherwise that read may find the tokens that a test creates.
  await existingRead.promise;
  const tokens = new Tokens({ database, random: systemRandom });
  return { database, clock, link, authenticator, tokens };
}

/** Something is open with each of these tokens, which are not in the database. */
function holdOthers(authenticator: TokenAuthenticator, count: number, onEnded: () => void): string[] {
  const others = Array.from({ length: count }, () => randomUUID());
  for (const tokenUuid of others) authenticator.onTokenEnd({ name: 'b', roles: [], tokenUuid }, onEnded);
  return others;
}

t.test('a token identifies its owner until it is revoked', async (t) => {
  const { clock, authenticator, tokens } = await start(t);
  const made = await tokens.create({ name: 'a', role: 'agent', createdBy: 'the test', serverUuid: SERVER });
  t.same(await authenticator.authenticate(made.token), {
    name: 'a',
    roles: ['agent'],
    tokenUuid: made.uuid,
    serverUuid: SERVER,
  });
  const other = made.token.replace(/.$/, (last) => (last === 'A' ? 'B' : 'A'));
  t.equal(await authenticator.authenticate(other), undefined, 'another secret is refused');
  t.equal(await authenticator.authenticate('cnapi_x'), undefined);
  await tokens.revoke(made.uuid);
  await clock.advance(401);
  t.equal(await authenticator.authenticate(made.token), undefined);
});

t.test('a token is cached for at most 400 ms, and concurrent lookups share one statement', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const everybody = Array.from({ length: 50 }, () => authenticator.authenticate(token));
  t.equal((await Promise.all(everybody)).filter((actor) => actor?.name === 'a').length, 50);
  t.equal(link.statements, 1);
  await clock.advance(400);
  await authenticator.authenticate(token);
  const seen = link.statements;
  await clock.advance(1);
  await authenticator.authenticate(token);
  t.equal(link.statements, seen + 1);
});

t.test('a late answer of the database is not used for later requests', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  const { token, uuid } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const stuck = Promise.withResolvers<void>();
  link.hold = stuck.promise;
  const first = authenticator.authenticate(token);
  await until(async () => link.answers === 1, 'the answer to be on its way');
  link.hold = undefined;
  await tokens.revoke(uuid);
  await clock.advance(401);
  t.equal(await authenticator.authenticate(token), undefined, 'read again');
  stuck.resolve();
  t.equal((await first)?.name, 'a', 'the request from before the revocation');
  await clock.advance(1);
  t.equal(await authenticator.authenticate(token), undefined);
});

t.test('existing tokens are known from the start', async (t) => {
  const { database, clock, tokens } = await start(t);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const over = await tokens.create({ name: 'b', role: 'reader', createdBy: 'the test' });
  await tokens.revoke(over.uuid);
  const other = new TokenAuthenticator({ database, backgroundDatabase: database, clock, log: silentLogger });
  other.start();
  t.teardown(() => other.stop());
  await until(async () => other.remembered(token), 'the tokens to be read');
  t.equal(other.remembered(over.token), undefined);
});

t.test('what a token opened ends when any instance revokes it', async (t) => {
  const { clock, authenticator, tokens } = await start(t);
  const { token, uuid } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const other = await tokens.create({ name: 'b', role: 'reader', createdBy: 'the test' });
  const ended: string[] = [];
  const actor = await authenticator.authenticate(token);
  const bystander = await authenticator.authenticate(other.token);
  if (actor === undefined || bystander === undefined) throw new Error('the tokens are not good');
  authenticator.onTokenEnd(actor, () => ended.push('a stream'));
  authenticator.onTokenEnd(actor, () => ended.push('a link'));
  authenticator.onTokenEnd(actor, () => ended.push('one that had ended'))();
  authenticator.onTokenEnd(bystander, () => ended.push('a bystander'));
  await tokens.revoke(uuid);
  await until(async () => {
    await clock.advance(400);
    return ended.length > 0;
  }, 'the holders to be notified');
  t.same(ended, ['a stream', 'a link']);
});

t.test("a token expires by the database's clock, also for what it opened", async (t) => {
  const { database, clock, authenticator, tokens } = await start(t);
  const { token, uuid } = await tokens.create({
    name: 'a',
    role: 'reader',
    createdBy: 'the test',
    expiresInSeconds: 3600,
  });
  const actor = await authenticator.authenticate(token);
  if (actor === undefined) throw new Error('the token is not good');
  let ended = 0;
  authenticator.onTokenEnd(actor, () => ended++);
  await database.query(`update cnapi_tokens set expires_at = cnapi_now() where uuid = $1`, [uuid]);
  await until(async () => {
    await clock.advance(400);
    return ended === 1;
  }, 'the holder to be notified');
  t.equal(await authenticator.authenticate(token), undefined);
});

t.test('a deleted token row is found by the periodic check of held tokens', async (t) => {
  const { database, clock, authenticator, tokens } = await start(t);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const actor = await authenticator.authenticate(token);
  if (actor === undefined) throw new Error('the token is not good');
  let ended = 0;
  authenticator.onTokenEnd(actor, () => ended++);
  await database.query('delete from cnapi_tokens');
  await clock.advance(5_000);
  await until(async () => {
    await clock.advance(400);
    return ended === 1;
  }, 'the holder to be notified');
});

t.test('the periodic check finds a token although the check of others fails', async (t) => {
  const { database, clock, link, authenticator, tokens } = await start(t);
  let endedOthers = 0;
  const others = holdOthers(authenticator, 1_000, () => endedOthers++);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const actor = await authenticator.authenticate(token);
  if (actor === undefined) throw new Error('the token is not good');
  let ended = 0;
  authenticator.onTokenEnd(actor, () => ended++);
  await database.query('delete from cnapi_tokens');
  link.isSlow = (text, values) =>
    text.includes(FULL_CHECK) && (values as string[][])[0]?.includes(`${others[0]}`) === true;
  const pass = async () => {
    await clock.advance(400);
    return ended === 1;
  };
  await clock.advance(5_000);
  await until(pass, 'the holder to be notified');
  t.ok(endedOthers < 1_000, 'not all of those could be checked');
  link.isSlow = () => false;
  await until(async () => (await pass()) && endedOthers === 1_000, 'the others to be checked');
});

t.test('a batch of the periodic check that fails is checked again at the end of the pass', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  let ended = 0;
  const others = holdOthers(authenticator, 1_000, () => ended++);
  const { uuid } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  authenticator.onTokenEnd({ name: 'a', roles: ['reader'], tokenUuid: uuid }, () => t.fail('this token is valid'));
  let failures = 0;
  link.isSlow = (text, values) =>
    text.includes(FULL_CHECK) && (values as string[][])[0]?.includes(`${others[0]}`) === true && failures++ === 0;
  await clock.advance(5_000);
  await until(async () => {
    await clock.advance(400);
    return ended === 1_000;
  }, 'all holders to be notified');
  t.equal(
    link.fullChecks.reduce((sum, count) => sum + count, 0),
    2_001,
    'in one pass: those of the batch twice, the other one once',
  );
});

t.test('a revoked token loses its connections while the check of all held tokens is unanswered', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  holdOthers(authenticator, 3_000, () => undefined);
  const { token, uuid } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const actor = await authenticator.authenticate(token);
  if (actor === undefined) throw new Error('the token is not good');
  let ended = 0;
  authenticator.onTokenEnd(actor, () => ended++);
  const answer = Promise.withResolvers<void>();
  link.backgroundHold = answer.promise;
  t.teardown(answer.resolve);
  await clock.advance(5_000);
  t.same(link.fullChecks, [1_000], 'the check has begun');
  await tokens.revoke(uuid);
  await until(async () => {
    await clock.advance(400);
    return ended === 1;
  }, 'the holder to be notified');
  t.same(link.fullChecks, [1_000], 'the check is still unanswered');
  link.backgroundHold = undefined;
  answer.resolve();
  await until(async () => {
    await clock.advance(400);
    return link.fullChecks.length === 4 && link.statements === link.answers;
  }, 'the rest of the check');
  t.equal(ended, 1, 'notified once');
});

t.test('the check of all held tokens sends smaller batches when large ones take too long', async (t) => {
  const { clock, link, authenticator } = await start(t);
  let ended = 0;
  holdOthers(authenticator, 1_000, () => ended++);
  link.isSlow = (text, values) => text.includes(FULL_CHECK) && ((values as string[][])[0]?.length ?? 0) > 300;
  await clock.advance(5_000);
  await until(async () => {
    await clock.advance(400);
    return ended === 1_000;
  }, 'all holders to be notified');
  t.same(link.fullChecks.slice(0, 3), [1_000, 500, 250]);
});

t.test('stopping does not wait for the rest of a check of all held tokens', async (t) => {
  const { clock, link, authenticator } = await start(t);
  holdOthers(authenticator, 3_000, () => undefined);
  const answer = Promise.withResolvers<void>();
  link.backgroundHold = answer.promise;
  await clock.advance(5_000);
  const stopped = authenticator.stop();
  answer.resolve();
  await stopped;
  t.same(link.fullChecks, [1_000]);
});

t.test('the last use of a token is recorded later if the database took too long', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  await authenticator.authenticate(token);
  let tries = 0;
  link.isSlow = (text) => text.includes('set last_used_at') && tries++ === 0;
  await clock.advance(20_000);
  await until(async () => tries === 1, 'the first try');
  await until(async () => {
    await clock.advance(20_000);
    return (await tokens.list({ limit: 10 }))[0]?.last_used_at !== null;
  }, 'the use to be recorded');
});

t.test('without the database, nobody signs in anew, and known callers may read what is in memory', async (t) => {
  const { clock, link, authenticator, tokens } = await start(t);
  const known = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  const unknown = await tokens.create({ name: 'b', role: 'reader', createdBy: 'the test' });
  const actor = await authenticator.authenticate(known.token);
  if (actor === undefined) throw new Error('the token is not good');
  let ended = 0;
  authenticator.onTokenEnd(actor, () => ended++);
  link.isCut = true;
  for (let each = 0; each < 10; each++) {
    await clock.advance(400);
    await new Promise((resolve) => setImmediate(resolve));
  }
  t.equal(ended, 0);
  await t.rejects(authenticator.authenticate(known.token), DatabaseUnavailableError);
  await t.rejects(authenticator.authenticate(unknown.token, { mayBeStale: true }), DatabaseUnavailableError);
  t.equal((await authenticator.authenticate(known.token, { mayBeStale: true }))?.name, 'a');
  t.match(authenticator.remembered(known.token), { tokenUuid: known.uuid });
  t.equal(authenticator.remembered(unknown.token), undefined);
});

t.test('the last use of a token is recorded once a minute', async (t) => {
  const { clock, authenticator, tokens } = await start(t);
  const { token } = await tokens.create({ name: 'a', role: 'reader', createdBy: 'the test' });
  t.equal((await tokens.list({ limit: 10 }))[0]?.last_used_at, null);
  await authenticator.authenticate(token);
  await clock.advance(20_000);
  await until(async () => (await tokens.list({ limit: 10 }))[0]?.last_used_at !== null, 'the use to be recorded');
});

t.test('names of tokens that are not revoked are unique', async (t) => {
  const { tokens } = await start(t);
  const request = { name: 'a', role: 'reader', createdBy: 'the test' } as const;
  const { uuid } = await tokens.create(request);
  await t.rejects(tokens.create(request), { code: 'TokenNameTaken', statusCode: 409 });
  await tokens.revoke(uuid);
  await tokens.revoke(uuid);
  await tokens.create(request);
  t.equal((await tokens.list({ limit: 10 })).length, 2);
  await t.rejects(tokens.revoke(SERVER), { code: 'ResourceNotFound' });
});

t.test('tokens can be listed by name and in pages, also while some are revoked', async (t) => {
  const { tokens } = await start(t);
  const make = async (name: string) => (await tokens.create({ name, role: 'reader', createdBy: 'the test' })).uuid;
  const list = async (filter: Partial<TokenFilter>) => {
    const listed = await tokens.list({ limit: 10, ...filter });
    return listed.map(({ name, revoked_at }) => (revoked_at === null ? name : `${name}, revoked`));
  };
  await tokens.revoke(await make('a'));
  const [b, , d] = [await make('b'), await make('c'), await make('d')];
  await make('a');
  t.same(await list({ name: 'a' }), ['a', 'a, revoked']);
  t.same(await list({ isOver: false, limit: 2 }), ['a', 'd']);
  t.same(await list({ isOver: true }), ['a, revoked']);
  await tokens.revoke(d);
  t.same(await list({ isOver: false, limit: 2, after: d }), ['c', 'b'], 'after one that was revoked since');
  t.same(await list({ after: b }), ['a, revoked']);
  await t.rejects(list({ after: SERVER }), { code: 'ResourceNotFound', statusCode: 404 });
});
