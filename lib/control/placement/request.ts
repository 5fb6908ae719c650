/**
 * Parses the VM to be placed from the parameters of `POST /allocate`. The contract has checked
 * their types. Pure.
 */
import { InvalidParametersError } from '../../platform/errors.ts';
import type { AllocationParams } from '../../protocol/api/placement.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { DEFAULT_BRAND, VM_DEFAULTS } from '../../protocol/vms.ts';
import type { Ratios, VmSize } from './candidate.ts';

interface Locality {
  isStrict: boolean;
  near: readonly string[];
  far: readonly string[];
}

export interface PlacementRequest {
  vmUuid: string;
  ownerUuid: string;
  /** The VM is created on the chosen server next, so an agent that cannot do that is left out. */
  isCreatedNext: boolean;
  size: VmSize;
  /** Ratios of the VM's package. The configuration has the defaults of absent ones. */
  ratios: Partial<Ratios>;
  traits: JsonObject;
  nicTags: readonly string[];
  /** The server must have at least one tag of each list. */
  nicTagRequirements: readonly (readonly string[])[];
  locality: Locality | undefined;
  /** VMs whose volumes it uses, so it must be on their server. */
  volumesFrom: readonly string[];
  /** Platforms by SDC version: all of these must hold. */
  minPlatforms: readonly JsonObject[];
  maxPlatforms: readonly JsonObject[];
}

/** @throws InvalidParametersError when the VM is smaller or larger than its image allows */
export function buildPlacementRequest({
  vm,
  image,
  package: pack = {},
  nic_tags,
  nic_tag_requirements,
}: AllocationParams): PlacementRequest {
  const requirements = isJsonObject(image.requirements) ? image.requirements : {};
  const defaults = defaultsOf(vm.brand);
  const size = {
    ram: Number(vm.ram),
    disk: numberOf(vm.quota) ?? numberOf(pack.quota) ?? defaults.disk,
    cpu: numberOf(vm.cpu_cap) ?? numberOf(pack.cpu_cap) ?? defaults.cpu,
  };
  checkMemory(size.ram, requirements);
  const internal = isJsonObject(vm.internal_metadata) ? vm.internal_metadata : {};
  return {
    vmUuid: String(vm.vm_uuid).toLowerCase(),
    ownerUuid: String(vm.owner_uuid).toLowerCase(),
    isCreatedNext: false,
    size,
    ratios: {
      ...ratio('cpu', pack.overprovision_cpu),
      ...ratio('ram', pack.overprovision_memory ?? pack.overprovision_ram),
      ...ratio('disk', pack.overprovision_storage ?? pack.overprovision_disk),
    },
    traits: { ...objectOf(vm.traits ?? pack.traits), ...objectOf(image.traits) },
    nicTags: nic_tags,
    nicTagRequirements: nic_tag_requirements ?? [],
    locality: isJsonObject(vm.locality) ? localityOf(vm.locality) : undefined,
    volumesFrom: vm.docker === undefined ? [] : volumesOf(internal['docker:volumesfrom']),
    minPlatforms: [objectOf(pack.min_platform), objectOf(requirements.min_platform)],
    maxPlatforms: [objectOf(pack.max_platform), objectOf(requirements.max_platform)],
  };
}

/** VMs of which it matters where they are. */
export const namedVmsOf = ({ locality, volumesFrom }: PlacementRequest): string[] => [
  ...new Set([...volumesFrom, ...(locality?.near ?? []), ...(locality?.far ?? [])]),
];

/** What this project's agents give a VM that asks for nothing; other brands have no limit then. */
const defaultsOf = (brand: unknown): Pick<VmSize, 'disk' | 'cpu'> =>
  (brand ?? DEFAULT_BRAND) === DEFAULT_BRAND
    ? { disk: VM_DEFAULTS.quota * 1024, cpu: VM_DEFAULTS.cpu_cap }
    : { disk: 0, cpu: 0 };

function checkMemory(ram: number, { min_ram, max_ram }: JsonObject): void {
  if (typeof min_ram === 'number' && ram < min_ram)
    throw invalidVm(`"vm.ram" is smaller than "image.requirements.min_ram", ${min_ram}`);
  if (typeof max_ram === 'number' && ram > max_ram)
    throw invalidVm(`"vm.ram" is larger than "image.requirements.max_ram", ${max_ram}`);
}

/** 500, as the reference answers what its rules refuse. */
const invalidVm = (message: string) => new InvalidParametersError(500, [{ field: 'vm', code: 'Invalid', message }]);

function localityOf({ strict, near, far }: JsonObject): Locality {
  return { isStrict: strict === true, near: uuidsOf(near), far: uuidsOf(far) };
}

/** Triton's payloads contain the volumes as the text of a JSON array. */
function volumesOf(value: unknown): string[] {
  return uuidsOf(typeof value === 'string' ? (JSON.parse(value) as unknown) : value);
}

/** One uuid, or a list of them. */
function uuidsOf(value: unknown): string[] {
  const list = Array.isArray(value) ? value : value === undefined ? [] : [value];
  return list.map((uuid) => String(uuid).toLowerCase());
}

const ratio = <Name extends keyof Ratios>(name: Name, value: unknown): Partial<Ratios> =>
  Number(value) > 0 ? { [name]: Number(value) } : {};

const objectOf = (value: unknown): JsonObject => (isJsonObject(value) ? value : {});
const numberOf = (value: unknown): number | undefined => (typeof value === 'number' ? value : undefined);
