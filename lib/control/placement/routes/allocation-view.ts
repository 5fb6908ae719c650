/** Allocations and capacities as callers see them. Pure. */
import type { Allocation, Capacities } from '../../../protocol/api/placement.ts';
import type { JsonObject } from '../../../protocol/json/bounded-json.ts';
import type { Selection } from '../allocator.ts';
import type { Ratios, VmSize } from '../candidate.ts';

/** Servers and reasons that are shown of each step. */
const MAX_SHOWN = 100;

/** `server`: the whole server, if one was chosen. */
export function toAllocation(
  { candidate, unreserved, result, funnel }: Selection,
  {
    server,
    ratios,
    isExplained,
  }: { server: (JsonObject & { uuid: string }) | undefined; ratios: Ratios; isExplained: boolean },
): Allocation {
  const score = candidate && result.scores.get(candidate.uuid);
  return {
    server:
      server === undefined
        ? null
        : {
            ...server,
            ...(score !== undefined && { score }),
            ...unreservedFields(unreserved),
            overprovision_ratios: { ...ratios },
          },
    steps: result.steps.map(({ step, remaining, explanations, before }) => ({
      step,
      remaining: remaining.slice(0, MAX_SHOWN),
      ...(remaining.length < before && { reasons: Object.fromEntries([...explanations].slice(0, MAX_SHOWN)) }),
    })),
    imgapiPeers: [],
    ...(isExplained && {
      funnel: funnel.steps.map(({ step, before, dropped, explanations }) => ({
        step,
        before,
        dropped,
        reasons: Object.fromEntries(explanations),
      })),
    }),
  };
}

const unreservedFields = (unreserved: VmSize | undefined) =>
  unreserved && {
    unreserved_cpu: unreserved.cpu,
    unreserved_ram: unreserved.ram,
    unreserved_disk: unreserved.disk,
  };

export function toCapacities({
  unreserved,
  reasons,
}: {
  unreserved: ReadonlyMap<string, VmSize>;
  reasons: ReadonlyMap<string, string>;
}): Capacities {
  const room = [...unreserved].map(([uuid, { cpu, ram, disk }]) => [uuid, { cpu, ram, disk }] as const);
  return { capacities: Object.fromEntries(room), errors: Object.fromEntries(reasons) };
}
