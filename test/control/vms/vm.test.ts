import t from 'tap';
import { shownVm, vmOfServer, withoutConfidential } from '../../../lib/control/vms/vm.ts';

const vm = { uuid: 'u', server_uuid: 's', state: 'running', alias: 'web', control: { claim: 'c' } };

t.test('what only the control plane needs is not shown', async (t) => {
  t.same(shownVm(vm), { uuid: 'u', server_uuid: 's', state: 'running', alias: 'web' });
  t.same(vmOfServer({ ...vm, quota: 5 }), { uuid: 'u', state: 'running', quota: 5 });
});

t.test('metadata is left out for callers who may not run tasks, and the answer says so', async (t) => {
  const whole = { uuid: 'u', customer_metadata: { root_pw: 'secret' }, internal_metadata: {} };
  t.same(withoutConfidential(whole), { uuid: 'u', withheld: true });
  t.same(withoutConfidential({ uuid: 'u' }), { uuid: 'u' });
});
