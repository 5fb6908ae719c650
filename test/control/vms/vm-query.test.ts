/** Questions about VMs that are the change of their request, and those that precede it. */
import { randomUUID } from 'node:crypto';
import t, { type Test } from 'tap';
import { z } from 'zod';
import { bind, ok, recordedInCommit } from '../../../lib/control/http/route.ts';
import { queryVm, type VmQuery } from '../../../lib/control/vms/vm-query.ts';
import { contracts } from '../../../lib/protocol/api/contract/contract.ts';
import { serverUuid, uuid } from '../../../lib/protocol/api/contract/rules.ts';
import { until } from '../../support/until.ts';
import { failed, finished } from '../http/stand-ins.ts';
import { SERVER, startApi } from '../http/support.ts';

const about = {
  path: '/servers/:server_uuid/vms/:vm_uuid/question',
  summary: 'Runs the query of the test',
  tag: 'vms',
  origin: 'own',
  params: z.object({ ...serverUuid, vm_uuid: uuid() }),
  preconditions: ['server'],
  responses: { 200: { description: 'OK', schema: z.unknown() } },
} as const;
const queryContracts = contracts({
  AskOfVm: { ...about, method: 'GET' },
  ChangeVm: { ...about, method: 'POST' },
});

/** An instance with a route for reading and one for changing; both run the query. */
async function startWith(t: Test, query: VmQuery) {
  const api = await startApi(t, {
    routes: (parts) => {
      const run = async (context: Parameters<typeof queryVm>[1]) => ok(await queryVm(parts, context, query));
      return bind(queryContracts, { AskOfVm: run, ChangeVm: recordedInCommit(run) });
    },
  });
  await api.addServer(SERVER);
  api.tasks.outcome = finished({ done: true });
  const vm = randomUUID();
  const path = `/servers/${SERVER}/vms/${vm}/question`;
  const records = async () =>
    (await api.call('GET', '/audit')).body as { action: string; object: string; status: number | null }[];
  /** The records, when all have their outcomes. */
  const recorded = () =>
    until(async () => {
      const found = await records();
      const isEnded = found.length > 0 && found.every(({ status }) => status !== null);
      return isEnded ? found.map(({ action, object }) => ({ action, object })) : undefined;
    }, 'the record with its outcome');
  return { ...api, vm, path, recorded };
}

t.test('a query is in the audit if its route changes something, whatever the name of the task', async (t) => {
  const query = { task: 'machine_destroy' as const, seconds: 5, params: {} };
  const { call, tasks, path, recorded } = await startWith(t, query);
  t.same((await call('GET', path)).body, { done: true });
  t.same((await call('POST', path)).body, { done: true });
  t.equal(tasks.ids.length, 2);
  t.same(await recorded(), [{ action: 'ChangeVm', object: tasks.ids[1] }]);
});

t.test('a change that is refused after a question names the VM, not the task of the question', async (t) => {
  const load = { task: 'machine_load' as const, seconds: 5, params: {}, precedesChange: true };
  const { call, tasks, vm, path, recorded } = await startWith(t, load);
  tasks.outcome = failed('The VM cannot be read');
  t.equal((await call('POST', path)).status, 500);
  t.equal(tasks.ids.length, 1);
  t.same(await recorded(), [{ action: 'ChangeVm', object: vm }]);
});
