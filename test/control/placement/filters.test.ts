/**
 * Each filter about one server: a row for each reason to drop it, and for each limit that it meets.
 */
import t from 'tap';
import { filters } from '../../../lib/control/placement/filters.ts';
import { preferences } from '../../../lib/control/placement/preferences.ts';
import type { StepContext } from '../../../lib/control/placement/steps.ts';
import { aCandidate, aContext } from './support/candidates.ts';

const steps = { ...filters, ...preferences };
type Row = [
  name: string,
  step: keyof typeof filters | 'hard-filter-locality-hints',
  server: Parameters<typeof aCandidate>[1],
  context: StepContext,
  reason: RegExp | undefined,
];

const platforms = (minimum: object, maximum: object = {}) =>
  aContext({ minPlatforms: [{ ...minimum }], maxPlatforms: [{ ...maximum }] });
const near = (isStrict: boolean) =>
  aContext({ locality: { isStrict, near: ['a', 'b'], far: [] } }, { located: { a: 'other', b: 's' } });

const rows: Row[] = [
  ['set up', 'hard-filter-setup', {}, aContext(), undefined],
  ['not set up', 'hard-filter-setup', { isSetUp: false }, aContext(), /not set up/],
  ['without containers', 'hard-filter-setup', { mayRunContainers: false }, aContext(), undefined],
  [
    'without containers, for a VM that is created next',
    'hard-filter-setup',
    { mayRunContainers: false },
    aContext({ isCreatedNext: true }),
    /no --containers/,
  ],
  ['running', 'hard-filter-running', {}, aContext(), undefined],
  ['not running', 'hard-filter-running', { isRunning: false }, aContext(), /not running/],
  ['rebooting', 'hard-filter-running', { interruption: 'is rebooting' }, aContext(), /is rebooting/],
  ['complete', 'hard-filter-invalid-servers', {}, aContext(), undefined],
  ['without disk', 'hard-filter-invalid-servers', { totals: { disk: undefined } }, aContext(), /its disk$/],
  [
    'without anything',
    'hard-filter-invalid-servers',
    { totals: { ram: undefined, disk: undefined, cores: undefined } },
    aContext(),
    /memory, disk, cores/,
  ],
  ['no volumes wanted', 'hard-filter-volumes-from', {}, aContext(), undefined],
  [
    'all volumes',
    'hard-filter-volumes-from',
    { load: { named: ['a', 'b'] } },
    aContext({ volumesFrom: ['a'] }),
    undefined,
  ],
  [
    'a volume elsewhere',
    'hard-filter-volumes-from',
    { load: { named: ['a'] } },
    aContext({ volumesFrom: ['a', 'b'] }),
    /VM b/,
  ],
  ['reserved', 'hard-filter-reserved', { isReserved: true }, aContext(), /reserved/],
  ['not reserved', 'hard-filter-reserved', {}, aContext(), undefined],
  ['a headnode', 'hard-filter-headnode', { isHeadnode: true }, aContext(), /headnode/],
  ['no headnode', 'hard-filter-headnode', {}, aContext(), undefined],
  ['in the reservoir', 'hard-filter-reservoir', { isInReservoir: true }, aContext(), /reservoir/],
  ['not in the reservoir', 'hard-filter-reservoir', {}, aContext(), undefined],
  ['223 VMs', 'hard-filter-vm-count', { load: { vms: 223 } }, aContext(), undefined],
  ['224 VMs', 'hard-filter-vm-count', { load: { vms: 224 } }, aContext(), /has 224 VMs/],
  ['capped with capped', 'hard-filter-capness', { load: { capped: 2 } }, aContext(), undefined],
  ['capped with uncapped', 'hard-filter-capness', { load: { uncapped: 2 } }, aContext(), /without a cpu_cap/],
  [
    'uncapped with capped',
    'hard-filter-capness',
    { load: { capped: 2 } },
    aContext({ size: { ram: 1, disk: 0, cpu: 0 } }),
    /with a cpu_cap/,
  ],
  ['no NIC tags wanted', 'hard-filter-vlans', { nicTags: undefined }, aContext(), undefined],
  ['the NIC tag', 'hard-filter-vlans', {}, aContext({ nicTags: ['admin'] }), undefined],
  ['not the NIC tag', 'hard-filter-vlans', {}, aContext({ nicTags: ['admin', 'external'] }), /NIC tag external/],
  ['its NIC is down', 'hard-filter-vlans', {}, aContext({ nicTags: ['storage'] }), /storage is down/],
  ['one of the tags', 'hard-filter-vlans', {}, aContext({ nicTagRequirements: [['external', 'admin']] }), undefined],
  ['none of the tags', 'hard-filter-vlans', {}, aContext({ nicTagRequirements: [['x', 'y']] }), /x or y/],
  ['no interfaces', 'hard-filter-vlans', { nicTags: undefined }, aContext({ nicTags: ['admin'] }), /no network/],
  ['new enough', 'hard-filter-platform-versions', {}, platforms({ '7.0': '20300101T000000Z' }), undefined],
  ['too old', 'hard-filter-platform-versions', {}, platforms({ '7.0': '20300102T000000Z' }), /is older than/],
  ['of a newer version', 'hard-filter-platform-versions', {}, platforms({ '6.5': '20990101T000000Z' }), undefined],
  [
    'of an older version',
    'hard-filter-platform-versions',
    { platformVersion: undefined },
    platforms({ '7.0': '2' }),
    /is older/,
  ],
  ['between two versions', 'hard-filter-platform-versions', {}, platforms({ '6.5': '2', '7.1': '2' }), undefined],
  ['too new', 'hard-filter-platform-versions', {}, platforms({}, { '7.0': '20290101T000000Z' }), /is newer than/],
  ['old enough', 'hard-filter-platform-versions', {}, platforms({}, { '7.0': '20300101T000000Z' }), undefined],
  ['a requirement for another system', 'hard-filter-platform-versions', {}, platforms({ smartos: '2099' }), undefined],
  ['no traits', 'hard-filter-traits', {}, aContext(), undefined],
  ['a trait too many', 'hard-filter-traits', { traits: { ssd: true } }, aContext(), /has the trait ssd/],
  ['a trait too few', 'hard-filter-traits', {}, aContext({ traits: { ssd: true } }), /does not have the trait ssd/],
  ['an equal flag', 'hard-filter-traits', { traits: { ssd: true } }, aContext({ traits: { ssd: true } }), undefined],
  [
    'another flag',
    'hard-filter-traits',
    { traits: { ssd: true } },
    aContext({ traits: { ssd: false } }),
    /is true, not false/,
  ],
  [
    'a text in a list',
    'hard-filter-traits',
    { traits: { hw: ['a', 'b'] } },
    aContext({ traits: { hw: 'b' } }),
    undefined,
  ],
  [
    'a list with the text',
    'hard-filter-traits',
    { traits: { hw: 'b' } },
    aContext({ traits: { hw: ['a', 'b'] } }),
    undefined,
  ],
  [
    'lists without one in common',
    'hard-filter-traits',
    { traits: { hw: ['a'] } },
    aContext({ traits: { hw: ['b'] } }),
    /is \["a"\]/,
  ],
  [
    'a text for a flag',
    'hard-filter-traits',
    { traits: { hw: 'true' } },
    aContext({ traits: { hw: true } }),
    /not true/,
  ],
  ['not sick', 'hard-filter-sick-servers', {}, aContext(), undefined],
  ['sick', 'hard-filter-sick-servers', { load: { isSick: true } }, aContext(), /have failed/],
  [
    'the ratios of the package',
    'hard-filter-overprovision-ratios',
    {},
    aContext({ ratios: { cpu: 4.001 } }),
    undefined,
  ],
  ['other ratios', 'hard-filter-overprovision-ratios', {}, aContext({ ratios: { cpu: 2 } }), /4 times its cpu/],
  ['exactly the memory', 'hard-filter-min-ram', { load: { ram: 900 } }, aContext(), undefined],
  [
    'too little memory',
    'hard-filter-min-ram',
    { load: { ram: 901 } },
    aContext(),
    /has 99 MiB of memory left, and 100/,
  ],
  ['reserved memory', 'hard-filter-min-ram', { reservationRatio: 0.5, load: { ram: 401 } }, aContext(), /has 99 MiB/],
  ['exactly the disk', 'hard-filter-min-disk', { load: { disk: 9_000 } }, aContext(), undefined],
  ['too little disk', 'hard-filter-min-disk', { load: { disk: 9_001 } }, aContext(), /has 999 MiB of disk/],
  [
    'no disk wanted',
    'hard-filter-min-disk',
    { load: { disk: 20_000 } },
    aContext({ size: { ram: 1, disk: 0, cpu: 0 } }),
    undefined,
  ],
  ['exactly the CPU, four times', 'hard-filter-min-cpu', { load: { cpu: 1_500 } }, aContext(), undefined],
  ['too little CPU', 'hard-filter-min-cpu', { load: { cpu: 1_501 } }, aContext(), /has 24 of CPU left, and 25/],
  ['CPU that a VM without a cap takes', 'hard-filter-min-cpu', { load: { uncapped: 1 } }, aContext(), /has 0 of CPU/],
  ['near one of the VMs', 'hard-filter-locality-hints', {}, near(true), undefined],
  ['near none of the VMs', 'hard-filter-locality-hints', { uuid: 'third' }, near(true), /none of the VMs/],
  ['near, not strictly', 'hard-filter-locality-hints', { uuid: 'third' }, near(false), undefined],
  [
    'far from a VM that is there',
    'hard-filter-locality-hints',
    {},
    aContext({ locality: { isStrict: true, near: [], far: ['x', 'a'] } }, { located: { a: 's' } }),
    /has VM a/,
  ],
];

for (const [name, step, server, context, reason] of rows) {
  t.test(`${step}: ${name}`, async (t) => {
    const { uuid = 's', ...rest } = server ?? {};
    const found = steps[step];
    const dropped = found.kind === 'filter' && found.drops([aCandidate(uuid, rest)], context).get(uuid);
    if (reason === undefined) t.equal(dropped, undefined);
    else t.match(dropped, reason);
  });
}
