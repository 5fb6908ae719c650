/** The workflow `server-setup`, with real instances and a real agent. */
import { access, writeFile } from 'node:fs/promises';
import { hostname as ownHostname } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { until } from '../../support/until.ts';
import { settingsServer } from './settings-server.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('servers are set up by jobs', async (t) => {
  const zone = await freshZone(t);
  const records: Record<string, unknown>[] = [];
  const log = recordingLogger(records);
  const [one, two] = [await zone.startApp({}, { log }), await zone.startApp({}, { log })];
  const folder = t.testdir();
  const begin = async (serverUuid: string, body: object) => {
    const answer = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/setup`, body);
    t.equal(answer.status, 202);
    return answer.body.job_uuid;
  };
  const endOf = async (uuid: string) => (await two.get<WorkflowJob>(`/jobs/${uuid}/wait?timeout=60`)).body;
  const setUp = async (serverUuid: string, body: object) => endOf(await begin(serverUuid, body));
  const ends = ({ chain_results, onerror_results }: WorkflowJob) =>
    [...chain_results, ...onerror_results].map(({ name, result, error_code }) => `${name} ${error_code ?? result}`);

  await t.test('the machine is named, the script runs, and then the server is set up', async (t) => {
    const { serverUuid, names, shown } = await settingsServer(t, [one, two], { needsSetup: true, allowSetup: true });
    await shown(({ setup }) => setup === false);
    const script = `#!/bin/sh\nuntil [ -e '${join(folder, 'go')}' ]; do sleep 0.05; done\necho done\n`;
    const uuid = await begin(serverUuid, { hostname: 'web-7', postsetup_script: script });
    t.match(await shown(({ setting_up }) => setting_up === true), { setup: false });
    await until(async () => names.length > 0, 'the machine to be named');
    t.equal((await one.put(`/servers/${serverUuid}/nics`, { action: 'update', nics: [] })).status, 500);
    await writeFile(join(folder, 'go'), '');
    const job = await endOf(uuid);
    t.strictSame(ends(job), ['mark-setting-up OK', 'setup OK', 'refresh-sysinfo OK', 'mark-set-up OK']);
    t.equal(job.execution, 'succeeded');
    t.match(await shown(() => true), { setup: true, setting_up: false, hostname: 'web-7', sysinfo: { Setup: 'true' } });
    t.strictSame(names, ['web-7']);
    const task = await one.get<Task>(`/tasks/${job.chain_results[1]?.task_id}`);
    t.match(task.body.history[0]?.event, { exitCode: 0, stdout: 'done\n' });
    t.equal((await one.put(`/servers/${serverUuid}/setup`, { hostname: 'web-8' })).status, 204, 'set up already');
    t.match(await shown(() => true), { hostname: 'web-7' });
  });

  await t.test('a script that fails fails the job, and the set-up can be repeated', async (t) => {
    const { serverUuid, shown } = await settingsServer(t, [one, two], { needsSetup: true, allowSetup: true });
    const failed = await setUp(serverUuid, { postsetup_script: 'echo no such package >&2; exit 3' });
    t.strictSame(ends(failed), ['mark-setting-up OK', 'setup SetupScriptFailed', 'mark-not-setting-up OK']);
    t.equal(failed.execution, 'failed');
    t.equal(failed.chain_results.at(-1)?.error, 'The post-setup script failed with exit code 3: no such package');
    const { workflow_job, task, code } = records.find(({ msg }) => msg === 'workflow job: a step failed') ?? {};
    t.strictSame([workflow_job, task, code], [failed.uuid, failed.chain_results[1]?.task_id, 'SetupScriptFailed']);
    t.notMatch(JSON.stringify(records), 'no such package', 'the log does not have what the script has said');
    t.match(await shown(() => true), { setup: false, setting_up: false });
    t.equal((await setUp(serverUuid, { postsetup_script: 'true' })).execution, 'succeeded');
    t.match(await shown(() => true), { setup: true });
  });

  await t.test('a job that is cancelled ends its script', async (t) => {
    const { serverUuid, shown } = await settingsServer(t, [one, two], { needsSetup: true, allowSetup: true });
    const began = join(folder, 'began');
    const uuid = await begin(serverUuid, { postsetup_script: `touch '${began}'; exec sleep 3600` });
    await until(
      () =>
        access(began).then(
          () => true,
          () => undefined,
        ),
      'the script to begin',
    );
    await one.put(`/jobs/${uuid}/cancel`);
    const job = await endOf(uuid);
    t.equal(job.execution, 'canceled');
    t.strictSame(ends(job), ['mark-setting-up OK', 'setup Cancelled', 'mark-not-setting-up OK']);
    t.match(await shown(() => true), { setup: false, setting_up: false });
  });

  await t.test('what an agent without --allow-setup does, and what no agent does', async (t) => {
    const { serverUuid, names, shown } = await settingsServer(t, [one, two], { needsSetup: true });
    const { hostname } = await shown(() => true);
    const rows: [body: object, code: string, message: RegExp][] = [
      [{ hostname: 'web-9' }, 'SetupNotAllowed', /without --allow-setup/],
      [{ postsetup_script: 'true' }, 'SetupNotAllowed', /without --allow-setup/],
      [{ disk_layout: 'raidz2' }, 'DiskLayoutNotSupported', /lays out no disks.* leave disk_layout out/],
      [{ encryption_enabled: 'true' }, 'DiskLayoutNotSupported', /leave encryption_enabled out/],
      [{ nics: [{ mac: '02:99:00:00:00:01', nic_tags_provided: [] }] }, 'NicNotFound', /no NIC with the address/],
    ];
    for (const [body, code, message] of rows) {
      const job = await setUp(serverUuid, body);
      t.match(job.chain_results.at(-1), { name: 'setup', error_code: code, error: message });
    }
    t.strictSame(names, []);
    t.match(await shown(() => true), { hostname, setting_up: false }, 'no instance says another name than the machine');
    const task = { task: 'server_setup', params: { disk_layout: { toString: 1 } } };
    const { body: odd } = await one.post<{ id: string }>(`/servers/${serverUuid}/tasks`, task);
    const { body: ended } = await two.get<Task>(`/tasks/${odd.id}/wait?timeout=60`);
    t.match(ended.history[0]?.event, { error: { code: 'InvalidParameters', message: /disk_layout/ } });
    const harmless = { hostname: ownHostname(), disk_spares: 0, disk_cache: 'false', encryption_enabled: 'false' };
    t.equal((await setUp(serverUuid, harmless)).execution, 'succeeded', 'it needs no permission for its own name');
  });

  await t.test('an agent that reports that it allows no set-up is asked for none', async (t) => {
    const { serverUuid } = await settingsServer(t, [one, two], { needsSetup: true, allows: [] });
    for (const body of [{ hostname: 'web-9' }, { postsetup_script: 'true' }])
      t.match(await one.put(`/servers/${serverUuid}/setup`, body), {
        ...{ status: 409, body: { code: 'SetupNotAllowed', message: /^The agent of server .* without --allow-setup/ } },
      });
    t.equal((await setUp(serverUuid, { hostname: ownHostname() })).execution, 'succeeded', 'it has that name');
  });

  await t.test('what the route refuses', async (t) => {
    const { serverUuid } = await settingsServer(t, [one, two], { needsSetup: true });
    const rows: [body: object, status: number, code: string][] = [
      [{ origin: 'test' }, 409, 'InvalidArgument'],
      [{ creator_uuid: 'test' }, 409, 'InvalidArgument'],
      [{ disk_layout: 'raid5' }, 409, 'InvalidArgument'],
      [{ disk_spares: -1 }, 500, 'InvalidParameters'],
      [{ disk_cache: 'maybe' }, 500, 'InvalidParameters'],
      [{ hostname: 'a b' }, 500, 'InvalidParameters'],
      [{ postsetup_script: '' }, 500, 'InvalidParameters'],
      [{ nics: 7 }, 500, 'InvalidParameters'],
      [{ secret_params: ['/server_uuid'] }, 400, 'InvalidParameters'],
      [{ postsetup_script: 'true', secret_params: ['/postsetup_script', '/server_uuid'] }, 400, 'InvalidParameters'],
    ];
    for (const [body, status, code] of rows)
      t.match(await one.put(`/servers/${serverUuid}/setup`, body), { status, body: { code } }, JSON.stringify(body));
  });

  await t.test('a secret script is shown nowhere', async (t) => {
    const { serverUuid } = await settingsServer(t, [one, two], { needsSetup: true, allowSetup: true });
    const secret = { postsetup_script: ': a-password', secret_params: ['/postsetup_script'] };
    const job = await setUp(serverUuid, { ...secret, hostname: 'web-10' });
    t.match(job, { execution: 'succeeded', params: { hostname: 'web-10', postsetup_script: '(secret)' } });
    const task = await one.get(`/tasks/${job.chain_results[1]?.task_id}`);
    t.notMatch(JSON.stringify([job, task.body]), /a-password/);
  });
});
