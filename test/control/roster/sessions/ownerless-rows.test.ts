import t from 'tap';
import { observeOwnerless } from '../../../../lib/control/roster/sessions/ownerless-rows.ts';

t.test('a row is due once it was ownerless under one run and epoch for the whole grace', async (t) => {
  const row = { serverUuid: 's', run: 'r', epoch: 3 };
  const ownerless = observeOwnerless(1000);
  t.same(ownerless.read([row]), []);
  ownerless.countHealthyTick(1000);
  t.same(ownerless.read([row]), [row]);
  t.same(ownerless.read([{ ...row, epoch: 4 }]), [], 'another epoch restarts the grace');
  ownerless.countHealthyTick(1000);
  ownerless.readFailed();
  t.same(ownerless.read([{ ...row, epoch: 4 }]), [], 'a failed read restarts the grace');
  ownerless.countHealthyTick(1000);
  t.same(ownerless.read([]), []);
  t.same(ownerless.read([{ ...row, epoch: 4 }]), [], 'an owner in between restarts the grace');
});
