/**
 * SQL over the documents of organizations: what one request needs to know of who sends it, and the
 * nodes of an organization. The documents themselves are written by `control/documents`.
 */
import type { Database, Queryable } from '../../platform/postgres/database.ts';
import { withMigrationLock } from '../../platform/postgres/migrations.ts';

export type PrincipalKind = 'user' | 'client';

/** A user or client, as it is found by the name that a request gives. */
export interface FoundPrincipal {
  kind: PrincipalKind;
  uuid: string;
  /** A client is found in its own organization only. */
  isAssociated: boolean;
  /** Public keys as PEM that have not expired, newest first. */
  keys: string[];
}

export interface FoundRequestor {
  /** The time by the database's clock. */
  now: Date;
  principals: FoundPrincipal[];
}

/** A server of an organization, under the name that push jobs use. */
export interface OrganizationNode {
  name: string;
  serverUuid: string;
  /** Names of the groups whose members may run push jobs on it; undefined: no group is needed. */
  executors: ReadonlySet<string> | undefined;
}

interface NodeRow {
  name: string;
  serverUuid: string;
  executors: string[] | null;
}

/**
 * A limit above the number of keys that an owner may have: concurrent creations are not counted
 * exactly.
 */
const MAX_KEYS_TRIED = 20;

/**
 * Principals with this name, for a request about the organization; undefined if there is no such
 * organization. Users and clients have names of their own, so there may be one of each.
 */
export async function findPrincipals(
  database: Queryable,
  organizationName: string,
  name: string,
): Promise<FoundRequestor | undefined> {
  const { rows } = await database.query<{ now: Date } & (FoundPrincipal | { kind: null })>(
    `select clock.now, found.kind, found.uuid, found."isAssociated", array(
       select k._value ->> 'public_key' from cnapi_keys k
       where k.owner = found.uuid::uuid
         and coalesce((k._value ->> 'expires_at')::timestamptz > clock.now, true)
       order by k._id desc limit ${MAX_KEYS_TRIED}) as keys
     from (select cnapi_now() as now) clock
     join cnapi_organizations o on o.name = $1::text
     left join lateral (
       select 'user' as kind, u._key as uuid, u._value -> 'organizations' @> to_jsonb(o._key) as "isAssociated"
       from cnapi_users u where u.name = $2::text
       union all
       select 'client', c._key, true from cnapi_clients c
       where c.organization = o._key::uuid and c.name = $2::text) found on true`,
    [organizationName, name],
  );
  const [first] = rows;
  if (first === undefined) return undefined;
  return { now: first.now, principals: rows.flatMap((row) => (row.kind === null ? [] : [row])) };
}

const MEMBER_INDEX = 'cnapi_groups_members';

/**
 * Creates the index by which `readGroups` finds the groups of a member. Call it after the
 * migrations, once the bucket of groups exists. Entries are never left pending, because each read
 * would scan those.
 */
export async function ensureMemberIndex(database: Database): Promise<void> {
  const { rows } = await database.query(`select 1 where to_regclass('${MEMBER_INDEX}') is not null`);
  if (rows.length > 0) return;
  await withMigrationLock(database, (connection) =>
    connection.query(
      `create index if not exists ${MEMBER_INDEX} on cnapi_groups
         using gin (cnapi_group_members(_value)) with (fastupdate = off);
       alter index ${MEMBER_INDEX} alter column 1 set statistics 0`,
    ),
  );
}

/**
 * The groups of an organization that list a member. Reads no lists of members, only their
 * index: for that the collation must be the index's, and `offset 0` keeps the planner from
 * comparing all groups with all members.
 */
const groupsThatList = (member: string, organization = '$1::uuid'): string => `lateral (
  select g._key as uuid from cnapi_groups g
  where g.organization = ${organization} and cnapi_group_members(g._value) @> array[(${member}) collate "default"]
  offset 0)`;

/**
 * The names of the groups that a user or client belongs to, also by way of other groups, and which
 * of the groups `wanted` exist. A cycle of groups ends because each group is found once.
 */
export async function readGroups(
  database: Queryable,
  { organizationUuid, kind, uuid }: { organizationUuid: string; kind: PrincipalKind; uuid: string },
  wanted: readonly string[],
): Promise<{ memberOf: string[]; existing: string[] }> {
  const { rows } = await database.query<{ name: string; isMember: boolean }>(
    `with recursive member (uuid) as (
       select direct.uuid from ${groupsThatList('$2::text')} direct
       union
       select outer_group.uuid from member, ${groupsThatList("'group:' || member.uuid")} outer_group)
     select g.name, true as "isMember" from member join cnapi_groups g on g._key = member.uuid
     union all
     select g.name, false from cnapi_groups g where g.organization = $1::uuid and g.name = any($3::text[])`,
    [organizationUuid, `${kind}:${uuid}`, wanted],
  );
  return {
    memberOf: rows.filter(({ isMember }) => isMember).map(({ name }) => name),
    existing: [...new Set(rows.map(({ name }) => name))],
  };
}

