/** What is sought, from the parameters of a request. */
import t from 'tap';
import { buildVmProperties } from '../../../lib/agent/vms/vm-properties.ts';
import { buildPlacementRequest, namedVmsOf } from '../../../lib/control/placement/request.ts';
import { systemRandom } from '../../../lib/platform/random.ts';
import { checkParams } from '../../../lib/protocol/api/contract/contract.ts';
import { type AllocationParams, placementContracts } from '../../../lib/protocol/api/placement.ts';
import type { JsonObject } from '../../../lib/protocol/json/bounded-json.ts';
import { vmCreate } from '../../../lib/protocol/vms.ts';

const A = '564D5B45-3A8C-4C1F-9D0A-0123456789AB';
const B = '11111111-2222-4333-8444-555555555555';

const LONG = 'x'.repeat(201);
const TEXTS = 'text of at most 200 characters or list of at most 100 such texts';
const PLATFORM = 'has a version or platform that is not text of at most 200 characters';
const MANY = Array.from({ length: 11 }, () => Array.from({ length: 10 }, String));
const namesOf = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, index) => [index, 'x']));

function requestOf(vm: JsonObject, further: JsonObject = {}) {
  const given = { vm: { vm_uuid: A, owner_uuid: B, ram: 1024, ...vm }, image: {}, nic_tags: [], ...further };
  const { data, issues } = checkParams(placementContracts.SelectServer, given);
  if (data === undefined) throw new Error(issues.map(({ message }) => message).join('; '));
  return buildPlacementRequest(data as AllocationParams);
}

t.test('uuids are in lower case, and a VM without disk and CPU takes those of its package', async (t) => {
  t.match(requestOf({}), { vmUuid: A.toLowerCase(), size: { ram: 1024 }, locality: undefined });
  const pack = { quota: 20_480, cpu_cap: 200 };
  t.match(requestOf({}, { package: pack }).size, { ram: 1024, disk: 20_480, cpu: 200 });
  t.match(requestOf({ quota: 1, cpu_cap: 2 }, { package: pack }).size, { disk: 1, cpu: 2 });
});

t.test('a VM without disk and CPU, and without a package, is as large as its agent will make it', async (t) => {
  const asked = vmCreate.parse({ uuid: B, image_uuid: B, max_physical_memory: 1024 });
  const { quota, cpu_cap } = buildVmProperties(asked, systemRandom);
  t.match(requestOf({}).size, { disk: quota * 1024, cpu: cpu_cap });
  t.match(requestOf({ brand: 'oci' }).size, { disk: quota * 1024, cpu: cpu_cap });
  t.match(requestOf({ brand: 'lx' }).size, { disk: 0, cpu: 0 }, 'other agents set no limits');
});

t.test('ratios of the package count under both of their names, if they are above 0', async (t) => {
  const pack = { overprovision_cpu: '2', overprovision_memory: 1.5, overprovision_storage: 0 };
  t.strictSame(requestOf({}, { package: pack }).ratios, { cpu: 2, ram: 1.5 });
});

t.test('traits of the image override those of the VM, and those of the VM stand for the package', async (t) => {
  const further = { package: { traits: { a: true, b: true } }, image: { traits: { b: false } } };
  t.strictSame(requestOf({}, further).traits, { a: true, b: false });
  t.strictSame(requestOf({ traits: { c: 'x' } }, further).traits, { c: 'x', b: false });
});

t.test('VMs are named by hints and by volumes, as one uuid, a list or a text', async (t) => {
  const locality = { strict: true, near: A, far: [B] };
  t.strictSame(requestOf({ locality }).locality, { isStrict: true, near: [A.toLowerCase()], far: [B] });
  const internal_metadata = { 'docker:volumesfrom': JSON.stringify([B]) };
  const withVolumes = requestOf({ locality, docker: true, internal_metadata });
  t.strictSame(withVolumes.volumesFrom, [B]);
  t.strictSame(namedVmsOf(withVolumes), [B, A.toLowerCase()]);
  t.strictSame(requestOf({ internal_metadata }).volumesFrom, [], 'of docker only');
});

t.test('a VM must be as large as its image requires', async (t) => {
  const image = { requirements: { min_ram: 1024, max_ram: 1024 } };
  t.equal(requestOf({}, { image }).size.ram, 1024);
  t.throws(() => requestOf({ ram: 1023 }, { image }), { code: 'InvalidParameters', statusCode: 500 });
  t.throws(() => requestOf({ ram: 1025 }, { image }), { code: 'InvalidParameters', statusCode: 500 });
});

t.test('wrong values are named', async (t) => {
  for (const [message, vm, further] of [
    ['"vm.quota" is not a number (MiB)', { quota: '1' }, {}],
    ['"vm.ram" is not a number above 0 (MiB)', { ram: -1 }, {}],
    ['"vm.traits" is not an object', { traits: [] }, {}],
    ['"vm.ram" is missing (MiB)', { ram: undefined }, {}],
    [`"vm.traits.a" is not a boolean, ${TEXTS}`, { traits: { a: 1 } }, {}],
    [`"vm.traits.a" is not a boolean, ${TEXTS}`, { traits: { a: LONG } }, {}],
    [`"vm.traits.a" is not a boolean, ${TEXTS}`, { traits: { a: [LONG] } }, {}],
    ['"vm.traits" has more than 100 traits', { traits: namesOf(101) }, {}],
    ['"vm.traits" has a name of more than 200 characters', { traits: { [LONG]: 'x' } }, {}],
    ['"package.min_platform" has more than 20 versions', {}, { package: { min_platform: namesOf(21) } }],
    [`"image.requirements.max_platform" ${PLATFORM}`, {}, { image: { requirements: { max_platform: { 6: LONG } } } }],
    [`"image.requirements.max_platform" ${PLATFORM}`, {}, { image: { requirements: { max_platform: { 6: 7 } } } }],
    ['invalid nic_tag', {}, { nic_tags: [LONG] }],
    ['more than 100 NIC tags', {}, { nic_tag_requirements: MANY }],
    ['"vm.locality.strict" is not true or false', { locality: { strict: 'yes' } }, {}],
    [
      `"vm.internal_metadata['docker:volumesfrom']" is not a list of at most 100 UUIDs`,
      { internal_metadata: { 'docker:volumesfrom': '{' } },
      {},
    ],
    ['"image.requirements" is not an object', {}, { image: { requirements: 'x' } }],
    ['"package.min_platform" is not an object', {}, { package: { min_platform: '2030' } }],
  ] as const)
    t.throws(() => requestOf(vm, further), { message });
});
