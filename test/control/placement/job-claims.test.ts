/**
 * Claims that a workflow job holds: from the creation of the job, which takes over the claim, to
 * its end, however long that takes. On real Postgres.
 */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { claimDuties } from '../../../lib/control/duty/duty-store.ts';
import { readCandidates } from '../../../lib/control/placement/candidate-store.ts';
import { claimRoom, deleteExpiredClaims, releaseRoom } from '../../../lib/control/placement/claim-store.ts';
import { migrations } from '../../../lib/control/subsystem-list.ts';
import { beginWorkflowStep, moveWorkflowJob } from '../../../lib/control/workflows/step-store.ts';
import { createWorkflowJob, WORKFLOW_DUTY } from '../../../lib/control/workflows/workflow-store.ts';
import type { Queryable } from '../../../lib/platform/postgres/database.ts';
import { runBehindLock } from '../../support/lock-waits.ts';
import { freshDatabase } from '../../support/postgres.ts';
import { liveRun } from '../legacy/support/legacy-seats.ts';
import { placementZone } from './support/placement-zone.ts';

const OWNER = randomUUID();
const size = { ram: 1024, disk: 0, cpu: 0 };
const FIRST = { phase: 'chain', step: 0, tries: 0 } as const;
const NOT_HELD = { code: 'NoAllocatableServersError', statusCode: 409, message: /is not held any more/ };

/** One server with room for one VM, and another one. */
async function world(t: Test) {
  const fresh = await freshDatabase(t, { migrations });
  const { database } = fresh;
  const zone = await placementZone(t, database);
  const [server, other] = [await zone.newServer(), await zone.newServer()];
  const limits = { vms: undefined, ram: 1024, disk: undefined, cpu: undefined };
  const claim = (vmUuid: string, more: { serverUuid?: string; ram?: number; replacedServer?: string } = {}) =>
    claimRoom(database, {
      ...{ ...size, vmUuid, ownerUuid: OWNER, serverUuid: server, limits: { ...limits, ram: more.ram ?? 1024 } },
      ...{ replacedServer: undefined, claimMs: 600_000, caller: undefined, maxClaims: 1_000, ...more },
    });
  const job = async (vmUuid: string, { serverUuid = server, database: by = database as Queryable } = {}) => {
    const id = randomUUID();
    const creation = await createWorkflowJob(by, {
      ...{ id, name: 'vm-provision', serverUuid, vmUuid, chain: ['create-vm'], onerror: [], params: {} },
      ...{ maskedParams: undefined, requestHash: 'hash', requestId: undefined, actor: undefined },
    });
    return { id, creation };
  };
  const loaded = async () => {
    const question = { vmUuid: '', ownerUuid: OWNER, namedVms: [] };
    return (await readCandidates(database, question, [server]))[0]?.load.vms;
  };
  /** From now on the database's clock is a day ahead. */
  const aDayPasses = () =>
    database.query(
      `create or replace function cnapi_now() returns timestamptz language sql stable
         as $$ select clock_timestamp() + interval '1 day' $$`,
    );
  const heldDuty = async ({ id }: { id: string }) => {
    const duties = await claimDuties(database, await liveRun(database), { kinds: [WORKFLOW_DUTY], limit: 10 });
    const duty = duties.find((one) => one.id === id);
    if (duty === undefined) throw new Error(`the duty of job ${id} is not free`);
    return duty;
  };
  const begin = async (of: { id: string }) =>
    beginWorkflowStep(database, await heldDuty(of), {
      ...{ at: FIRST, facts: {} },
      task: {
        ...{ id: randomUUID(), name: 'nop', params: {}, maskedParams: undefined },
        ...{ timeoutMs: 60_000, idempotent: true },
      },
    });
  const end = async (of: { id: string }) =>
    moveWorkflowJob(database, await heldDuty(of), {
      ...{ from: FIRST, to: { name: 'ended', execution: 'canceled' }, entry: undefined },
    });
  return { ...fresh, ...zone, server, other, claim, job, loaded, aDayPasses, begin, end };
}

t.test('the room of a job does not expire: nobody gets it before the job has ended', async (t) => {
  const { claim, job, loaded, aDayPasses, database, begin } = await world(t);
  const vmUuid = randomUUID();
  await claim(vmUuid);
  const made = await job(vmUuid);
  t.equal(made.creation, 'created');
  await aDayPasses();
  t.equal(await deleteExpiredClaims(database, 100), 0);
  t.equal(await loaded(), 1);
  t.match(await claim(randomUUID()), { outcome: 'full' });
  t.ok(await begin(made), 'the task that creates the VM begins');
});

