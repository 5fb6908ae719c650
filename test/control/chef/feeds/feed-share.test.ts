/** How many feeds one organization can follow at an instance. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { chefErrorAnswer } from '../../../../lib/control/chef/error-form.ts';
import { ChefFeeds } from '../../../../lib/control/chef/feeds/chef-feeds.ts';
import type { OrganizationJob } from '../../../../lib/control/chef/push-jobs/organization-jobs-store.ts';
import type { Requestor } from '../../../../lib/control/organizations/requestor.ts';
import type { Organization } from '../../../../lib/protocol/api/documents/organizations.ts';
import { matchLists } from '../../../support/match-lists.ts';

async function* nothing() {}

t.test('an organization has its own maximum of followers, of jobs and of itself', async (t) => {
  const feeds = new ChefFeeds({
    ...{ database: {} as never, pushJobs: { followers: { feed: nothing } } },
    events: { follow: async () => nothing() },
    clock: { wallTime: () => 0 },
    access: { hold: () => () => undefined },
    maxFollowers: 2,
  });
  const [acme, other] = ['acme', 'other'].map((name) => ({ uuid: randomUUID(), name }) as Organization);
  const follower = (organization = acme as Organization) => {
    const leaving = new AbortController();
    return {
      organization,
      requestor: { actor: {} } as Requestor,
      lastEventId: undefined,
      withContents: true,
      signal: leaving.signal,
      leaving,
    };
  };
  const job = { id: randomUUID(), endedMs: null } as OrganizationJob;
  const [one, two] = [follower(), follower()];
  feeds.followJob(job, one);
  await feeds.followOrganization(two);
  const refused = await feeds.followOrganization(follower()).catch((error: unknown) => error);
  t.throws(() => feeds.followJob(job, follower()), { code: 'TooManyRequests', statusCode: 429 });
  matchLists(t, chefErrorAnswer(refused), {
    status: 429,
    body: { error: [/^organization 'acme' already follows 2 feeds/] },
  });
  t.equal(feeds.refused, 2);
  feeds.followJob(job, follower(other));
  feeds.followJob(job, { ...follower(), requestor: { kind: 'token', actor: {} } as Requestor });
  one.leaving.abort();
  feeds.followJob(job, follower());
  t.throws(() => feeds.followJob(job, follower()), { code: 'TooManyRequests' });
});

t.test('one user, client or token cannot take all places of its organization', (t) => {
  const feeds = new ChefFeeds({
    ...{ database: {} as never, pushJobs: { followers: { feed: nothing } } },
    events: { follow: async () => nothing() },
    clock: { wallTime: () => 0 },
    access: { hold: () => () => undefined },
    maxFollowers: 4,
    maxPerCaller: 2,
  });
  const [acme, other] = ['acme', 'other'].map((name) => ({ uuid: name, name }) as Organization);
  const job = { id: randomUUID(), endedMs: null } as OrganizationJob;
  const follow = (name: string, organization = acme as Organization) => {
    const leaving = new AbortController();
    const principal = { kind: 'user' as const, name, uuid: name, publicKey: '' };
    const requestor = { name, kind: 'user', actor: { name, roles: [], principal } } as unknown as Requestor;
    feeds.followJob(job, {
      organization,
      requestor,
      lastEventId: undefined,
      withContents: true,
      signal: leaving.signal,
    });
    return leaving;
  };
  const refusal = (message: RegExp) => ({ code: 'TooManyRequests', message });
  const [first] = [follow('alice'), follow('alice')];
  t.throws(() => follow('alice'), refusal(/^'alice' of organization 'acme' already follows 2 feeds/));
  follow('alice', other);
  follow('bob');
  first.abort();
  follow('alice');
  follow('bob');
  t.throws(() => follow('carol'), refusal(/^organization 'acme' already follows 4 feeds/));
  t.end();
});

t.test('the feed of a job continues after the last event that its follower has, if the job has had it', async (t) => {
  const after: number[] = [];
  const feeds = new ChefFeeds({
    database: {} as never,
    pushJobs: {
      followers: {
        feed(_job, number) {
          after.push(number);
          return nothing();
        },
      },
    },
    events: { follow: async () => nothing() },
    clock: { wallTime: () => 0 },
    access: { hold: () => () => undefined },
  });
  const job = { id: randomUUID(), endedMs: null, lastEvent: 7, options: {}, createdAtUs: '0' } as OrganizationJob;
  const rows: [lastEventId: string, continuesAfter: number, first: string | undefined][] = [
    ['', 1, 'start'],
    ['job-1', 1, undefined],
    ['job-6', 6, undefined],
    ['job-7', 7, undefined],
    ['job-8', 1, 'start'],
  ];
  for (const [lastEventId, continuesAfter, first] of rows) {
    const names: unknown[] = [];
    const follower = {
      organization: { uuid: randomUUID(), name: 'acme' } as Organization,
      requestor: { actor: {} } as Requestor,
      withContents: true,
      signal: new AbortController().signal,
    };
    for await (const event of feeds.followJob(job, { ...follower, lastEventId }))
      names.push('name' in event ? event.name : undefined);
    t.same({ after: after.pop(), names }, { after: continuesAfter, names: first ? [first] : [] }, lastEventId);
  }
});

t.test('the feed of a follower that may not read it any more ends; another one continues', async (t) => {
  const endings: (() => void)[] = [];
  async function* untilOver(signal: AbortSignal | undefined) {
    await new Promise((resolve) => signal?.addEventListener('abort', resolve));
  }
  const feeds = new ChefFeeds({
    database: {} as never,
    pushJobs: {
      followers: { feed: (_job, _after, signal) => untilOver(signal) as AsyncIterable<never> },
    },
    events: { follow: async (_filter, _position, signal) => untilOver(signal) as AsyncIterable<never> },
    clock: { wallTime: () => 0 },
    access: {
      hold(_requestor, _organization, onEnded) {
        endings.push(onEnded);
        return () => undefined;
      },
    },
  });
  const follower = {
    organization: { uuid: randomUUID(), name: 'acme' } as Organization,
    requestor: { actor: {} } as Requestor,
    lastEventId: 'job-1',
    withContents: true,
    signal: new AbortController().signal,
  };
  const job = { id: randomUUID(), endedMs: null, lastEvent: 1 } as OrganizationJob;
  const ended: string[] = [];
  const read = async (name: string, events: AsyncIterable<unknown>) => {
    for await (const _ of events);
    ended.push(name);
  };
  const first = read('job', feeds.followJob(job, follower));
  const second = read('organization', await feeds.followOrganization({ ...follower, lastEventId: '' }));
  void read('another', feeds.followJob(job, follower));
  t.equal(endings.length, 3);
  endings[0]?.();
  await first;
  endings[1]?.();
  await second;
  t.same(ended, ['job', 'organization']);
});

t.test('followers of an organization share the read of a job that has started', async (t) => {
  const organization = { uuid: randomUUID(), name: 'acme' } as Organization;
  const id = randomUUID();
  async function* started() {
    const body = { id, status: 'voting', organization: organization.uuid };
    yield { position: '1', event: { kind: 'push_job', body, storedAt: new Date(0) } } as never;
  }
  let reads = 0;
  const job = {
    id,
    options: {},
    command: 'echo',
    runTimeoutMs: 1_000,
    requestor: 'alice',
    createdAtUs: '0',
  } as OrganizationJob;
  const feeds = new ChefFeeds({
    database: {
      async query() {
        reads += 1;
        await Promise.resolve();
        return { rows: [job] };
      },
    } as never,
    pushJobs: { followers: { feed: nothing } },
    events: { follow: async () => started() },
    clock: { wallTime: () => 0 },
    access: { hold: () => () => undefined },
  });
  const follow = async () => {
    const names: string[] = [];
    const signal = new AbortController().signal;
    const follower = {
      organization,
      requestor: { actor: {} } as Requestor,
      lastEventId: undefined,
      withContents: true,
      signal,
    };
    for await (const event of await feeds.followOrganization(follower))
      if ('name' in event && event.name !== undefined) names.push(event.name);
    return names;
  };
  t.same(await Promise.all(Array.from({ length: 50 }, follow)), Array(50).fill(['start']));
  t.equal(reads, 1);
});
