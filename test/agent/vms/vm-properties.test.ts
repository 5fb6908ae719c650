import t from 'tap';
import { buildVmProperties, updatedProperties } from '../../../lib/agent/vms/vm-properties.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import type { VmProperties } from '../../../lib/protocol/vms.ts';
import { vmCreate, vmUpdate } from '../../../lib/protocol/vms.ts';
import { payload } from '../../support/vm-rig.ts';

const updated = (one: VmProperties, update: object) => updatedProperties(one, vmUpdate.parse(update), random);
const created = () => buildVmProperties(vmCreate.parse(payload(1)), random);
const numbered = (prefix: string, count: number, value = 'x') =>
  Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}${index}`, value]));

t.test('the bounds of metadata and tags hold for the VM, not for each update', async (t) => {
  for (const field of ['customer_metadata', 'internal_metadata', 'tags']) {
    const full = updated(created(), { [`set_${field}`]: numbered('a', 1_000) });
    const refused = {
      code: 'InvalidParameters',
      statusCode: 400,
      errors: [{ field: `set_${field}`, code: 'Invalid' }],
    };
    t.throws(() => updated(full, { [`set_${field}`]: { b: 'x' } }), {
      ...refused,
      message: `set_${field} with what the VM has has more than 1000 keys`,
    });
    t.match(updated(full, { [`set_${field}`]: { a0: 'y' } }), { [field]: { a0: 'y' } }, 'a key is replaced');
    const change = { [`set_${field}`]: { b: 'y' }, [`remove_${field}`]: ['a0'] };
    t.match(updated(full, change), { [field]: { b: 'y' } }, 'removed keys make room');
    const large = updated(created(), { [`set_${field}`]: numbered('a', 2, 'x'.repeat(100_000)) });
    t.throws(() => updated(large, { [`set_${field}`]: numbered('b', 1, 'x'.repeat(100_000)) }), {
      ...refused,
      message: `set_${field} with what the VM has is larger than 262144 bytes`,
    });
  }
});

t.test('a VM with more keys than are allowed can lose some, and change otherwise', async (t) => {
  const over = { ...created(), customer_metadata: numbered('a', 1_002) };
  t.match(updated(over, { alias: 'web' }), { alias: 'web' });
  const { customer_metadata: left } = updated(over, { remove_customer_metadata: ['a0'] });
  t.equal(Object.keys(left).length, 1_001);
});
