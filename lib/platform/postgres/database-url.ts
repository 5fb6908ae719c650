/**
 * Parses the address of a database in libpq's form:
 * `postgres://user:password@h1:5432,h2:5433/name?target_session_attrs=read-write`. Pure. Used by
 * `hosts.ts`, checked by the configuration.
 */
const FORM = /^(postgres(?:ql)?:\/\/)([^/?#]*)([^?#]*)(\?[^#]*)?$/;
const DEFAULT_PORT = '5432';
const HOST = /^(\[[0-9a-fA-F:.]+\]|[^\s:[\]]+)(:\d{1,5})?$/;
/** Any connection of cnapi may write. */
const ATTRIBUTES = ['read-write', 'primary'];

/**
 * Returns one URL for each host, in order; a URL with one host is returned unchanged.
 * @throws TypeError that says what is wrong. It never contains the URL, which holds a password.
 */
export function hostUrls(url: string): string[] {
  const [, scheme, authority = '', path = '', query = ''] = FORM.exec(url) ?? [];
  if (scheme === undefined) throw new TypeError('is not a postgres:// URL');
  const attributes = new URLSearchParams(query).get('target_session_attrs') ?? 'read-write';
  if (!ATTRIBUTES.includes(attributes))
    throw new TypeError(`has target_session_attrs=${attributes}; cnapi writes, so it is ${ATTRIBUTES.join(' or ')}`);
  const hostsFrom = authority.lastIndexOf('@') + 1;
  const hosts = authority.slice(hostsFrom).split(',');
  if (hosts.length === 1) return [url];
  if (!hosts.every((host) => HOST.test(host)))
    throw new TypeError(
      'has several hosts and one of them is not HOST or HOST:PORT (special characters before the @ are written as %XX)',
    );
  return hosts.map((host) => `${scheme}${authority.slice(0, hostsFrom)}${host}${path}${query}`);
}

/**
 * Names a database in messages: `cnapi at h1:5432,h2:5433`. Never contains the user or the password.
 * @throws TypeError like hostUrls, and if the URL cannot be parsed
 */
export function databaseText(url: string): string {
  const urls = hostUrls(url).map((each) => new URL(each));
  const hosts = urls.map(({ hostname, port, searchParams }) => {
    const host = searchParams.get('host') ?? (hostname || 'localhost');
    return `${host}:${searchParams.get('port') ?? (port || DEFAULT_PORT)}`;
  });
  const name = decodeURIComponent(urls[0]?.pathname.slice(1) ?? '');
  return `${name || "its user's database"} at ${hosts.join(',')}`;
}
