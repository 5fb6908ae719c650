/**
 * Placement: on which server a VM should be made, and how much room servers have. Triton's routes;
 * the payload is that of its allocator, so most of what it has is not declared here.
 */
import { z } from 'zod';
import { isJsonObject, type JsonObject } from '../json/bounded-json.ts';
import { answer, contracts, errorResponse, type Known, type ParamsOf } from './contract/contract.ts';
import { array, booleanText, isUuid, object } from './contract/rules.ts';
import { namedServer } from './servers.ts';

const MAX_SERVERS = 5_000;
/** Maximum number of traits, of NIC tags, of texts of one trait, and of VMs in one hint. */
const MAX_NAMES = 100;
/** Maximum number of SDC versions, of which two or three have ever existed. */
const MAX_VERSIONS = 20;
/**
 * Each name is compared with those of every server, and may be in the reason why a server was
 * dropped.
 */
const MAX_NAME_CHARS = 200;
const isName = (value: unknown): value is string => typeof value === 'string' && value.length <= MAX_NAME_CHARS;

/** `reasonAgainst` is called with a value of the right type. */
const checked = <Schema extends z.ZodType>(
  schema: Schema,
  reasonAgainst: (value: z.output<Schema>) => string | undefined,
) =>
  schema.superRefine((value, context) => {
    const reason = reasonAgainst(value as z.output<Schema>);
    if (reason !== undefined) context.addIssue(reason);
  });

/** MiB; more than any machine has. */
const MAX_SIZE = 1e12;
const isNumber = (value: unknown) => typeof value === 'number' && value >= 0 && value <= MAX_SIZE;

function reasonNotVm(vm: JsonObject): string | undefined {
  if (!isUuid(vm.owner_uuid)) return '"vm.owner_uuid" is an invalid UUID';
  if (!isUuid(vm.vm_uuid)) return '"vm.vm_uuid" is an invalid UUID';
  if (vm.ram === undefined) return '"vm.ram" is missing (MiB)';
  if (!isNumber(vm.ram) || vm.ram === 0) return '"vm.ram" is not a number above 0 (MiB)';
  if (vm.quota != null && !isNumber(vm.quota)) return '"vm.quota" is not a number (MiB)';
  if (vm.cpu_cap != null && !isNumber(vm.cpu_cap)) return '"vm.cpu_cap" is not a number (100 is one core)';
  return reasonNotTraits('vm', vm.traits) ?? reasonNotLocality(vm.locality) ?? reasonNotVolumes(vm.internal_metadata);
}

function reasonNotPackage(pack: JsonObject): string | undefined {
  const ratios = ['cpu', 'memory', 'storage', 'network', 'io'].map((name) => `overprovision_${name}`);
  const wrong = ratios.find((name) => pack[name] != null && !Number.isFinite(Number(pack[name])));
  if (wrong !== undefined) return `"package.${wrong}" is not a number`;
  const size = ['quota', 'cpu_cap'].find((name) => pack[name] != null && !isNumber(pack[name]));
  if (size !== undefined) return `"package.${size}" is not a number`;
  return reasonNotTraits('package', pack.traits) ?? reasonNotPlatforms('package', pack);
}

function reasonNotImage(image: JsonObject): string | undefined {
  const { requirements } = image;
  if (requirements != null && !isJsonObject(requirements)) return '"image.requirements" is not an object';
  return (
    reasonNotTraits('image', image.traits) ??
    (isJsonObject(requirements) ? reasonNotPlatforms('image.requirements', requirements) : undefined)
  );
}

function reasonNotTraits(of: string, traits: unknown): string | undefined {
  if (traits == null) return undefined;
  if (!isJsonObject(traits)) return `"${of}.traits" is not an object`;
  const names = Object.keys(traits);
  if (names.length > MAX_NAMES) return `"${of}.traits" has more than ${MAX_NAMES} traits`;
  if (!names.every(isName)) return `"${of}.traits" has a name of more than ${MAX_NAME_CHARS} characters`;
  const isTrait = (value: unknown) => typeof value === 'boolean' || isName(value) || isNameList(value);
  const wrong = names.find((name) => !isTrait(traits[name]));
  return wrong === undefined
    ? undefined
    : `"${of}.traits.${wrong}" is not a boolean, text of at most ${MAX_NAME_CHARS} characters or list of at most ${MAX_NAMES} such texts`;
}

function reasonNotPlatforms(of: string, value: JsonObject): string | undefined {
  for (const name of ['min_platform', 'max_platform']) {
    const platforms = value[name];
    if (platforms == null) continue;
    if (!isJsonObject(platforms)) return `"${of}.${name}" is not an object`;
    const pairs = Object.entries(platforms);
    if (pairs.length > MAX_VERSIONS) return `"${of}.${name}" has more than ${MAX_VERSIONS} versions`;
    if (!pairs.flat().every(isName))
      return `"${of}.${name}" has a version or platform that is not text of at most ${MAX_NAME_CHARS} characters`;
  }
  return undefined;
}

function reasonNotLocality(locality: unknown): string | undefined {
  if (locality == null) return undefined;
  if (!isJsonObject(locality)) return '"vm.locality" is not an object';
  if (locality.strict !== undefined && typeof locality.strict !== 'boolean')
    return '"vm.locality.strict" is not true or false';
  for (const name of ['near', 'far']) {
    const hint = locality[name];
    if (hint !== undefined && !isUuidList(Array.isArray(hint) ? hint : [hint]))
      return `"vm.locality.${name}" is neither a UUID nor a list of at most ${MAX_NAMES} UUIDs`;
  }
  return undefined;
}

