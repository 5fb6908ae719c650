/**
 * Finds the live instances by DNS name. An agent uses it at its first contact, and when every
 * address it knows fails. Asks the given name server, or the operating system's if none is given.
 */
import type { SrvRecord } from 'node:dns';
import { NODATA, Resolver } from 'node:dns/promises';
import { isIP } from 'node:net';
import type { DecodedPacket, SrvAnswer, SrvData } from 'dns-packet';
import { CnapiError, messageOf } from '../errors.ts';
import { type Random, shuffled } from '../random.ts';
import type { Clock } from '../time/clock.ts';
import { UUID } from '../uuid.ts';
import { type Asker, askNameServer, type ServerAddress } from './exchange.ts';
import { lookUpHost } from './host-lookup.ts';
import { serviceName } from './zone.ts';

interface ResolveOptions {
  /** `ip:port` or `[ip]:port`. Without it the operating system's resolver is used. */
  server?: string | undefined;
  datacenter: string;
  domain: string;
  timeoutMs: number;
  clock: Clock;
  random: Random;
}

interface ResolvedInstance {
  /** Undefined when the owner of the name publishes instances under other names. */
  uuid: string | undefined;
  host: string;
  port: number;
}

/** DNS does not provide the instances' addresses; try again, or configure an address. 503. */
export class NameResolutionError extends CnapiError {
  constructor(name: string, server: string, reason: string, cause?: unknown) {
    const message = `${name} cannot be resolved by ${server}: ${reason}; check the name server and try again`;
    super('NameResolutionFailed', 503, message, { cause, retryAfterSeconds: 1 });
  }
}

/**
 * Returns the live instances in random order; an empty list when the name exists but no instance is
 * live.
 * @throws NameResolutionError when no usable answer comes in time; TypeError when `server` is not
 * an address
 */
export async function resolveInstances(options: ResolveOptions): Promise<ResolvedInstance[]> {
  const { server, timeoutMs, clock, random } = options;
  const name = `_http._tcp.${serviceName(options)}`;
  const asker = server === undefined ? undefined : { server: parseServer(server), timeoutMs, clock, random };
  try {
    const found = asker ? await findByServer(asker, name) : await findBySystem(name, options);
    const uuidOf = (target: string) => uuidIn(target, serviceName(options));
    return shuffled(found, random).map(({ target, host, port }) => ({ uuid: uuidOf(target), host, port }));
  } catch (err) {
    throw new NameResolutionError(name, server ?? 'the system', messageOf(err), err);
  }
}

/** Parses `127.0.0.1:8083` or `[::1]:8083`. */
export function parseServer(text: string): ServerAddress {
  const [, bracketed, plain, digits] = /^(?:\[(.+)\]|([^[\]:]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = bracketed ?? plain ?? '';
  const port = Number(digits);
  if (!isIP(host) || !(port >= 1 && port <= 65_535)) {
    throw new TypeError(`Not the address of a name server: "${text}"; write 127.0.0.1:8083 or [::1]:8083`);
  }
  return { host, port };
}

interface Found {
  target: string;
  host: string;
  port: number;
}

async function findByServer(asker: Asker, name: string): Promise<Found[]> {
  const reply = await askWell(asker, name, 'SRV');
  const services = (reply.answers ?? []).filter((record): record is SrvAnswer => record.type === 'SRV');
  const found = await Promise.all(services.map(({ data }) => locate(asker, reply, data)));
  return found.flat();
}

/** Finds the addresses of one instance: in the reply if it has them, otherwise by another query. */
async function locate(asker: Asker, reply: DecodedPacket, { target, port }: SrvData): Promise<Found[]> {
  const known = selectAddresses(reply.additionals, target);
  const hosts = known.length > 0 ? known : await askAddresses(asker, target);
  return hosts.map((host) => ({ target, host, port }));
}

/** Returns an empty list, not an error, for an instance that has left since it was named. */
async function askAddresses(asker: Asker, target: string): Promise<string[]> {
  const replies = await Promise.all([askNameServer(asker, target, 'A'), askNameServer(asker, target, 'AAAA')]);
  return replies.flatMap(({ answers }) => selectAddresses(answers, target));
}

function selectAddresses(records: DecodedPacket['answers'], target: string): string[] {
  const name = target.toLowerCase();
  return (records ?? []).flatMap((record) =>
    (record.type === 'A' || record.type === 'AAAA') && record.name.toLowerCase() === name ? [record.data] : [],
  );
}

/** Like `ask`, but throws on any rcode other than success. */
async function askWell(asker: Asker, name: string, type: 'SRV'): Promise<DecodedPacket> {
  const reply = await askNameServer(asker, name, type);
  // The codec decodes the rcode, although its type declarations omit it.
  const { rcode } = reply as DecodedPacket & { rcode: string };
  if (rcode !== 'NOERROR') throw new Error(`the name server answered ${rcode}`);
  return reply;
}

async function findBySystem(name: string, { timeoutMs, clock }: ResolveOptions): Promise<Found[]> {
  const services = await new Resolver({ timeout: timeoutMs, tries: 1 }).resolveSrv(name).catch(noneIfNoData);
  const located = await Promise.all(
    services.map(async ({ name: target, port }) => {
      const [host] = await lookUpHost(target, { clock, withinMs: timeoutMs });
      return host === undefined ? [] : [{ target, port, host }];
    }),
  );
  return located.flat();
}

function noneIfNoData(err: NodeJS.ErrnoException): SrvRecord[] {
  if (err.code === NODATA) return [];
  throw err;
}

function uuidIn(target: string, service: string): string | undefined {
  const suffix = `.${service}`;
  const label = target.toLowerCase().endsWith(suffix) ? target.slice(0, -suffix.length).toLowerCase() : '';
  return UUID.test(label) ? label : undefined;
}
