/**
 * Parses the address of a database in libpq's form:
 * `postgres://user:password@h1:5432,h2:5433/name?target_session_attrs=read-write`. Pure. Used by
 * `hosts.ts`, checked by the configuration.
 */
const FORM = /^(postgres(?:ql)?:\/\/)([^/?#]*)([^?#]*)(\?[^#]*)?$/;
/** Such a character in a password ends the host early, or changes the password. */
const ENCODE = 'in the user and the password write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25';
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
  if (scheme === undefined) throw new TypeError(`is not a postgres:// URL${url.includes('#') ? `; ${ENCODE}` : ''}`);
  const attributes = new URLSearchParams(query).get('target_session_attrs') ?? 'read-write';
  if (!ATTRIBUTES.includes(attributes))
    throw new TypeError(`has target_session_attrs=${attributes}; cnapi writes, so it is ${ATTRIBUTES.join(' or ')}`);
  const hostsFrom = authority.lastIndexOf('@') + 1;
  const hosts = authority.slice(hostsFrom).split(',');
  // A socket is in the query, and no host at all means this machine.
  const isLocal = hosts.length === 1 && hosts[0] === '';
  if (!isLocal && !hosts.every(isHost))
    throw new TypeError(
      `has a host that is not HOST or HOST:PORT; ${url.includes('@', scheme.length + authority.length) ? ENCODE : 'correct it'}`,
    );
  for (const part of [authority.slice(0, hostsFrom), path])
    if (!isEncoded(part)) throw new TypeError(`has a % that is not followed by two hexadecimal digits; ${ENCODE}`);
  if (hosts.length === 1) return [url];
  return hosts.map((host) => `${scheme}${authority.slice(0, hostsFrom)}${host}${path}${query}`);
}

/** `URL` refuses a host with an invalid port. */
const isHost = (host: string): boolean => HOST.test(host) && URL.canParse(`postgres://${host}/`);

function isEncoded(part: string): boolean {
  try {
    decodeURIComponent(part);
    return true;
  } catch {
    return false;
  }
}

/**
 * Names a database in messages: `cnapi at h1:5432,h2:5433`. Never contains the user or the
 * password.
 * @throws TypeError like hostUrls
 */
export function databaseText(url: string): string {
  // `URL` takes no user without a host, which the driver takes.
  const urls = hostUrls(url).map((each) => new URL(each.replace(/^([a-z]+:\/\/[^/?#]*@)(?=[/?]|$)/, '$1localhost')));
  const hosts = urls.map(({ hostname, port, searchParams }) => {
    const host = searchParams.get('host') ?? (hostname || 'localhost');
    return `${host}:${searchParams.get('port') ?? (port || DEFAULT_PORT)}`;
  });
  const name = decodeURIComponent(urls[0]?.pathname.slice(1) ?? '');
  return `${name || "its user's database"} at ${hosts.join(',')}`;
}
