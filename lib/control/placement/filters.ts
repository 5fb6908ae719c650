/**
 * The filters of the pipeline that decide about each server by itself, by the reference's names.
 * Pure.
 */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CandidateServer, type Ratios, unreservedOf, type VmSize } from './candidate.ts';
import { filterEach, type PlacementStep, type StepContext } from './steps.ts';

export const filters = {
  'hard-filter-setup': filterEach(({ isSetUp, mayRunContainers }, { request }) => {
    if (!isSetUp) return 'is not set up';
    return request.isCreatedNext && !mayRunContainers ? 'runs no VMs: its agent has no --containers' : undefined;
  }),
  'hard-filter-running': filterEach(({ isRunning, interruption }) => (isRunning ? interruption : 'is not running')),
  'hard-filter-invalid-servers': filterEach(({ totals }) => {
    const missing = (['ram', 'disk', 'cores'] as const).filter((name) => totals[name] === undefined);
    return missing.length === 0 ? undefined : `has not reported its ${missing.map((name) => TOTALS[name]).join(', ')}`;
  }),
  'hard-filter-volumes-from': filterEach(({ load }, { request }) => {
    const absent = request.volumesFrom.find((uuid) => !load.named.includes(uuid));
    return absent === undefined ? undefined : `does not have VM ${absent}, whose volumes are needed`;
  }),
  'hard-filter-reserved': filterEach(({ isReserved }) => (isReserved ? 'is reserved' : undefined)),
  'hard-filter-headnode': filterEach(({ isHeadnode }) => (isHeadnode ? 'is a headnode' : undefined)),
  'hard-filter-reservoir': filterEach(({ isInReservoir }) => (isInReservoir ? 'is in the reservoir' : undefined)),
  'hard-filter-vm-count': filterEach(({ load }, { maxVms }) =>
    load.vms < maxVms ? undefined : `has ${load.vms} VMs, and at most ${maxVms} are allowed`,
  ),
  'hard-filter-capness': filterEach(({ load }, { request }) => {
    if (request.size.cpu > 0 && load.uncapped > 0) return `has ${load.uncapped} VMs without a cpu_cap`;
    if (request.size.cpu === 0 && load.capped > 0) return `has ${load.capped} VMs with a cpu_cap`;
    return undefined;
  }),
  'hard-filter-vlans': filterEach(reasonOfNetworks),
  'hard-filter-platform-versions': filterEach(reasonOfPlatform),
  'hard-filter-traits': filterEach(reasonOfTraits),
  'hard-filter-sick-servers': filterEach(({ load }) =>
    load.isSick ? 'its last two new or changed VMs have failed within a day' : undefined,
  ),
  'hard-filter-overprovision-ratios': filterEach((_, { request, ratios }) => {
    const other = RESOURCES.find(
      (name) => (request.ratios[name] ?? ratios[name]).toFixed(2) !== ratios[name].toFixed(2),
    );
    return other && `promises ${ratios[other]} times its ${other}, and the package wants ${request.ratios[other]}`;
  }),
  'hard-filter-min-ram': filterEach((candidate, context) => reasonOfRoom('ram', candidate, context)),
  'hard-filter-min-cpu': filterEach((candidate, context) => reasonOfRoom('cpu', candidate, context)),
  'hard-filter-min-disk': filterEach((candidate, context) => reasonOfRoom('disk', candidate, context)),
} as const satisfies Readonly<Record<string, PlacementStep>>;

const TOTALS = { ram: 'memory', disk: 'disk', cores: 'cores' } as const;
const RESOURCES = ['cpu', 'ram', 'disk'] as const satisfies readonly (keyof Ratios)[];
const UNITS: Readonly<Record<keyof VmSize, string>> = { ram: 'MiB of memory', disk: 'MiB of disk', cpu: 'of CPU' };

