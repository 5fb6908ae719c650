/**
 * The SQL of claims: room on servers that allocations have promised to VMs. Called by
 * `allocator.ts`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';
import type { ServerLimits, VmSize } from './candidate.ts';

/** Whoever claims room, and how much. */
interface RoomRequest extends VmSize {
  vmUuid: string;
  ownerUuid: string;
}

interface ClaimRequest extends RoomRequest {
  serverUuid: string;
  limits: ServerLimits;
  /** A server on which the VM has a claim that is given up. */
  replacedServer: string | undefined;
  claimMs: number;
  /** Whose claims are counted; undefined: nobody's. */
  caller: string | undefined;
  /** What the caller may have of claims that have not expired. */
  maxClaims: number;
}

/**
 * `known`: an equal request has claimed room before, on that server. `creating`: the VM is being
 * created on that server, so its room cannot move. `many`: the caller has the maximum number of
 * claims.
 */
type ClaimOutcome = 'claimed' | 'known' | 'creating' | 'full' | 'gone' | 'many';

/**
 * Claims room on a server, if everything still fits there. Undefined: another request changed the
 * claim of this VM at the same moment.
 */
export async function claimRoom(
  database: Queryable,
  { vmUuid, serverUuid, ownerUuid, ram, disk, cpu, limits, replacedServer, claimMs, caller, maxClaims }: ClaimRequest,
): Promise<{ serverUuid: string; outcome: ClaimOutcome } | undefined> {
  const { rows } = await database.query<{ server_uuid: string; outcome: ClaimOutcome }>(
    `select server_uuid, outcome from cnapi_claim_room($1::text, $2::uuid, $3::text, $4::float8, $5::float8,
       $6::float8, $7::float8, $8::float8, $9::float8, $10::float8, $11::uuid, $12::bigint, $13::text, $14::int)`,
    [
      ...[vmUuid, serverUuid, ownerUuid, ram, disk, cpu],
      ...[limits.vms ?? null, limits.ram ?? null, limits.disk ?? null, limits.cpu ?? null],
      ...[replacedServer ?? null, claimMs, caller ?? null, maxClaims],
    ],
    { name: 'claim placement' },
  );
  const [row] = rows;
  return row === undefined ? undefined : { serverUuid: row.server_uuid, outcome: row.outcome };
}

/** The server on which this VM has an equal claim that counts. */
export async function readRoomClaim(
  database: Queryable,
  { vmUuid, ownerUuid, ram, disk, cpu }: RoomRequest,
): Promise<string | undefined> {
  const { rows } = await database.query<{ server_uuid: string }>(
    `select c.server_uuid from cnapi_placement_claims c
       where c.vm_uuid = $1::text and (c.expires_at > cnapi_now() or cnapi_vm_is_being_created(c.vm_uuid, c.server_uuid))
         and c.owner_uuid = $2::text
         and c.ram = $3::float8 and c.disk = $4::float8 and c.cpu = $5::float8`,
    [vmUuid, ownerUuid, ram, disk, cpu],
    { name: 'read placement claim' },
  );
  return rows[0]?.server_uuid;
}

/**
 * Gives up the claim of a VM on this server, unless a job holds it (it ends with the job), or only
 * the claim tells the size of the VM.
 */
export async function releaseRoom(
  database: Queryable,
  { vmUuid, serverUuid }: { vmUuid: string; serverUuid: string },
): Promise<void> {
  await database.query(
    `delete from cnapi_placement_claims c where c.vm_uuid = $1::text and c.server_uuid = $2::uuid
       and c.job is null and not cnapi_vm_is_being_created(c.vm_uuid, c.server_uuid)`,
    [vmUuid, serverUuid],
    { name: 'release placement' },
  );
}

/** Deletes claims that expired long ago. Returns how many. */
export async function deleteExpiredClaims(database: Queryable, maxClaims: number): Promise<number> {
  const { rows } = await database.query<{ deleted: number }>(
    'select cnapi_delete_placement_claims($1::int) as deleted',
    [maxClaims],
  );
  return rows[0]?.deleted ?? 0;
}
