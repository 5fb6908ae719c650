/** Rows of the table: claims of room; and the claims of the world in which they run. */
import { randomUUID } from 'node:crypto';
import { claimRoom, deleteExpiredClaims, readRoomClaim, releaseRoom } from '../../lib/control/placement/claim-store.ts';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { type CallOf, type ClaimKind, reads, type Seat, type Statement, type World, writes } from './statement.ts';

type Claim = Parameters<typeof claimRoom>[1];

/** MiB that each server has for VMs. `invariants.ts` counts with it. */
export const SERVER_RAM = 100;
/** Two of the new ones do not fit beside the one that is there. */
const RAM = 40;
const NEW_RAM = 60;
const OWNER = 'owner';
const LIMITS = { vms: undefined, ram: SERVER_RAM, disk: undefined, cpu: undefined };

/** The caller that may have one claim; the others may have many. `invariants.ts` counts with it. */
export const CALLER_OF_ONE = 'caller of one';
const CALLER = 'caller';
/** One caller's claims wait for each other; two callers' only for the server's lock. */
const OTHER_CALLER = 'other caller';

const claimOf = (vmUuid: string, { serverUuid }: Seat, ram: number, caller = CALLER): Claim => ({
  ...{ vmUuid, serverUuid, ownerUuid: OWNER, ram, disk: 0, cpu: 0, limits: LIMITS },
  ...{ replacedServer: undefined, claimMs: 3_600_000 },
  ...{ caller, maxClaims: caller === CALLER_OF_ONE ? 1 : 1_000 },
});

/**
 * On the server of most calls: a claim that counts, and one that expired long ago. Two VMs have
 * none.
 */
export async function createClaims(
  database: Queryable,
  seat: Seat | undefined,
): Promise<Partial<Record<ClaimKind, string>>> {
  if (seat === undefined) return {};
  const claims = { held: randomUUID(), expired: randomUUID(), one: randomUUID(), other: randomUUID() };
  await claimRoom(database, claimOf(claims.expired, seat, RAM));
  await database.query(`update cnapi_placement_claims set expires_at = expires_at - interval '3 hours'`);
  await claimRoom(database, claimOf(claims.held, seat, RAM));
  return claims;
}

/** Rows that a third session can lock. */
export const claimHoldsOf = ({ held, expired }: Partial<Record<ClaimKind, string>>): Record<string, string> => {
  if (held === undefined) return {};
  const row = (vm: string | undefined) => `select 1 from cnapi_placement_claims where vm_uuid = '${vm}' for update`;
  return { 'claim held': row(held), 'claim expired': row(expired) };
};

function claim(
  kind: ClaimKind,
  seatOf: (world: World) => Seat | undefined,
  { ram = NEW_RAM, isMoved = false, caller = CALLER } = {},
): CallOf<[Claim], unknown> {
  return {
    args(world) {
      const [vm, seat] = [world.claimed(kind), seatOf(world)];
      if (vm === undefined || seat === undefined) return undefined;
      return [{ ...claimOf(vm, seat, ram, caller), replacedServer: isMoved ? world.seat.serverUuid : undefined }];
    },
    // The random mix has none: nobody in it creates the VMs.
    weight: 0,
  };
}

const middle = ({ seat }: World) => seat;
const first = ({ seats }: World) => seats[0];
const last = ({ seats }: World) => seats[2];

export const placementStatements: readonly Statement[] = [
  writes(claimRoom, {
    'of a VM': claim('one', middle),
    'of another VM': claim('other', middle, { caller: OTHER_CALLER }),
    'of the same VM on another server': claim('one', first),
    'of a VM that becomes larger': claim('held', middle, { ram: NEW_RAM + RAM }),
    'of a VM that moves': claim('held', first, { ram: RAM, isMoved: true }),
    'of a VM whose claim has expired': claim('expired', middle),
    'of a VM of a caller of one': claim('one', first, { caller: CALLER_OF_ONE }),
    'of another VM of a caller of one': claim('other', last, { caller: CALLER_OF_ONE }),
  }),
  writes(releaseRoom, {
    'of a VM that is not made': {
      args(world) {
        const vmUuid = world.claimed('held');
        return vmUuid === undefined ? undefined : [{ vmUuid, serverUuid: world.seat.serverUuid }];
      },
      weight: 0,
    },
  }),
  writes(deleteExpiredClaims, {
    'long ago': { args: (world) => (world.claimed('expired') === undefined ? undefined : [100]), weight: 0 },
  }),
  reads(readRoomClaim, (world) => {
    const vm = world.claimed('held');
    return vm === undefined ? undefined : [claimOf(vm, world.seat, RAM)];
  }),
];
