import t from 'tap';
import { shownVm, vmOfServer, withheldVm } from '../../../lib/control/vms/vm.ts';
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
  t.same(withheldVm(whole), { ...shownVm(vm), withheld: true });
});

t.test('all that agents of this project report is shown', async (t) => {
  const fields = [...Object.keys(vmSummary.shape), 'server_uuid'];
  const whole = Object.fromEntries(fields.map((name) => [name, name]));
  t.same(shownVm(whole as unknown as typeof vm), whole);
});
