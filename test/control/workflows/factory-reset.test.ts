/**
 * The workflow `server-factory-reset`, with real instances, a real agent, and a program that only
 * leaves a file.
 */
import { randomUUID } from 'node:crypto';
import { access, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import type { TaskContext } from '../../../lib/agent/runner/task-definition.ts';
import { serverFactoryReset } from '../../../lib/agent/settings/tasks/server-factory-reset.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { settingsServer } from './settings-server.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('servers are reset by jobs', async (t) => {
  const zone = await freshZone(t);
  const [one, two] = [await zone.startApp(), await zone.startApp()];
  const folder = t.testdir();
  const reset = async (serverUuid: string) => {
    const answer = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/factory-reset`, { origin: 'test' });
    t.equal(answer.status, 202);
    return (await two.get<WorkflowJob>(`/jobs/${answer.body.job_uuid}/wait?timeout=60`)).body;
  };
  const ends = (results: WorkflowJob['chain_results']) =>
    results.map(({ name, result, error_code }) => `${name} ${error_code ?? result}`);
  const program = async (name: string, text: string) => {
    const path = join(folder, name);
    await writeFile(path, `#!/bin/sh\n${text}\n`, { mode: 0o700 });
    return path;
  };
  /** Whether the agent takes tasks. */
  const takesTasks = async (serverUuid: string) => {
    const { body } = await one.post<{ id: string }>(`/servers/${serverUuid}/nop`);
    return (await one.get<{ status: string }>(`/tasks/${body.id}/wait?timeout=60`)).body.status;
  };

  await t.test('the program of the agent runs, and the server is not set up any more', async (t) => {
    const mark = join(folder, 'reset');
    const resetProgram = await program('resets it', `echo "$# $PWD" > '${mark}'`);
    const { serverUuid, settings, shown } = await settingsServer(t, [one, two], { resetProgram });
    const sysinfo = { 'Network Interfaces': { eth0: { 'MAC Address': '02:00:00:00:00:01' } } };
    await settings.changeNics('update', [{ mac: '02:00:00:00:00:01', nic_tags_provided: ['admin'] }], sysinfo);
    const job = await reset(serverUuid);
    const steps = ['mark-not-set-up OK', 'begin-drain OK', 'await-idle OK', 'factory-reset OK', 'mark-reset OK'];
    t.strictSame(ends(job.chain_results), steps);
    t.equal(job.execution, 'succeeded');
    t.match(await readFile(mark, 'utf8'), /^0 /);
    const after = await shown(({ sysinfo: known }) => (known as { Setup: string }).Setup === 'false');
    t.equal(after.setup, false);
    t.strictSame(
      settings.complete(sysinfo)['Network Interfaces'],
      sysinfo['Network Interfaces'],
      'no NIC tags are left',
    );
    t.equal(await takesTasks(serverUuid), 'complete', 'the agent is not paused any more');
    const again = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/setup`);
    t.match(await two.get(`/jobs/${again.body.job_uuid}/wait?timeout=60`), { body: { execution: 'succeeded' } });
    t.match(await shown(() => true), { setup: true });
  });

  await t.test('an agent whose configuration names no program stays set up, and takes tasks again', async (t) => {
    const { serverUuid, shown } = await settingsServer(t, [one, two]);
    const job = await reset(serverUuid);
    t.equal(job.execution, 'failed');
    t.match(job.chain_results.at(-1), { error_code: 'FactoryResetNotAllowed', error: /without --factory-reset/ });
    t.strictSame(ends(job.onerror_results), ['end-drain OK', 'restore-set-up OK', 'refresh-sysinfo OK']);
    t.match(await shown(() => true), { setup: true });
    t.equal(await takesTasks(serverUuid), 'complete');
  });

  await t.test(
    'an agent that reports that it allows no reset is refused it before its server is drained',
    async (t) => {
      const { serverUuid, shown } = await settingsServer(t, [one, two], { allows: ['reboot', 'setup'] });
      const message = `The agent of server ${serverUuid} was started without --factory-reset, which names the program`;
      const refused = await one.put(`/servers/${serverUuid}/factory-reset`);
      t.match(refused, { status: 409, body: { code: 'FactoryResetNotAllowed', message } });
      t.same((await one.get(`/jobs?server_uuid=${serverUuid}`)).body, []);
      t.same((await one.get(`/servers/${serverUuid}/task-history`)).body, []);
      t.match(await shown(() => true), { setup: true });
    },
  );

  await t.test('a server whose agent is paused and refuses the reset stays set up', async (t) => {
    const { serverUuid, shown } = await settingsServer(t, [one, two]);
    t.equal((await one.post(`/servers/${serverUuid}/cn-agent/pause`)).status, 204);
    const job = await reset(serverUuid);
    t.match(job.chain_results.at(-1), { error_code: 'FactoryResetNotAllowed' });
    t.strictSame(ends(job.onerror_results), ['end-drain OK', 'restore-set-up OK', 'refresh-sysinfo OK']);
    t.match(await shown(() => true), { setup: true });
    t.equal(await takesTasks(serverUuid), 'failure', 'the pause of the operator is left');
  });

  await t.test('an agent that was resumed while its server drained is not reset', async (t) => {
    const mark = join(folder, 'not reset');
    const resetProgram = await program('must not run', `touch '${mark}'`);
    const { serverUuid, shown } = await settingsServer(t, [one, two], { resetProgram });
    const sleep = await one.post<{ id: string }>(`/servers/${serverUuid}/tasks`, {
      ...{ task: 'sleep', params: { timeout: 3_600_000 } },
    });
    const answer = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/factory-reset`);
    const job = `/jobs/${answer.body.job_uuid}`;
    await until(async () => {
      const { body } = await one.get<WorkflowJob>(job);
      return body.waiting_for?.step === 'await-idle';
    }, 'the drain');
    // A sysinfo that changes while the server drains says that it is set up, and yet no VM is
    // placed there.
    const { sysinfo } = (await shown(() => true)) as { sysinfo: object };
    await one.post(`/servers/${serverUuid}/sysinfo`, { sysinfo: { ...sysinfo, Setup: 'true', Changed: 'yes' } });
    t.match(await shown((server) => 'Changed' in (server.sysinfo as object)), { setup: false });
    await one.post(`/servers/${serverUuid}/cn-agent/resume`);
    await one.post(`/tasks/${sleep.body.id}/cancel`);
    const { body: ended } = await two.get<WorkflowJob>(`${job}/wait?timeout=60`);
    t.match(ended.chain_results.at(-1), { name: 'factory-reset', error_code: 'NotDrained' });
    t.match(await shown(() => true), { setup: true });
    await t.rejects(access(mark), { code: 'ENOENT' });
  });

  await t.test('an agent whose server is being reset is not resumed before its job is canceled', async (t) => {
    const mark = join(folder, 'resetting');
    const resetProgram = await program('waits', `touch '${mark}'; exec sleep 1000`);
    const { serverUuid } = await settingsServer(t, [one, two], { resetProgram });
    const { body } = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/factory-reset`);
    await until(
      () =>
        access(mark).then(
          () => true,
          () => undefined,
        ),
      'the program to run',
    );
    const resume = () => one.post<{ message: string }>(`/servers/${serverUuid}/cn-agent/resume`);
    const refused = await resume();
    t.equal(refused.status, 500);
    t.match(refused.body.message, `cnapi workflow cancel ${body.job_uuid}`);
    t.equal(await takesTasks(serverUuid), 'failure', 'it is still paused');
    await one.put(`/jobs/${body.job_uuid}/cancel`, {});
    t.match(await two.get(`/jobs/${body.job_uuid}/wait?timeout=60`), { body: { execution: 'canceled' } });
    t.equal(await takesTasks(serverUuid), 'complete');
  });

  await t.test('a job goes on until it has undone what it wrote of its server, however often that fails', async (t) => {
    const { serverUuid, shown } = await settingsServer(t, [one, two]);
    const sql = (text: string) => zone.database.query<{ failures: number }>(text);
    await sql(`
      create function refuse() returns trigger language plpgsql as $$ begin raise exception 'no'; end $$;
      create trigger refuse before update on cnapi_servers for each row
        when (old._value -> 'resetting' is not null and new._value -> 'resetting' is null) execute function refuse()`);
    const { body } = await one.put<{ job_uuid: string }>(`/servers/${serverUuid}/factory-reset`);
    const job = body.job_uuid;
    await until(async () => {
      const { rows } = await sql(`select failures from cnapi_duties where id = '${job}' and failures > 1`);
      const { execution } = (await one.get<WorkflowJob>(`/jobs/${job}`)).body;
      return rows.length > 0 || execution === 'failed' || undefined;
    }, 'the undo to fail twice');
    t.match((await one.get(`/jobs/${job}`)).body, { execution: 'running', waiting_for: { step: 'restore-set-up' } });
    await sql('drop trigger refuse on cnapi_servers');
    t.match((await two.get(`/jobs/${job}/wait?timeout=60`)).body, { execution: 'failed' });
    t.match(await shown(() => true), { setup: true });
  });

  await t.test('a server whose reset has failed is not set up, because nobody knows what is left of it', async (t) => {
    const resetProgram = await program('fails', 'echo the disk is busy >&2; exit 4');
    const { serverUuid, shown } = await settingsServer(t, [one, two], { resetProgram });
    const job = await reset(serverUuid);
    const error = `The program ${resetProgram} failed with exit code 4: the disk is busy`;
    t.match(job, { execution: 'failed' });
    t.match(job.chain_results.at(-1), { error_code: 'FactoryResetFailed', error });
    t.match(await shown(() => true), { setup: false });
  });

  await t.test('a server with VMs is refused with a text, as in Triton', async (t) => {
    const legacy = randomUUID();
    const vms = Object.fromEntries([randomUUID(), randomUUID()].map((uuid) => [uuid, { uuid }]));
    await one.post(`/servers/${legacy}/sysinfo`, { sysinfo: { UUID: legacy, Hostname: 'legacy' } });
    await one.post(`/servers/${legacy}/events/heartbeat`, {});
    await one.post(`/servers/${legacy}/events/status`, { vms });
    const refused = await one.put(`/servers/${legacy}/factory-reset`);
    t.strictSame([refused.status, refused.body], [409, 'Server may not be reset because it has 2 vms']);
  });
});

t.test('an agent with VMs is not reset, whatever its instance knows', async (t) => {
  let isReset = false;
  const settings = {
    async reset() {
      isReset = true;
    },
  };
  const setupRules = { allowsSetup: false, resetProgram: '/bin/true' };
  const drained = { confirmDrain: async () => undefined, changePause: async () => undefined };
  const context = { vms: { list: () => [{}] }, settings, setupRules, ...drained } as unknown as TaskContext;
  await t.rejects(serverFactoryReset.run({ drain: randomUUID() }, context), {
    ...{ code: 'ServerHasVms', message: 'This server has VMs (1); delete them before its reset' },
  });
  t.notOk(isReset);
});