function reasonNotVolumes(metadata: unknown): string | undefined {
  const volumes = isJsonObject(metadata) ? metadata['docker:volumesfrom'] : undefined;
  if (volumes == null) return undefined;
  return isUuidList(typeof volumes === 'string' ? listOf(volumes) : volumes)
    ? undefined
    : `"vm.internal_metadata['docker:volumesfrom']" is not a list of at most ${MAX_NAMES} UUIDs`;
}

/** Undefined for a text that is not JSON. */
function listOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const isUuidList = (value: unknown) => Array.isArray(value) && value.length <= MAX_NAMES && value.every(isUuid);
const isNameList = (value: unknown): value is string[] =>
  Array.isArray(value) && value.length <= MAX_NAMES && value.every(isName);

const servers = () =>
  checked(array(), (value) => {
    if (value.length > MAX_SERVERS) return `more than ${MAX_SERVERS} servers`;
    return value.every(isUuid) ? undefined : 'invalid server UUID';
  }).transform((value) => [...new Set((value as string[]).map((uuid) => uuid.toLowerCase()))]);

const step = answer({
  step: z.string().describe('The name of the step in the configuration'),
  remaining: z.array(z.string()).describe('The servers that it left, at most 100 of them'),
  reasons: z.record(z.string(), z.string()).optional().describe('Why it dropped each server, at most 100 of them'),
});

const funnelStep = answer({
  step: z.string(),
  before: z.int().describe('Servers that the step was given'),
  dropped: z.int().describe('How many of them it dropped'),
  reasons: z.record(z.string(), z.string()).describe('By server, at most 100: why it was dropped, or its score'),
});

const chosen = namedServer.extend({
  score: z.number().optional(),
  unreserved_cpu: z.number().optional().describe('What was free before this VM; 100 is one core'),
  unreserved_ram: z.number().optional().describe('MiB'),
  unreserved_disk: z.number().optional().describe('MiB'),
});

const allocation = answer({
  server: chosen.nullable().describe('The server to make the VM on; null only with `explain`'),
  steps: z.array(step),
  imgapiPeers: z.array(z.unknown()).describe('Always empty: images are loaded by task'),
  funnel: z.array(funnelStep).optional().describe('With `explain`: the steps over all servers that were considered'),
}).meta({ id: 'Allocation' });
export type Allocation = Known<z.output<typeof allocation>>;

const room = answer({ cpu: z.number(), ram: z.number(), disk: z.number() });

const capacities = answer({
  capacities: z.record(z.string(), room).describe('By server: CPU (100 is one core), memory and disk in MiB'),
  errors: z.record(z.string(), z.string()).describe('By server: why it has no capacity'),
}).meta({ id: 'Capacities' });
export type Capacities = Known<z.output<typeof capacities>>;

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';

export const placementContracts = contracts({
  SelectServer: {
    method: 'POST',
    path: '/allocate',
    summary: 'Chooses a server for a VM, and holds the room for it there until the VM is made or the time is up',
    tag: 'placement',
    origin: 'reference',
    requiredRole: 'operator',
    params: z.object({
      vm: checked(object(), reasonNotVm).describe(
        'The VM: `vm_uuid`, `owner_uuid`, `ram` (MiB), and if it has them `quota` (MiB), `cpu_cap`, `traits`, `locality`',
      ),
      image: checked(object(), reasonNotImage).describe('The image of the VM: `traits` and `requirements`'),
      package: checked(object(), reasonNotPackage)
        .optional()
        .describe(
          'The package of the VM: `quota` and `cpu_cap` if the VM has none, `traits`, `overprovision_…`, platforms',
        ),
      servers: servers().optional().describe('Only these servers'),
      nic_tags: checked(array(), (value) => (isNameList(value) ? undefined : 'invalid nic_tag'))
        .transform((value) => value as string[])
        .describe('NIC tags that the server must have'),
      nic_tag_requirements: checked(array(), (value) =>
        value.every(isNameList)
          ? value.flat().length <= MAX_NAMES
            ? undefined
            : `more than ${MAX_NAMES} NIC tags`
          : 'value was not an array of arrays of strings',
      )
        .transform((value) => value as string[][])
        .optional()
        .describe('Lists of NIC tags, of each of which the server must have one'),
      explain: booleanText()
        .optional()
        .describe('`true`: says what would be chosen and why, and holds no room. It is 200 without a server, too'),
    }),
    lenient: true,
    preconditions: [],
    responses: {
      200: {
        description: 'The server. The same `vm_uuid` with the same size gets the same one while its room is held',
        schema: allocation,
        example: {
          server: { uuid: SERVER, hostname: 'web-1', status: 'running' },
          steps: [{ step: 'hard-filter-setup', remaining: [SERVER] }],
          imgapiPeers: [],
        },
      },
      409: errorResponse(
        'No server has room, or may have this VM; the message sums up why',
        'NoAllocatableServersError',
        'VolumeServerNoResourcesError',
      ),
      429: errorResponse('The caller holds room for the maximum number of VMs already', 'TooManyClaims'),
    },
  },
  ServerCapacity: {
    method: 'POST',
    path: '/capacity',
    summary: 'How much room servers have, less all VMs, held room and open provisioning tickets',
    tag: 'placement',
    origin: 'reference',
    requiredRole: 'operator',
    params: z.object({ servers: servers().optional().describe('Only these servers; all of them when absent') }),
    lenient: true,
    preconditions: [],
    responses: {
      200: {
        description: 'OK',
        schema: capacities,
        example: { capacities: { [SERVER]: { cpu: 3200, ram: 55_705, disk: 900_000 } }, errors: {} },
      },
    },
  },
});

export type AllocationParams = ParamsOf<(typeof placementContracts)['SelectServer']>;
