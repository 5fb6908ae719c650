/**
 * A zone of this version is upgraded to a later one (`later.ts`), instance by instance and then
 * agent by agent, across a change of the schema; its instances are rolled back on the database that
 * the later version has migrated: all under load, with nothing lost and no server `unknown`.
 * Between the steps there is every combination of versions of an instance and an agent; in each the
 * test tries everything that an agent does.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import { keyOf } from '../../lib/platform/postgres/migrations.ts';
import { VERSION } from '../../lib/platform/version.ts';
import { EventFollower } from '../support/event-follower.ts';
import { faultTest } from '../support/fault-test.ts';
import type { Instance, RealAgent, Zone } from '../support/fleet-harness.ts';
import { LATER, laterSteps, makeLater } from './later.ts';
import { Locks } from './locks.ts';

const teardowns: (() => unknown)[] = [];
const root = makeLater({ teardown: (work) => void teardowns.push(work) });

faultTest(
  'an upgrade and a rollback lose nothing, and all combinations of versions work',
  // An instance that starts on a busy machine beats late; no run may end because of that.
  { instances: 2, agents: 2, simulated: 6, config: { leaseMs: 30_000 } },
  async ({ t, zone, work, witness }) => {
    t.teardown(() => teardowns.map((work) => work()));
    const locks = new Locks(zone);
    locks.start(3);
    t.teardown(() => void locks.finish());
    await checkVersions(t, zone, { instances: [VERSION, VERSION], agents: [VERSION, VERSION] });
    t.same(await laterStepsIn(zone), [], 'the database has the schema of this version');

    // The tasks that a stopped agent was running may end as unknown; all others must complete.
    for (const { serverUuid } of zone.agents) work.mayFail(serverUuid, ['AgentStopped', 'AgentRestarted']);
    const replaceAgent = async ({ program, serverUuid }: RealAgent, from: string | undefined) => {
      await witness.excuse(serverUuid);
      await program.kill('SIGTERM');
      zone.useVersion(program, from);
      program.start();
      await witness.excuseEnds(serverUuid);
    };

    const [first, second] = zone.instances as [Instance, Instance];
    const [early, late] = zone.agents as [RealAgent, RealAgent];
    await replace(zone, first, root);
    await checkVersions(t, zone, { instances: [LATER, VERSION], agents: [VERSION, VERSION] });
    t.same(await laterStepsIn(zone), laterSteps.map(keyOf), 'the first later instance has changed the schema');
    const follower = await EventFollower.open(first.url, '?kind=task');
    t.teardown(() => follower.close());
    await tryAgents(t, zone, 'instances of both versions, agents of this one');
    await replace(zone, second, root);
    await tryAgents(t, zone, `instances of ${LATER}, agents of ${VERSION}`);

    await replaceAgent(early, root);
    await checkVersions(t, zone, { instances: [LATER, LATER], agents: [LATER, VERSION] });
    await tryAgents(t, zone, `instances of ${LATER}, agents of both`);

    await replace(zone, first, undefined);
    await replace(zone, second, undefined);
    await checkVersions(t, zone, { instances: [VERSION, VERSION], agents: [LATER, VERSION] });
    t.same(await laterStepsIn(zone), laterSteps.map(keyOf), 'a rollback leaves the schema as it is');
    await tryAgents(t, zone, `instances of ${VERSION} again, agents of both`);
    await replaceAgent(early, undefined);
    await replaceAgent(late, root);
    await checkVersions(t, zone, { instances: [VERSION, VERSION], agents: [VERSION, LATER] });

    await checkClaims(t, zone);
    await checkEvents(t, zone, follower);
    t.same(await locks.finish(), [], 'one client at a time held the lock, and every client got it');
    t.comment(`${locks.held} locks held`);
  },
);

async function laterStepsIn(zone: Zone): Promise<string[]> {
  const rows = await zone.sql<{ subsystem: string; number: number }>(
    'select subsystem, number from cnapi_migrations order by applied_at',
  );
  const later = new Set(laterSteps.map(keyOf));
  return rows.map(keyOf).filter((key) => later.has(key));
}

/** The changed function served instances of both versions: it is in the database. */
async function checkClaims(t: Test, zone: Zone): Promise<void> {
  // A claim that was being executed when the function changed has the earlier text.
  const rows = await zone.sql<{ claim_note: string | null; count: number }>(
    `select claim_note, count(*)::int as count from cnapi_tasks
       where claimed_at > (select max(applied_at) + interval '2 s' from cnapi_migrations) group by claim_note`,
  );
  t.same(
    rows.map(({ claim_note }) => claim_note),
    ['later'],
  );
  t.ok((rows[0]?.count ?? 0) > 0);
}

