/**
 * Each method of the client that Triton's own programs use, at least once, against three instances
 * and a server with a real agent and real VMs. The client is unmodified.
 */
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect } from 'node:net';
import t from 'tap';
import { lacksContainers } from '../support/container-machine.ts';
import { startZone } from '../support/fleet-harness.ts';
import { cannotMount } from '../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';
import { IMAGE } from '../support/vm-rig.ts';
import { dataWithImage, internal_metadata } from '../support/vms-on-linux.ts';
import type { Callback } from './caller.ts';
import { OldClient } from './old-client.ts';

const skip = lacksContainers() || cannotMount() || noRedisServer;

interface Ids {
  id?: string;
  job_uuid?: string;
  uuid?: string;
}

/** A part of it. */
interface Sysinfo {
  'Network Interfaces': Record<string, { 'MAC Address': string; 'NIC Names': string[] }>;
}

t.setTimeout(FILE_TIMEOUT_MS);
t.test('every method of the existing client has its effect', { skip }, async (t) => {
  const client = await OldClient.start(t);
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 3, agents: 0, simulated: 0 });
  const { serverUuid } = zone.addAgent(undefined, undefined, {
    ...{ data, options: ['--containers', '--needs-setup', '--allow-setup'] },
  });
  await zone.untilRunning(1);
  const urls = zone.instances.map(({ url }) => url);
  const called = new Set<string>();
  /** Each call goes to the next instance. */
  const call = <Result = Ids>(method: string, ...args: unknown[]): Promise<Callback<Result>> => {
    called.add(method);
    return client.call<Result>(urls[called.size % urls.length] ?? '', method, ...args);
  };
  const succeeds = async <Result = Ids>(method: string, ...args: unknown[]): Promise<Result> => {
    const { error, result } = await call<Result>(method, ...args);
    if (error !== null) t.fail(`${method}: ${error.message}`, { error });
    return result;
  };
  /** Returns how the task ended that the method began. */
  const endOf = async (method: string, ...args: unknown[]) => {
    const { id } = await succeeds(method, ...args);
    return await succeeds<{ status: string; task: string }>('waitTask', id, { timeout: 120 });
  };
  /** Returns how the job ended that the method began. */
  const endOfJob = async (method: string, ...args: unknown[]) => {
    const { job_uuid } = await succeeds(method, ...args);
    return await until(async () => {
      const answer = await fetch(`${urls[0]}/jobs/${job_uuid}`);
      const { execution } = (await answer.json()) as { execution: string };
      return ['queued', 'running'].includes(execution) ? undefined : execution;
    }, `the job of ${method} to end`);
  };
  const vm = randomUUID();

  await t.test('the server is set up', async (t) => {
    t.match(await succeeds('getServer', serverUuid), { setup: false });
    t.equal(await endOfJob('setupServer', serverUuid, { postsetup_script: 'true' }), 'succeeded');
    t.match(await succeeds('getServer', serverUuid), { setup: true });
  });

  await t.test('the service', async (t) => {
    t.match(await succeeds('ping'), { ready: true });
    t.same(await succeeds('listPlatforms'), {});
    const capacities = await until(async () => {
      const answer = await succeeds<{ capacities: Record<string, object> }>('capacity', [serverUuid]);
      return serverUuid in answer.capacities ? answer.capacities : undefined;
    }, 'the agent to report its disk');
    t.match(capacities[serverUuid], { cpu: Number, ram: Number, disk: Number });
  });

  await t.test('servers', async (t) => {
    t.equal((await succeeds<Ids[]>('listServers', {}))[0]?.uuid, serverUuid);
    await succeeds('updateServer', serverUuid, { comments: 'known to every method' });
    t.match(await succeeds('getServer', serverUuid), { comments: 'known to every method' });
    await succeeds('setBootParams', serverUuid, { kernel_args: { quiet: 'yes' } });
    t.match(await succeeds('getBootParams', serverUuid), { kernel_args: { quiet: 'yes' } });
    await succeeds('refreshSysinfoAndWait', serverUuid, urls[0]);
    t.equal(await succeeds('commandExecute', serverUuid, '#!/bin/sh\necho done'), 'done');
  });

  await t.test('workflow jobs', async (t) => {
    const { sysinfo } = await succeeds<{ sysinfo: Sysinfo }>('getServer', serverUuid);
    const [[name = '', nic] = []] = Object.entries(sysinfo['Network Interfaces']);
    const nics = [{ mac: nic?.['MAC Address'], nic_tags_provided: ['external'] }];
    t.equal(await endOfJob('updateNics', serverUuid, { action: 'update', nics }), 'succeeded');
    const after = (await succeeds<{ sysinfo: Sysinfo }>('getServer', serverUuid)).sysinfo['Network Interfaces'];
    t.strictSame(after[name]?.['NIC Names'], ['external']);
    // No test reboots its host.
    t.match(await call('rebootServer', serverUuid), { error: { message: /started without --allow-reboot/ } });
  });

  await t.test('VMs', async (t) => {
    t.match(await endOf('ensureImage', serverUuid, IMAGE), { status: 'complete' });
    const size = { max_physical_memory: 64, brand: 'oci', alias: 'web' };
    const created = await endOf('createVm', serverUuid, { uuid: vm, image_uuid: IMAGE, internal_metadata, ...size });
    t.match(created, { status: 'complete', task: 'machine_create' });
    t.match(await succeeds('getVm', serverUuid, vm), { uuid: vm, state: 'running', alias: 'web' });
    for (const method of ['rebootVm', 'stopVm', 'startVm']) {
      t.match(await endOf(method, serverUuid, vm), { status: 'complete' }, method);
    }
  });

  await t.test('programs and files of a VM', async (t) => {
    const calls: [method: string, params: object][] = [
      ['dockerExec', { command: { Cmd: ['true'] } }],
      ['dockerCopy', { path: '/bin', mode: 'read' }],
      ['dockerStats', { payload: { stream: true } }],
    ];
    for (const [method, params] of calls) {
      const socket = connect(await succeeds<{ host: string; port: number }>(method, serverUuid, vm, params));
      t.teardown(() => socket.destroy());
      await once(socket, 'data');
      t.pass(`${method}: bytes arrived`);
    }
    t.match(await call('dockerBuild', serverUuid, vm, { payload: {} }), { error: { statusCode: 501 } });
    t.match(await endOf('deleteVm', serverUuid, vm), { status: 'complete' });
  });

  await t.test('agents, which this one does not let be installed', async (t) => {
    t.match(await endOf('installAgent', serverUuid, { image_uuid: randomUUID() }), { status: 'failure' });
    t.match(await endOf('uninstallAgents', serverUuid, { agents: ['vm-agent'] }), { status: 'failure' });
  });

  await t.test('tasks and tickets', async (t) => {
    const { id } = await succeeds('ensureImage', serverUuid, IMAGE);
    t.match(await succeeds('pollTask', id, {}), { status: 'complete' });
    t.match(await succeeds('getTask', id), { status: 'complete' });
    const ticket = { scope: 'vm', id: vm, action: 'provision', expires_at: '3000' };
    const { uuid } = await succeeds('waitlistTicketCreate', serverUuid, ticket);
    await succeeds('waitlistTicketWait', uuid);
    t.match(await succeeds('waitlistTicketGet', uuid), { status: 'active' });
    await succeeds('waitlistTicketRelease', uuid);
    t.match(await succeeds('waitlistTicketGet', uuid), { status: 'finished' });
  });

  t.strictSame((await client.methods()).sort(), [...called].sort(), 'there are no other methods');
  t.same(client.complaints, [], 'the client printed no error and no warning of Node');
});
