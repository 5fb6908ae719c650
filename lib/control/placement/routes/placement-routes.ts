/** Answers the routes of placement (lib/protocol/api/placement.ts). */
import { placementContracts } from '../../../protocol/api/placement.ts';
import { type Actor, callerKey, OPEN_ACTOR } from '../../access/token.ts';
import { bind, ok, type Route } from '../../http/route.ts';
import { ALL_PARTS } from '../../servers/server-store.ts';
import type { Servers } from '../../servers/servers.ts';
import type { Allocator } from '../allocator.ts';
import { NoAllocatableServersError } from '../placement-errors.ts';
import { buildPlacementRequest } from '../request.ts';
import type { PlacementSettings } from '../settings.ts';
import { toAllocation, toCapacities } from './allocation-view.ts';

interface PlacementRouteDeps {
  allocator: Pick<Allocator, 'allocate' | 'explain' | 'capacity'>;
  servers: Pick<Servers, 'get'>;
  config: PlacementSettings;
  /** Called with the time of each allocation that was answered or refused. */
  onAllocated(seconds: number): void;
  clock: { now(): number };
}

/** Nobody is counted while access is open. */
export const quotaCallerOf = (actor: Actor, source: string) =>
  actor === OPEN_ACTOR ? undefined : callerKey(actor, source);

/** A server with its sysinfo and VMs, and a hundred servers of each step. */
const ANSWER_BYTES = 512 * 1024;
const CAPACITY_BYTES = 2 * 1024 * 1024;

export function placementRoutes({ allocator, servers, config, onAllocated, clock }: PlacementRouteDeps): Route[] {
  return bind(
    placementContracts,
    {
      async SelectServer({ params, actor, source, setAuditedObject }) {
        const { explain: isExplained = false } = params;
        const request = buildPlacementRequest(params);
        setAuditedObject(request.vmUuid);
        const startedAt = clock.now();
        try {
          const selection = await (isExplained
            ? allocator.explain(request, params.servers)
            : allocator.allocate(request, { servers: params.servers, caller: quotaCallerOf(actor, source) }));
          const uuid = selection.candidate?.uuid;
          const result =
            uuid === undefined ? undefined : await servers.get(uuid, { ...ALL_PARTS, lastHeartbeat: false });
          const server = result?.server;
          if (server === undefined && !isExplained)
            throw new NoAllocatableServersError(`server ${uuid} was removed during the request`);
          return ok(toAllocation(selection, { server, ratios: config.placementRatios, isExplained }));
        } finally {
          onAllocated((clock.now() - startedAt) / 1000);
        }
      },
      async ServerCapacity({ params }) {
        return ok(toCapacities(await allocator.capacity(params.servers)));
      },
    },
    { SelectServer: { answerBytes: ANSWER_BYTES }, ServerCapacity: { answerBytes: CAPACITY_BYTES } },
  );
}
