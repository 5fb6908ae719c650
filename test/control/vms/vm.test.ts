import t from 'tap';
import { shownVm, vmOfServer, vmWithServer } from '../../../lib/control/vms/vm.ts';
import { vmSummary } from '../../../lib/protocol/vms.ts';

const vm = { uuid: 'u', server_uuid: 's', state: 'running', alias: 'web', control: { claim: 'c' } };

t.test('what only the control plane needs is not shown', async (t) => {
  t.same(shownVm(vm), { uuid: 'u', server_uuid: 's', state: 'running', alias: 'web' });
  t.same(vmOfServer({ ...vm, quota: 5 }), { uuid: 'u', state: 'running', quota: 5 });
});

t.test('a field that is not listed is hidden, whatever its name', async (t) => {
  const hidden = ['customer_metadata', 'internal_metadata', 'tags', 'env', 'cmd', 'vnc', 'a_field_of_next_year'];
  const whole = { ...vm, ...Object.fromEntries(hidden.map((name) => [name, 'secret'])) };
  t.same(shownVm(whole), shownVm(vm));
});

t.test('all that agents of this project report is shown', async (t) => {
  const fields = [...Object.keys(vmSummary.shape), 'server_uuid'];
  const whole = Object.fromEntries(fields.map((name) => [name, name]));
  t.same(shownVm(whole as unknown as typeof vm), whole);
});

t.test('a VM is shown with the status of its server, and since when nothing was heard of it', async (t) => {
  const reportStoredAt = new Date('2030-01-01T00:00:00Z');
  t.same(vmWithServer(vm, { status: 'unknown', reportStoredAt }), {
    ...shownVm(vm),
    server_status: 'unknown',
    as_of: '2030-01-01T00:00:00.000Z',
  });
  t.match(vmWithServer(vm, { status: 'running', reportStoredAt }), { server_status: 'running' });
  t.same(vmWithServer(vm, undefined), { ...shownVm(vm), server_status: 'unknown' }, 'a server that was removed');
});
