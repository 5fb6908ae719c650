/**
 * The workflow `vm-provision`: two instances as processes, one of which is killed, and an agent
 * with real containers. Another ticket of the VM holds a job at `take-ticket`.
 */
import { createHash, randomUUID } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import t from 'tap';
import { MAX_UNFINISHED_WORKFLOWS } from '../../../lib/control/workflows/workflow-store.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { Cli } from '../../cli/rig.ts';
import { busyboxLayer } from '../../support/busybox-layer.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { noRedisServer } from '../../support/redis.ts';
import { Caller } from '../../support/retrying-caller.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';

interface Made {
  job_uuid: string;
  vm_uuid: string;
  code?: string;
  message?: string;
}

const skip = lacksContainers() || cannotMount() || noRedisServer;
const internal_metadata = { 'docker:cmd': '["sh", "-c", "exec sleep 100000"]' };
const textOf = (value: unknown) => (typeof value === 'string' ? value : JSON.stringify(value));
const names = (results: WorkflowJob['chain_results']) => results.map(({ name }) => name);

t.setTimeout(FILE_TIMEOUT_MS);
t.test('jobs that create VMs', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const archive = await busyboxLayer();
  const archives = t.testdir({});
  await writeFile(join(archives, 'busybox.tar'), archive);
  const zone = await startZone(t, { instances: 2, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers', '--image-path', archives] });
  await zone.untilRunning(1);
  const server = agent.serverUuid;
  const caller = new Caller({ urls: zone.instances.map(({ url }) => url), clock: systemClock });
  const ask = <Body = Made>(method: string, path: string, body?: object) =>
    caller.ask<Body>(method, path, { body, withinMs: 60_000 });
  await until(async () => {
    const { body } = await ask<{ capacities: object }>('POST', '/capacity', {});
    return server in body.capacities || undefined;
  }, 'the report of the server');
  const payload = (uuid: string, more: object = {}) => ({
    ...{ uuid, image_uuid: IMAGE, max_physical_memory: 32, quota: 1, cpu_cap: 10, internal_metadata, ...more },
  });
  const provision = async (uuid: string, more: object = {}) => {
    const { status, body } = await ask('POST', '/vms', payload(uuid, more));
    t.equal(status, 202, JSON.stringify(body));
    return body.job_uuid;
  };
  const end = (job: string) =>
    until(async () => {
      const { body } = await ask<WorkflowJob>('GET', `/jobs/${job}/wait?timeout=20`);
      return body.finished_at === undefined ? undefined : body;
    }, `the end of ${job}`);
  const stateOf = async (uuid: string) => (await ask<{ state?: string }>('GET', `/vms/${uuid}`)).body.state;
  const nothingIsHeld = async (uuid: string) => {
    t.strictSame(await zone.sql('select 1 from cnapi_placement_claims where vm_uuid = $1', [uuid]), [], 'no claim');
    const open = `select status from cnapi_waitlist_tickets where id = $1 and status in ('queued', 'active')`;
    t.strictSame(await zone.sql(open, [uuid]), [], 'no ticket');
  };
  /** Another caller has the lock of the VM. */
  const lock = async (uuid: string) => {
    const ticket = { scope: 'vm', id: uuid, action: 'update', expires_in: 3600 };
    return (await ask<{ uuid: string }>('POST', `/servers/${server}/tickets`, ticket)).body.uuid;
  };
  const waitsForTicket = (job: string) =>
    until(async () => {
      const [ticket] = await zone.sql('select 1 from cnapi_waitlist_tickets where uuid = $1', [job]);
      return ticket;
    }, 'the job to have its ticket');

  await t.test('a VM is created where there is room, and a repeat gets its job', async (t) => {
    const uuid = randomUUID();
    const job = await provision(uuid);
    t.equal(await provision(uuid), job, 'while it is unfinished');
    const ended = await end(job);
    t.match(ended, { execution: 'succeeded', name: 'vm-provision', server_uuid: server, vm_uuid: uuid });
    t.strictSame(names(ended.chain_results), ['take-ticket', 'create-vm', 'release']);
    t.equal(await stateOf(uuid), 'running');
    await nothingIsHeld(uuid);
    t.equal(await provision(uuid), job, 'while its VM exists');
    const other = await ask('POST', '/vms', payload(uuid, { max_physical_memory: 64 }));
    t.match(other, { status: 409, body: { code: 'VmExists' } });
    t.equal((await ask('DELETE', `/servers/${server}/vms/${uuid}`)).status, 200);
    await until(async () => ((await stateOf(uuid)) === undefined ? true : undefined), 'the VM to be gone');
    t.not(await provision(uuid), job, 'then the VM is created again');
  });

  await t.test('the command line creates a VM without a server', async (t) => {
    const cli = new Cli(t, [zone.instances[0]?.url ?? '']);
    const fields = Object.entries(payload(randomUUID())).map(([name, value]) => `${name}=${textOf(value)}`);
    const ran = await cli.run('vm', 'create', ...fields);
    t.match(ran, { code: 0, stdout: /vm-provision succeeded/, stderr: /create-vm: OK after/ });
    t.match(await cli.run('vm', 'create', '--detach', ...fields), { code: 0, stdout: /^[0-9a-f-]{36}\n$/ });
  });

  await t.test('without room nothing is created, and the reason is told', async (t) => {
    const uuid = randomUUID();
    const refused = await ask('POST', '/vms', payload(uuid, { max_physical_memory: 16 * 1024 * 1024 }));
    t.match(refused, { status: 409, body: { code: 'NoAllocatableServersError' } });
    t.match(refused.body.message, /hard-filter-min-ram dropped 1 .* MiB of memory left/);
    await nothingIsHeld(uuid);
    const elsewhere = await ask('POST', '/vms', payload(uuid, { server_uuid: randomUUID() }));
    t.match(elsewhere, { status: 409, body: { code: 'NoAllocatableServersError' } });
  });

  await t.test('a request that is refused after its room was found holds none', async (t) => {
    const uuid = randomUUID();
    await zone.sql(
      `insert into cnapi_workflow_jobs (id, name, server_uuid, chain, onerror, params, request_hash)
         select gen_random_uuid(), 'server-reboot', gen_random_uuid(), '{reboot}', '{}', '{}', 'full'
           from generate_series(1, $1::int)`,
      [MAX_UNFINISHED_WORKFLOWS],
    );
    // Not by the caller that tries again after such an answer.
    const refused = await fetch(`${zone.instances[0]?.url}/vms`, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(payload(uuid)) },
    });
    t.match(await refused.json(), { code: 'TooManyWorkflowJobs' });
    await nothingIsHeld(uuid);
    await zone.sql(`delete from cnapi_workflow_jobs where request_hash = 'full'`);
  });

  await t.test('the job has its server load an image that it does not have', async (t) => {
    const image = {
      image_uuid: randomUUID(),
      image_url: `${pathToFileURL(join(archives, 'busybox.tar'))}`,
      image_digest: `sha256:${createHash('sha256').update(archive).digest('hex')}`,
    };
    const refused = await end(await provision(randomUUID(), { ...image, image_digest: `sha256:${'0'.repeat(64)}` }));
    t.equal(refused.execution, 'failed');
    t.match(refused.chain_results.at(-1), { name: 'ensure-image', error_code: 'InvalidImage', error: /digest/ });
    t.strictSame(names(refused.onerror_results), ['release']);
    const uuid = randomUUID();
    const ended = await end(await provision(uuid, image));
    t.match(ended, { execution: 'succeeded' });
    t.strictSame(names(ended.chain_results), ['take-ticket', 'ensure-image', 'create-vm', 'release']);
    t.ok(ended.chain_results[1]?.task_id, 'by a task of its agent');
    t.equal(await stateOf(uuid), 'running');
    const vm = await ask<{ image_uuid: string }>('GET', `/vms/${uuid}`);
    t.equal(vm.body.image_uuid, image.image_uuid);
    await nothingIsHeld(uuid);
  });

  await t.test('a VM that could not be created is deleted', async (t) => {
    const uuid = randomUUID();
    const ended = await end(await provision(uuid, { image_uuid: randomUUID() }));
    t.equal(ended.execution, 'failed');
    t.match(ended.chain_results[1], { name: 'create-vm', error_code: 'ImageNotFound' });
    t.strictSame(names(ended.onerror_results), ['delete-vm', 'release']);
    t.ok(ended.onerror_results.every(({ error }) => error === ''));
    t.equal(await stateOf(uuid), undefined);
    await nothingIsHeld(uuid);
  });

  await t.test('a job that is cancelled gives everything up', async (t) => {
    const uuid = randomUUID();
    const ticket = await lock(uuid);
    const job = await provision(uuid);
    await waitsForTicket(job);
    const busy = await ask('POST', '/vms', payload(uuid, { alias: 'another' }));
    t.match(busy, { status: 409, body: { code: 'VmHasWorkflowJob' } });
    await ask('PUT', `/jobs/${job}/cancel`, {});
    const ended = await end(job);
    t.match(ended, { execution: 'canceled' });
    t.strictSame(names(ended.onerror_results), ['release']);
    await ask('PUT', `/tickets/${ticket}/release`);
    await nothingIsHeld(uuid);
    t.equal(await stateOf(uuid), undefined);
  });

  await t.test('the VM of somebody else with this uuid stays', async (t) => {
    const uuid = randomUUID();
    const ticket = await lock(uuid);
    const job = await provision(uuid);
    await waitsForTicket(job);
    t.equal((await ask('POST', `/servers/${server}/vms`, payload(uuid))).status, 200);
    await until(async () => ((await stateOf(uuid)) === 'running' ? true : undefined), 'the other VM to run');
    await ask('PUT', `/tickets/${ticket}/release`);
    const ended = await end(job);
    t.equal(ended.execution, 'failed');
    t.match(ended.chain_results[1], { name: 'create-vm', error_code: 'StepFailed', error: /VM .* exists on server/ });
    t.match(ended.onerror_results[0], { name: 'delete-vm', result: 'OK', error: '' });
    t.equal(ended.onerror_results[0]?.task_id, undefined, 'no task has deleted it');
    t.equal(await stateOf(uuid), 'running');
    await nothingIsHeld(uuid);
  });

  await t.test('another instance continues when the one that carries a job out is killed', async (t) => {
    const uuid = randomUUID();
    const ticket = await lock(uuid);
    const job = await provision(uuid);
    await waitsForTicket(job);
    const [holder] = await zone.sql<{ uuid: string }>(
      'select i.cnapi_uuid as uuid from cnapi_duties d join cnapi_instances i on i.run = d.run where d.id = $1',
      [job],
    );
    const killed = zone.instances.find((one) => one.uuid === holder?.uuid);
    await killed?.program.kill();
    await ask('PUT', `/tickets/${ticket}/release`);
    const ended = await end(job);
    t.match(ended, { execution: 'succeeded' });
    t.strictSame(names(ended.chain_results), ['take-ticket', 'create-vm', 'release']);
    t.equal(await stateOf(uuid), 'running');
    await nothingIsHeld(uuid);
  });
});
