/** The workflow `server-update-nics` and its task, with real instances and a real agent. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { settingsServer } from './settings-server.ts';

t.setTimeout(FILE_TIMEOUT_MS);

interface Nic {
  'MAC Address': string;
  'NIC Names': string[];
}

t.test('the NIC tags of a server', async (t) => {
  const zone = await freshZone(t);
  const [one, two] = [await zone.startApp(), await zone.startApp()];
  const { serverUuid } = await settingsServer(t, [one, two], { machine: 'simulated' });
  const path = `/servers/${serverUuid}`;
  const interfaces = async () => {
    const { body } = await two.get<{ sysinfo: { 'Network Interfaces': Record<string, Nic> } }>(path);
    return Object.values(body.sysinfo['Network Interfaces']);
  };
  const [first] = await interfaces();
  const mac = first?.['MAC Address'] ?? '';
  const namesOf = async (address: string) =>
    (await interfaces()).find((nic) => nic['MAC Address'] === address)?.['NIC Names'];
  const change = async (action: string, tags: string[], of = mac) => {
    const answer = await one.put(`${path}/nics`, { action, nics: [{ mac: of, nic_tags_provided: tags }] });
    t.equal(answer.status, 202);
    return (await two.get<WorkflowJob>(`/jobs/${(answer.body as { job_uuid: string }).job_uuid}/wait?timeout=60`)).body;
  };

  await t.test('sysinfo has the tags when the job ends', async (t) => {
    const rows: [action: string, tags: string[], after: string[]][] = [
      ['replace', ['admin'], ['admin']],
      ['update', ['external', 'admin'], ['admin', 'external']],
      ['delete', ['admin'], ['external']],
      ['replace', [], []],
    ];
    for (const [action, tags, after] of rows) {
      const job = await change(action, tags, mac.toUpperCase());
      t.match(job, { execution: 'succeeded', name: 'server-update-nics', params: { action } });
      const done = job.chain_results.map(({ name, result }) => `${name} ${result}`);
      t.strictSame(done, ['update-nics OK', 'refresh-sysinfo OK']);
      t.strictSame(await namesOf(mac), after, `${action} ${tags}`);
    }
  });

  await t.test('a job for a NIC that the server does not have fails with its address', async (t) => {
    const job = await change('update', ['admin'], '02:99:00:00:00:01');
    const message = 'This server has no NIC with the address 02:99:00:00:00:01; its sysinfo names those it has';
    t.equal(job.execution, 'failed');
    t.match(job.chain_results.at(-1), { error_code: 'NicNotFound', error: message });
  });

  await t.test('the task alone replaces the tags', async (t) => {
    const nics = [{ mac, nic_tags_provided: ['internal', 'internal'] }];
    const { body } = await one.post<{ id: string }>(`${path}/nics/update`, { nics, primary: true });
    const { body: task } = await two.get<Task>(`/tasks/${body.id}/wait?timeout=60`);
    t.match(task, { status: 'complete', task: 'server_update_nics' });
    await one.post(`${path}/sysinfo-refresh`);
    t.strictSame(await namesOf(mac), ['internal']);
  });

  await t.test('what is refused', async (t) => {
    const nic = { mac, nic_tags_provided: ['admin'] };
    const rows: [body: object, field: string, message: string][] = [
      [{ action: 'add', nics: [nic] }, 'action', "action must be 'update', 'replace', or 'delete'"],
      [{ nics: [nic] }, 'action', "action must be 'update', 'replace', or 'delete'"],
      [{ action: 'update' }, 'nics', 'value was not an array'],
      [{ action: 'update', nics: [] }, 'nics', 'value has not 1 to 64 elements'],
      [{ action: 'update', nics: [nic, 7] }, 'nics', '1: value is not an object with mac and nic_tags_provided'],
      [
        { action: 'update', nics: [{ ...nic, mac: 'eth0' }] },
        'nics',
        '0: mac is not a MAC address, such as 0a:1b:2c:3d:4e:5f',
      ],
      [{ action: 'update', nics: [{ mac }] }, 'nics', '0: nic_tags_provided is not an array'],
      [
        { action: 'update', nics: [{ mac, nic_tags_provided: ['a b'] }] },
        'nics',
        '0: a NIC tag is not 1 to 31 letters, digits and underscores',
      ],
      [{ action: 'update', nics: [nic, { ...nic, mac: mac.toUpperCase() }] }, 'nics', 'value names a NIC twice'],
    ];
    for (const [body, field, message] of rows) {
      const answer = await one.put<{ code: string; errors: object[] }>(`${path}/nics`, body);
      t.match(answer, { status: 500, body: { code: 'InvalidParameters' } }, message);
      t.strictSame(answer.body.errors, [{ field, code: 'Invalid', message }]);
    }
    t.equal((await one.put(`/servers/${randomUUID()}/nics`, { action: 'update', nics: [nic] })).status, 404);
    const { serverUuid: unset } = await settingsServer(t, [one, two], { needsSetup: true });
    t.match(await one.put(`/servers/${unset}/nics`, { action: 'update', nics: [nic] }), {
      ...{ status: 500, body: { code: 'InternalError', message: 'Server is not setup' } },
    });
  });
});
