/**
 * SQL over the documents of organizations: what one request needs to know of who sends it, and the
 * nodes of an organization. The documents themselves are written by `control/documents`.
 */
import type { Queryable } from '../../platform/postgres/database.ts';

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
  /** By the database's clock. */
  now: Date;
  principals: FoundPrincipal[];
}

/** A server of an organization, under the name that push jobs use. */
export interface Node {
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

/** More keys of one owner than it can have, because creations at the same time are not counted. */
const MAX_KEYS_TRIED = 20;

/** Users and clients have names of their own, so there may be one of each. */
export async function findPrincipals(database: Queryable, organization: string, name: string): Promise<FoundRequestor> {
  const { rows } = await database.query<{ now: Date } & (FoundPrincipal | { kind: null })>(
    `select clock.now, found.kind, found.uuid, found."isAssociated", array(
       select k._value ->> 'public_key' from cnapi_keys k
       where k.owner = found.uuid::uuid
         and coalesce((k._value ->> 'expires_at')::timestamptz > clock.now, true)
       order by k._id desc limit ${MAX_KEYS_TRIED}) as keys
     from (select cnapi_now() as now) clock left join (
       select 'user' as kind, u._key as uuid, u._value -> 'organizations' @> to_jsonb($1::text) as "isAssociated"
       from cnapi_users u where u.name = $2::text
       union all
       select 'client', c._key, true from cnapi_clients c
       where c.organization = $1::text::uuid and c.name = $2::text) found on true`,
    [organization, name],
  );
  const now = rows[0]?.now ?? new Date(Number.NaN);
  return { now, principals: rows.flatMap((row) => (row.kind === null ? [] : [row])) };
}

/**
 * The names of the groups that a user or client belongs to, also by way of other groups, and which of
 * the groups `wanted` exist. A cycle of groups ends because each group is found once.
 */
export async function readGroups(
  database: Queryable,
  { organization, kind, uuid }: { organization: string; kind: PrincipalKind; uuid: string },
  wanted: readonly string[],
): Promise<{ memberOf: string[]; existing: string[] }> {
  const { rows } = await database.query<{ name: string; isMember: boolean }>(
    `with recursive member (uuid) as (
       select g._key from cnapi_groups g
       where g.organization = $1::uuid and g._value -> ($2::text || 's') @> to_jsonb($3::text)
       union
       select g._key from member join cnapi_groups g
         on g.organization = $1::uuid and g._value -> 'groups' @> to_jsonb(member.uuid))
     select g.name, member.uuid is not null as "isMember"
     from cnapi_groups g left join member on member.uuid = g._key
     where g.organization = $1::uuid and (member.uuid is not null or g.name = any($4::text[]))`,
    [organization, kind, uuid, wanted],
  );
  return {
    memberOf: rows.filter(({ isMember }) => isMember).map(({ name }) => name),
    existing: rows.map(({ name }) => name),
  };
}

const NODES = `
  select s.hostname as name, s.uuid as "serverUuid", case when b._value ? 'groups' then array(
    select g.name from cnapi_groups g
    where g.organization = b.organization
      and g._key in (select jsonb_array_elements_text(b._value -> 'groups'))) end as executors
  from cnapi_bindings b join cnapi_servers s on s.uuid = b.server_uuid
  where b.organization = $1::uuid and s.hostname is not null`;

/** In order of name. */
export async function readNodes(database: Queryable, organization: string): Promise<Node[]> {
  const { rows } = await database.query<NodeRow>(`${NODES} order by s.hostname, s.uuid`, [organization]);
  return rows.map(nodeOf);
}

export async function findNodes(database: Queryable, organization: string, names: readonly string[]): Promise<Node[]> {
  const { rows } = await database.query<NodeRow>(`${NODES} and s.hostname = any($2::text[])`, [organization, names]);
  return rows.map(nodeOf);
}

const nodeOf = ({ name, serverUuid, executors }: NodeRow): Node => ({
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

/** Deletes at most `limit` documents of each kind whose organization, owner or server no longer exists. */
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
