/**
 * The steps of the pipeline that compare servers: where related VMs are, which servers to keep
 * free, and the scores. By the reference's names. Pure.
 */
import { type CandidateServer, unreservedOf } from './candidate.ts';
import { filterEach, keepPreferred, type PlacementStep, type RejectionReasons, type StepContext } from './steps.ts';

export const preferences = {
  'hard-filter-locality-hints': filterEach(reasonOfLocality),
  'hard-filter-large-servers': { kind: 'filter', drops: dropLargest },
  'soft-filter-locality-hints': { kind: 'filter', drops: dropByLocality },
  'score-unreserved-ram': score('unreserved_ram', (candidates, { ratios }) =>
    grouped(candidates, (one) => unreservedOf(one, ratios).ram),
  ),
  'score-unreserved-disk': score('unreserved_disk', (candidates, { ratios }) =>
    grouped(candidates, (one) => unreservedOf(one, ratios).disk),
  ),
  'score-num-owner-zones': score('num_owner_zones', (candidates) => grouped(candidates, ({ load }) => -load.owned)),
  'score-current-platform': score('current_platform', (candidates) =>
    grouped(candidates, ({ platform = '' }) => platform),
  ),
  'score-next-reboot': score('next_reboot', groupedByReboot),
  'score-uniform-random': score('uniform_random', (candidates, { random }) => {
    const ranks = new Map(candidates.map(({ uuid }) => [uuid, random.fraction()]));
    return grouped(candidates, ({ uuid }) => ranks.get(uuid) ?? 0);
  }),
} as const satisfies Readonly<Record<string, PlacementStep>>;

function score(
  weight: Extract<PlacementStep, { kind: 'score' }>['weight'],
  groups: Extract<PlacementStep, { kind: 'score' }>['groups'],
) {
  return { kind: 'score', weight, groups } as const;
}

/** Servers with the same value together, the highest value first. */
function grouped(
  candidates: readonly CandidateServer[],
  keyOf: (candidate: CandidateServer) => string | number,
): CandidateServer[][] {
  const groups = Map.groupBy(candidates, keyOf);
  return [...groups.entries()].sort(([one], [other]) => (one < other ? 1 : -1)).map(([, group]) => group);
}

const WEEK_MS = 7 * 24 * 60 * 60 * 1000;

/**
 * Servers that will not be rebooted, then the others by the week of their reboot, counted back from
 * the last one. A time before the last boot is over.
 */
function groupedByReboot(candidates: readonly CandidateServer[]): CandidateServer[][] {
  const timeOf = ({ nextReboot, lastBoot = '' }: CandidateServer) =>
    nextReboot === undefined || nextReboot < lastBoot ? undefined : Date.parse(nextReboot);
  const last = Math.max(0, ...candidates.map((candidate) => timeOf(candidate) ?? 0));
  return grouped(candidates, (candidate) => {
    const time = timeOf(candidate);
    return time === undefined ? 1 : -Math.floor((last - time) / WEEK_MS);
  });
}

/** Share of servers kept for large VMs, as in the reference. */
const LARGE_SHARE = 0.15;

function dropLargest(candidates: readonly CandidateServer[], context: StepContext): RejectionReasons {
  const count = Math.floor(candidates.length * LARGE_SHARE);
  const largest = preferences['score-unreserved-ram'].groups(candidates, context).flat().slice(0, count);
  return new Map(largest.map(({ uuid }) => [uuid, 'has so much memory left that it is kept for large VMs']));
}

/** Strict hints: near means on a server of one of these VMs, far means on none of theirs. */
function reasonOfLocality({ uuid }: CandidateServer, { request, located }: StepContext): string | undefined {
  const { locality } = request;
  if (locality?.isStrict !== true) return undefined;
  const serversOf = (vms: readonly string[]) => vms.map((vm) => located.get(vm)?.serverUuid);
  const servers = serversOf(locality.far);
  if (servers.includes(uuid)) return `has VM ${locality.far[servers.indexOf(uuid)]}, which must be far`;
  if (locality.near.length > 0 && !serversOf(locality.near).includes(uuid))
    return 'has none of the VMs that must be near';
  return undefined;
}

/**
 * Hints that are not strict: each keeps the servers that meet it, if there are any. Far means on
 * another server, better in another rack; near means in the same rack, better on another server.
 * Without hints a VM is far from the other VMs of its owner.
 */
function dropByLocality(candidates: readonly CandidateServer[], context: StepContext): RejectionReasons {
  const { request, located } = context;
  const placesOf = (vms: readonly string[]) => vms.flatMap((vm) => located.get(vm) ?? []);
  const ofOwner = candidates.filter(({ load }) => load.owned > 0).map(({ uuid, rack }) => ({ serverUuid: uuid, rack }));
  const { locality } = request;
  const far = locality === undefined ? ofOwner : placesOf(locality.far);
  const near = locality === undefined || locality.isStrict ? [] : placesOf(locality.near);

  let kept = candidates;
  if (far.length > 0) {
    kept = keepPreferred(kept, ({ uuid }) => !far.some(({ serverUuid }) => serverUuid === uuid));
    kept = keepPreferred(kept, ({ rack }) => rack !== '' && !far.some((place) => place.rack === rack));
  }
  if (near.length > 0) {
    kept = keepPreferred(kept, ({ rack }) => rack !== '' && near.some((place) => place.rack === rack));
    kept = keepPreferred(kept, ({ uuid }) => !near.some(({ serverUuid }) => serverUuid === uuid));
  }
  const keptUuids = new Set(kept.map(({ uuid }) => uuid));
  const dropped = candidates.filter(({ uuid }) => !keptUuids.has(uuid));
  return new Map(dropped.map(({ uuid }) => [uuid, 'another server meets the locality hints better']));
}
