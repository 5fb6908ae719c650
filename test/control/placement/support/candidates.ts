/** Servers and requests for the pure tests of placement. */
import type { CandidateServer } from '../../../../lib/control/placement/candidate.ts';
import { NO_LOAD } from '../../../../lib/control/placement/candidate.ts';
import type { PlacementRequest } from '../../../../lib/control/placement/request.ts';
import type { StepContext } from '../../../../lib/control/placement/steps.ts';

type CandidateOverrides = Partial<Omit<CandidateServer, 'load' | 'totals'>> & {
  load?: Partial<CandidateServer['load']>;
  totals?: Partial<CandidateServer['totals']>;
};

/** A server that passes every filter: 1,000 MiB of memory, 10,000 MiB of disk, 4 cores. */
export function aCandidate(
  uuid: string,
  { load = {}, totals = {}, ...overrides }: CandidateOverrides = {},
): CandidateServer {
  return {
    uuid,
    hostname: `h-${uuid}`,
    rack: '',
    isRunning: true,
    interruption: undefined,
    isSetUp: true,
    mayRunContainers: true,
    isReserved: false,
    isInReservoir: false,
    isHeadnode: false,
    reservationRatio: 0,
    traits: {},
    nextReboot: undefined,
    lastBoot: undefined,
    platform: '20300101T000000Z',
    platformVersion: '7.0',
    nicTags: { up: ['admin'], down: ['storage'] },
    ...overrides,
    totals: { ram: 1_000, disk: 10_000, cores: 4, ...totals },
    load: { ...NO_LOAD, ...load },
  };
}

export function aRequest(overrides: Partial<PlacementRequest> = {}): PlacementRequest {
  return {
    vmUuid: 'vm',
    ownerUuid: 'owner',
    isCreatedNext: false,
    size: { ram: 100, disk: 1_000, cpu: 100 },
    ratios: {},
    traits: {},
    nicTags: [],
    nicTagRequirements: [],
    locality: undefined,
    volumesFrom: [],
    minPlatforms: [],
    maxPlatforms: [],
    ...overrides,
  };
}

export function aContext(
  request: Partial<PlacementRequest> = {},
  { located = {}, ...overrides }: Partial<Omit<StepContext, 'located'>> & { located?: Record<string, string> } = {},
): StepContext {
  return {
    request: aRequest(request),
    ratios: { cpu: 4, ram: 1, disk: 1 },
    maxVms: 224,
    weights: {
      current_platform: 1,
      next_reboot: 1,
      num_owner_zones: 1,
      uniform_random: 1,
      unreserved_disk: 1,
      unreserved_ram: 1,
    },
    // Each VM is in the rack of its server's name.
    located: new Map(
      Object.entries(located).map(([vm, serverUuid]) => [vm, { serverUuid, rack: `rack-${serverUuid}` }]),
    ),
    random: { uuid: () => '', fraction: () => 0.5 },
    ...overrides,
  };
}
