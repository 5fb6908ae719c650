/**
 * The address of Redis: one server, or the master named by a Sentinel group. Pure. Used by
 * `redis-bus.ts`, and by the configuration to check the URL.
 *
 *     redis://[[user]:password@]host:port[/db]
 *     rediss://…                                               with TLS
 *     redis+sentinel://[[user]:password@]s1:26379,s2:26379,s3:26379/mymaster[/db]
 *         [?sentinelUsername=…&sentinelPassword=…]             the part before @ is for the servers
 *     rediss+sentinel://…                                      with TLS to Sentinels and servers
 */
export type RedisTarget =
  | { kind: 'server'; url: string }
  | { kind: 'sentinel'; sentinels: { host: string; port: number }[]; masterName: string; access: SentinelAccess };

interface SentinelAccess {
  tls: boolean;
  db: number;
  username?: string;
  password?: string;
  sentinelUsername?: string;
  sentinelPassword?: string;
}

const SENTINEL_FORM = /^redis(s?)\+sentinel:\/\/([^/?#]*)\/([^/?#]+)(?:\/(\d{1,5}))?(\?[^#]*)?$/;
const HOST = /^(?:\[([0-9a-fA-F:.]+)\]|([^\s:[\]]+))(?::(\d{1,5}))?$/;
const DEFAULT_PORT = 26_379;
const PARAMETERS = ['sentinelUsername', 'sentinelPassword'];

/**
 * @throws TypeError that says what is wrong. It never contains the URL, which may hold passwords.
 */
export function parseRedisUrl(url: string): RedisTarget {
  if (/^rediss?:\/\//.test(url)) return { kind: 'server', url };
  const [, tls, authority = '', masterName = '', db = '0', query = ''] = SENTINEL_FORM.exec(url) ?? [];
  if (tls === undefined)
    throw new TypeError('is neither redis://HOST:PORT nor redis+sentinel://HOST:PORT,HOST:PORT/MASTER');
  const hostsFrom = authority.lastIndexOf('@') + 1;
  const sentinels = authority.slice(hostsFrom).split(',').map(parseSentinel);
  const access = { tls: tls === 's', db: Number(db), ...parseCredentials(authority, hostsFrom), ...parseQuery(query) };
  return { kind: 'sentinel', sentinels, masterName: decode(masterName), access };
}

function parseSentinel(text: string): { host: string; port: number } {
  const [, bracketed, plain, port] = HOST.exec(text) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined) throw new TypeError('names a Sentinel that is not HOST or HOST:PORT');
  return { host, port: port === undefined ? DEFAULT_PORT : Number(port) };
}

function parseCredentials(authority: string, hostsFrom: number): { username?: string; password?: string } {
  if (hostsFrom === 0) return {};
  const [username = '', ...password] = authority.slice(0, hostsFrom - 1).split(':');
  return {
    ...(username === '' ? {} : { username: decode(username) }),
    ...(password.length === 0 ? {} : { password: decode(password.join(':')) }),
  };
}

function parseQuery(query: string): Record<string, string> {
  const found = new URLSearchParams(query);
  const unknown = [...found.keys()].filter((key) => !PARAMETERS.includes(key));
  if (unknown.length > 0)
    throw new TypeError(`has the parameter ${unknown.join(', ')}; known are ${PARAMETERS.join(', ')}`);
  return Object.fromEntries(found);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw new TypeError('has a % that is not %XX');
  }
}