/** What the caller of an open stream may still do. */
export interface PresentRight {
  /** The user or client exists, still has this key, and belongs to the organization. */
  isKnown: boolean;
  /** See `readGroups`. */
  memberOf: string[];
  existing: string[];
}

interface Held {
  organizationUuid: string;
  kind: PrincipalKind;
  uuid: string;
  publicKey: string;
}

/** Combines `findPrincipals` and `readGroups` for many callers, one key each, in their order. */
export async function readPresentRights(
  database: Queryable,
  held: readonly Held[],
  wanted: readonly string[],
): Promise<PresentRight[]> {
  const { rows } = await database.query<PresentRight>(
    `with recursive asked as (
       select * from unnest($1::uuid[], $2::text[], $3::text[], $4::text[])
         with ordinality as a (organization, kind, uuid, pem, place)
     ), member (place, organization, uuid) as (
       select a.place, a.organization, direct.uuid from asked a,
         ${groupsThatList("a.kind || ':' || a.uuid", 'a.organization')} direct
       union
       select m.place, m.organization, outer_group.uuid from member m,
         ${groupsThatList("'group:' || m.uuid", 'm.organization')} outer_group)
     select exists (select from cnapi_organizations o where o._key = a.organization::text)
         and exists (select from cnapi_keys k where k.owner = a.uuid::uuid and k._value ->> 'public_key' = a.pem
           and coalesce((k._value ->> 'expires_at')::timestamptz > cnapi_now(), true))
         and case a.kind
           when 'user' then exists (select from cnapi_users u
             where u._key = a.uuid and u._value -> 'organizations' @> to_jsonb(a.organization::text))
           else exists (select from cnapi_clients c where c._key = a.uuid and c.organization = a.organization)
         end as "isKnown",
       array(select g.name from member m join cnapi_groups g on g._key = m.uuid where m.place = a.place)
         as "memberOf",
       array(select g.name from cnapi_groups g where g.organization = a.organization and g.name = any ($5::text[]))
         as existing
     from asked a order by a.place`,
    [
      held.map(({ organizationUuid }) => organizationUuid),
      held.map(({ kind }) => kind),
      held.map(({ uuid }) => uuid),
      held.map(({ publicKey }) => publicKey),
      wanted,
    ],
    { name: 'read rights of open streams' },
  );
  return rows;
}

const NODES = `
  select s.hostname as name, s.uuid as "serverUuid", case when b._value ? 'groups' then array(
    select g.name from cnapi_groups g
    where g.organization = b.organization
      and g._key in (select jsonb_array_elements_text(b._value -> 'groups'))) end as executors
  from cnapi_bindings b join cnapi_servers s on s.uuid = b.server_uuid
  where b.organization = $1::uuid and s.hostname is not null`;

/** The nodes of an organization, in order of name. */
export async function readNodes(database: Queryable, organizationUuid: string): Promise<OrganizationNode[]> {
  const { rows } = await database.query<NodeRow>(`${NODES} order by s.hostname, s.uuid`, [organizationUuid]);
  return rows.map(nodeOf);
}

export async function findNodes(
  database: Queryable,
  organizationUuid: string,
  names: readonly string[],
): Promise<OrganizationNode[]> {
  const { rows } = await database.query<NodeRow>(`${NODES} and s.hostname = any($2::text[])`, [
    organizationUuid,
    names,
  ]);
  return rows.map(nodeOf);
}

const nodeOf = ({ name, serverUuid, executors }: NodeRow): OrganizationNode => ({
  name,
  serverUuid,
  executors: executors === null ? undefined : new Set(executors),
});

/** The kinds of documents that belong to an organization, and the field that names it. */
const DEPENDENTS = [
  ['cnapi_clients', 'organization', ['cnapi_organizations']],
  ['cnapi_groups', 'organization', ['cnapi_organizations']],
  ['cnapi_bindings', 'organization', ['cnapi_organizations']],
  ['cnapi_bindings', 'server_uuid', ['cnapi_servers']],
  ['cnapi_keys', 'owner', ['cnapi_users', 'cnapi_clients']],
] as const;

/**
 * Deletes at most `limit` documents of each kind whose organization, owner or server no longer
 * exists.
 */
export async function deleteOrphans(database: Queryable, limit: number): Promise<number> {
  let deleted = 0;
  for (const [table, field, parents] of DEPENDENTS) {
    const parentless = parents
      .map((parent) => `not exists (select from ${parent} p where p._key = d.${field}::text)`)
      .join(' and ');
    const { rowCount } = await database.query(
      `delete from ${table} where _key in (
         select _key from ${table} d where ${parentless} order by _key limit $1::int for update skip locked)`,
      [limit],
    );
    deleted += rowCount;
  }
  return deleted;
}

export async function isServer(database: Queryable, serverUuid: string): Promise<boolean> {
  const { rows } = await database.query('select 1 from cnapi_servers where uuid = $1::uuid', [serverUuid]);
  return rows.length > 0;
}