/** Without a disk or a CPU cap a VM fits anywhere. */
function reasonOfRoom(
  name: keyof VmSize,
  candidate: CandidateServer,
  { request, ratios }: StepContext,
): string | undefined {
  const wanted = request.size[name] / ratios[name];
  const free = unreservedOf(candidate, ratios)[name];
  if (wanted === 0 || free >= wanted) return undefined;
  return `has ${free} ${UNITS[name]} left, and ${Math.ceil(wanted * 100) / 100} is needed`;
}

function reasonOfNetworks({ nicTags }: CandidateServer, { request }: StepContext): string | undefined {
  const { nicTags: wanted, nicTagRequirements } = request;
  const lists = [...wanted.map((tag) => [tag]), ...nicTagRequirements];
  if (lists.length === 0) return undefined;
  if (nicTags === undefined) return 'has reported no network interfaces';
  const missing = lists.find((tags) => !tags.some((tag) => nicTags.up.includes(tag)));
  if (missing === undefined) return undefined;
  const down = missing.find((tag) => nicTags.down.includes(tag));
  return down === undefined
    ? `does not have the NIC tag ${missing.join(' or ')}`
    : `its NIC with the tag ${down} is down`;
}

const VERSION = /^\d+\.\d+$/;
/** Before 7.0 a sysinfo did not name the version. */
const OLDEST_VERSION = '6.5';

/**
 * Requirements have a platform for each SDC version. A version that they leave out is good enough
 * between two that they name; newer than all it is new enough, and older than all it is old enough.
 */
function reasonOfPlatform(
  { platform = '', platformVersion: version = OLDEST_VERSION }: CandidateServer,
  { request }: StepContext,
): string | undefined {
  for (const minimum of request.minPlatforms) {
    const versions = versionsOf(minimum);
    const [oldest, newest] = [versions[0], versions.at(-1)];
    if (newest === undefined || oldest === undefined || version > newest) continue;
    const least = minimum[version];
    const isMet = typeof least === 'string' ? platform >= least : oldest < version;
    if (!isMet) return `its platform ${platform} of version ${version} is older than ${JSON.stringify(minimum)}`;
  }
  for (const maximum of request.maxPlatforms) {
    const versions = versionsOf(maximum);
    const [oldest, newest] = [versions[0], versions.at(-1)];
    if (newest === undefined || oldest === undefined || version < oldest) continue;
    const maxPlatform = maximum[version];
    const isMet = typeof maxPlatform === 'string' ? platform <= maxPlatform : version < newest;
    if (!isMet) return `its platform ${platform} of version ${version} is newer than ${JSON.stringify(maximum)}`;
  }
  return undefined;
}

const versionsOf = (platforms: JsonObject): string[] =>
  Object.keys(platforms)
    .filter((name) => VERSION.test(name))
    .sort();

/** The traits of the VM and of the server must have the same names, and match one by one. */
function reasonOfTraits({ traits }: CandidateServer, { request }: StepContext): string | undefined {
  const names = [...new Set([...Object.keys(request.traits), ...Object.keys(traits)])];
  const other = names.find((name) => !traitMatches(traits[name], request.traits[name]));
  if (other === undefined) return undefined;
  if (!Object.hasOwn(request.traits, other)) return `has the trait ${other}, which is not asked for`;
  if (!Object.hasOwn(traits, other)) return `does not have the trait ${other}`;
  return `its trait ${other} is ${JSON.stringify(traits[other])}, not ${JSON.stringify(request.traits[other])}`;
}

/** A text matches the same text or a list with it; lists match if they have a text in common. */
function traitMatches(has: unknown, wanted: unknown): boolean {
  if (typeof wanted === 'boolean') return has === wanted;
  const [ofServer, ofRequest] = [textsOf(has), textsOf(wanted)];
  return ofRequest.some((text) => ofServer.includes(text));
}

function textsOf(value: unknown): string[] {
  const list = Array.isArray(value) ? value : [value];
  return list.filter((one) => typeof one === 'string');
}