t.test('a job is created only while the claim of its room counts', async (t) => {
  const { claim, job, aDayPasses, server, other, database } = await world(t);
  const vmUuid = randomUUID();
  await t.rejects(job(vmUuid), NOT_HELD, 'without a claim');
  await claim(vmUuid);
  await t.rejects(job(vmUuid, { serverUuid: other }), NOT_HELD, 'with the claim of another server');
  await aDayPasses();
  await t.rejects(job(vmUuid), NOT_HELD, 'with a claim that has expired');
  t.match(await claim(randomUUID()), { serverUuid: server, outcome: 'claimed' });
  const { rows } = await database.query('select 1 from cnapi_workflow_jobs union all select 1 from cnapi_duties');
  t.strictSame(rows, [], 'nothing was created');
});

t.test('an allocation waits for a job that takes over a claim of its server, and counts that', async (t) => {
  const { claim, server, other, url, aDayPasses } = await world(t);
  const vmUuid = randomUUID();
  await claim(vmUuid);
  // The job was created a moment before its claim expires, and is not committed when that is past.
  const creation = `insert into cnapi_workflow_jobs (id, name, server_uuid, vm_uuid, chain, onerror, params, request_hash)
    values (gen_random_uuid(), 'vm-provision', '${server}', '${vmUuid}', '{create-vm}', '{}', '{}', 'hash')`;
  const [onServer] = await runBehindLock<[Awaited<ReturnType<typeof claim>>]>(url, creation, [
    {
      name: 'claim',
      async run() {
        await aDayPasses();
        t.match(await claim(randomUUID(), { serverUuid: other }), { outcome: 'claimed' }, 'others do not wait');
        return claim(randomUUID());
      },
    },
  ]);
  t.match(onServer, { outcome: 'full' });
});

t.test('nothing but its job changes a claim', async (t) => {
  const { claim, claims, job, server, other, database, report } = await world(t);
  const vmUuid = randomUUID();
  await claim(vmUuid);
  await job(vmUuid);
  t.equal((await job(vmUuid)).creation, 'busy', 'for another job');
  t.match(await claim(vmUuid), { serverUuid: server, outcome: 'known' }, 'an equal request');
  t.match(await claim(vmUuid, { serverUuid: other }), { serverUuid: server, outcome: 'known' });
  t.match(await claim(vmUuid, { ram: 512 }), { serverUuid: server, outcome: 'creating' }, 'another size');
  const moved = { serverUuid: other, replacedServer: server };
  t.match(await claim(vmUuid, moved), { serverUuid: server, outcome: 'creating' }, 'another server');
  await releaseRoom(database, { vmUuid, serverUuid: server });
  await report(server, { [vmUuid]: { uuid: vmUuid, max_physical_memory: 1024, state: 'running' } });
  await report(server, {});
  t.strictSame(await claims(), [{ server_uuid: server, vm_uuid: vmUuid, ram: 1024 }]);
});

t.test('no task of a job begins without the room', async (t) => {
  const { claim, job, begin, database } = await world(t);
  const vmUuid = randomUUID();
  await claim(vmUuid);
  const made = await job(vmUuid);
  await database.query('delete from cnapi_placement_claims');
  await t.rejects(begin(made), { hint: 'NoAllocatableServersError', message: /is not held any more/ });
  const { rows } = await database.query('select 1 from cnapi_tasks');
  t.strictSame(rows, []);
});

t.test('the end of a job ends its claim, and no other', async (t) => {
  const { claim, claims, job, end, loaded, database, server } = await world(t);
  const [first, second] = [randomUUID(), randomUUID()];
  await claim(first);
  t.ok(await end(await job(first)));
  t.strictSame(await claims(), []);
  // The next job of the VM has claimed the room for itself, and a third one has ended meanwhile.
  await claim(first);
  const { id } = await job(first);
  await database.query('update cnapi_placement_claims set job = gen_random_uuid()');
  await database.query(`update cnapi_workflow_jobs set execution = 'failed', ended_at = now() where id = $1`, [id]);
  t.equal(await loaded(), 1, 'the claim of another job');
  await database.query('delete from cnapi_placement_claims');
  await claim(second);
  const ofSecond = await job(second);
  await database.query(`insert into cnapi_vms (_key, _value, _etag, _mtime) values ($1, $2, 'e', now())`, [
    second,
    JSON.stringify({ uuid: second, server_uuid: server, state: 'provisioning', control: { unreported: true } }),
  ]);
  t.ok(await end(ofSecond));
  t.equal(await loaded(), 1, 'a VM that is being created counts by its claim');
  await database.query('delete from cnapi_vms where _key = $1', [second]);
  t.strictSame(await claims(), [], 'until it is gone');
});
