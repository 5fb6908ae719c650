/** What a request says of its answer: its form, and the base URL that the caller used. Pure. */
import { isIPv6 } from 'node:net';
import { NotAcceptableError } from '../pushy-errors.ts';

/**
 * @throws NotAcceptableError if the header Accept accepts neither the type nor a range that
 * includes it
 */
export function checkAccept(accept: string | undefined, contentType: string): void {
  const type = contentType.slice(0, contentType.indexOf('/'));
  const ranges = (accept ?? '*/*').split(',').map(parseRange);
  // The most specific range counts, as in RFC 9110.
  const range = [contentType, `${type}/*`, '*/*'].map((name) => ranges.find((one) => one.name === name)).find(Boolean);
  if (range === undefined || range.isRefused) throw new NotAcceptableError(contentType);
}

function parseRange(text: string): { name: string; isRefused: boolean } {
  const [name = '', ...parameters] = text.split(';').map((part) => part.trim().toLowerCase());
  return { name, isRefused: parameters.some((one) => /^q=0(\.0*)?$/.test(one)) };
}

const DEFAULT_PORTS: Readonly<Record<string, string>> = { http: '80', https: '443' };

/**
 * Where the caller reaches this instance. A proxy may speak TLS before it, and says so. The header
 * Host has been checked.
 */
export function baseUrlOf({
  host: given,
  forwardedProto,
  isTls,
}: {
  host: string;
  forwardedProto: string | undefined;
  isTls: boolean;
}): string {
  const scheme = forwardedProto === 'https' || forwardedProto === 'http' ? forwardedProto : isTls ? 'https' : 'http';
  // Without the header it is the configured address, which has no brackets.
  const host = isIPv6(given) ? `[${given}]` : given;
  const [, name = host, port] = /^(.*?):(\d+)$/.exec(host) ?? [];
  return `${scheme}://${port === DEFAULT_PORTS[scheme] ? name : host}`;
}