/** Replaces a program like an operator: it stops, and the other version starts in its place. */
async function replace(zone: Zone, instance: Instance, from: string | undefined): Promise<void> {
  await instance.program.kill('SIGTERM');
  zone.useVersion(instance.program, from);
  instance.program.start();
  await zone.ready(instance);
}

async function checkVersions(
  t: Test,
  zone: Zone,
  { instances, agents }: { instances: string[]; agents: string[] },
): Promise<void> {
  for (const [index, { url }] of zone.instances.entries())
    t.same(await getJson(`${url}/info`), { version: instances[index] }, `instance ${index}`);
  for (const [index, { program }] of zone.agents.entries()) {
    const said = program.log().findLast((line) => line.version !== undefined);
    t.equal(said?.version, agents[index], `agent ${index}`);
  }
}

/**
 * Tests each real agent through each instance: a task, its output, a refusal, a cancel, its
 * sysinfo.
 */
async function tryAgents(t: Test, zone: Zone, name: string): Promise<void> {
  const pairs = zone.agents.flatMap((agent) => zone.instances.map((instance) => ({ ...agent, url: instance.url })));
  const tried = pairs.map(async ({ serverUuid, url }) => {
    const run = (script: string) =>
      postJson(`${url}/servers/${serverUuid}/tasks`, { task: 'command_execute', params: { script } });
    const word = randomUUID();
    const { id } = await run(`#!/bin/sh\necho ${word}\nexit 3\n`);
    const ended = await getJson(`${url}/tasks/${id}/wait?timeout=60`);
    const events = await (await fetch(`${url}/tasks/${id}/events`)).text();
    const long = await run('#!/bin/sh\nsleep 300\n');
    await postJson(`${url}/tasks/${long.id}/cancel`, {});
    const cancelled = await getJson(`${url}/tasks/${long.id}/wait?timeout=60`);
    const refreshed = await postJson(`${url}/servers/${serverUuid}/tasks`, { task: 'server_sysinfo' });
    const fresh = await getJson(`${url}/tasks/${refreshed.id}/wait?timeout=60`);
    const { sysinfo } = await getJson(`${url}/servers/${serverUuid}`);
    return {
      status: ended.status,
      hasOutput: events.includes(word),
      cancelled: cancelled.status,
      why: JSON.stringify(cancelled.history).includes('Cancelled'),
      sysinfo: [fresh.status, sysinfo?.UUID === serverUuid],
    };
  });
  const expected = {
    status: 'complete',
    hasOutput: true,
    cancelled: 'failure',
    why: true,
    sysinfo: ['complete', true],
  };
  t.same(
    await Promise.all(tried),
    pairs.map(() => expected),
    name,
  );
}

/** The follower received the recorded ends, while instances of both versions recorded them. */
async function checkEvents(t: Test, zone: Zone, follower: EventFollower): Promise<void> {
  const ends = follower.events.filter(({ data }) => ['complete', 'failure'].includes(data.status));
  const told = ends.map(({ data }) => data.id);
  t.equal(new Set(told).size, told.length, 'each end is sent once');
  // Some tasks that ended at its first and last moments are before or after what it received.
  const times = ends.map(({ data }) => Date.parse(data.time));
  const [from, to] = [Math.min(...times) + 1_000, Math.max(...times) - 1_000];
  const ended = await zone.sql<{ id: string }>('select id from cnapi_tasks where ended_at > $1 and ended_at < $2', [
    new Date(from),
    new Date(to),
  ]);
  t.same(
    ended.map(({ id }) => id).filter((id) => !told.includes(id)),
    [],
    `all of ${ended.length} ends were sent`,
  );
  t.ok(ended.length > 0);
}

// biome-ignore lint/suspicious/noExplicitAny: what a route answers is what its test is about
type Body = any;

async function getJson(url: string): Promise<Body> {
  return parse(await fetch(url));
}

async function postJson(url: string, body: object): Promise<Body> {
  for (let tries = 1; ; tries += 1) {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    // Its agent may be between two instances at the moment.
    if (response.status !== 409 || tries === 20) return parse(response);
    await sleep(250);
  }
}

async function parse(response: Response): Promise<Body> {
  const text = await response.text();
  if (text === '' || response.status >= 400) throw new Error(`${response.url}: ${response.status} ${text}`);
  return JSON.parse(text);
}
