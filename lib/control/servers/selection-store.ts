/** SQL of the filter language over servers (lib/protocol/where.ts). */
import type { Queryable } from '../../platform/postgres/database.ts';
import { SqlParameters } from '../../platform/postgres/sql-text.ts';
import type { WhereCondition } from '../../protocol/where.ts';

interface SelectedServer {
  serverUuid: string;
  hostname: string;
}

export interface SelectedServers {
  /** The selected servers in order of uuid. */
  servers: SelectedServer[];
  /**
   * The name of a condition that no server has. With `!=` a misspelt name would select all servers.
   */
  unknown: string | undefined;
}

/** Properties that lists show, and that are not in the document as it is stored. */
const TRANSITION = `case when s._value -> 'transitional_epoch' = to_jsonb(a.epoch)
  then nullif(s._value ->> 'transitional_status', '') end`;
const DERIVED: ReadonlyMap<string, string> = new Map([
  ['status', `case when a.status = 'running' then 'running' else coalesce(${TRANSITION}, 'unknown') end`],
  ['transitional_status', TRANSITION],
]);
/** Not shown by lists. */
const HIDDEN = ['agents', 'resetting', 'transitional_epoch'];

/** The servers that meet all conditions, at most `most`. */
export async function selectServers(
  database: Queryable,
  conditions: readonly WhereCondition[],
  limit: number,
): Promise<SelectedServers> {
  const parameters = new SqlParameters([limit]);
  const meets = conditions.map(({ path, isNot, parts }) => {
    const [name = '', ...rest] = path;
    const value = rest.length === 0 ? DERIVED.get(name) : undefined;
    const shown = value ?? `s._value #>> ${parameters.add(path, 'text[]')}`;
    return `coalesce(${shown}, '') ${isNot ? 'not ' : ''}like ${parameters.add(patternOf(parts), 'text')}`;
  });
  const columns = conditions.map(({ path: [name = '', ...rest] }) => {
    if (HIDDEN.includes(name)) return 'false';
    if (rest.length === 0 && DERIVED.has(name)) return 'true';
    const path = parameters.add([name, ...rest], 'text[]');
    return `exists (select 1 from cnapi_servers s where s.uuid is not null and s._value #> ${path} is not null)`;
  });
  const { rows } = await database.query<{ servers: [string, string][]; known: boolean[] }>(
    `with picked as (
       select s.uuid, coalesce(s.hostname, '') as hostname
         from cnapi_servers s left join cnapi_roster_authority a on a.server_uuid = s.uuid
         where ${['s.uuid is not null', ...meets].join(' and ')}
         order by s.uuid limit $1::int
     )
     select (select coalesce(json_agg(json_build_array(p.uuid, p.hostname) order by p.uuid), '[]') from picked p) as servers,
       array[${columns.join(', ')}]::boolean[] as known`,
    parameters.values,
  );
  const [row = { servers: [], known: [] }] = rows;
  const unknown = conditions[row.known.indexOf(false)]?.path.join('.');
  return { servers: row.servers.map(([serverUuid, hostname]) => ({ serverUuid, hostname })), unknown };
}

const patternOf = (parts: readonly string[]): string => parts.map((part) => part.replace(/[\\%_]/g, '\\$&')).join('%');
