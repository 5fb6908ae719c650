/**
 * The zone `<datacenter>.<domain>`: what is answered to a question, given the instances that live. Pure; asked by
 * `message.ts` for `name-server.ts`.
 *
 *     <datacenter>.<domain>                         SOA, NS
 *     ns.<datacenter>.<domain>                      A or AAAA of the name server
 *     cnapi.<datacenter>.<domain>                   A, AAAA of the living instances
 *     _http._tcp.cnapi.<datacenter>.<domain>        SRV of the living instances
 *     <uuid>.cnapi.<datacenter>.<domain>            A or AAAA of one living instance
 *
 * Everything may change within a second, so every TTL is 1, also of what does not exist (RFC 2308).
 */
import { isIP } from 'node:net';
import type { Answer, SrvAnswer } from 'dns-packet';

export const ttlSeconds = 1;

export interface Zone {
  readonly datacenter: string;
  readonly domain: string;
  /** The name server's own address. */
  readonly address: string;
}

export interface Instance {
  readonly uuid: string;
  /** An IP address; a host name is good for SRV only. */
  readonly host: string;
  readonly port: number;
}

export interface ZoneQuestion {
  /** As it was asked, in any case; answers repeat it. */
  readonly name: string;
  /** IN or ANY; nothing is known of other classes. */
  readonly class: string;
  /** A record type's mnemonic, or UNKNOWN_n. */
  readonly type: string;
}

export type Rcode = 'NOERROR' | 'NXDOMAIN' | 'REFUSED';

export interface ZoneAnswer {
  readonly rcode: Rcode;
  readonly answers: readonly Answer[];
  readonly authorities: readonly Answer[];
  readonly additionals: readonly Answer[];
}

const refused: ZoneAnswer = { rcode: 'REFUSED', answers: [], authorities: [], additionals: [] };

export function serviceName({ datacenter, domain }: Pick<Zone, 'datacenter' | 'domain'>): string {
  return `cnapi.${datacenter}.${domain}`.toLowerCase();
}

/** The answer, with records in the order of `instances`. */
export function answerQuestion(zone: Zone, instances: readonly Instance[], question: ZoneQuestion): ZoneAnswer {
  const apex = apexOf(zone);
  const name = question.name.toLowerCase();
  const isOurs = name === apex || name.endsWith(`.${apex}`);
  if (!isOurs || !['IN', 'ANY'].includes(question.class) || isTransfer(question.type)) return refused;
  const records = recordsAt(zone, instances, name);
  if (records === undefined) return nothing(zone, 'NXDOMAIN');
  const answers = records.filter(({ type }) => type === question.type);
  if (question.type === 'ANY') answers.push(minimalAny(name));
  if (answers.length === 0) return nothing(zone, 'NOERROR');
  return {
    rcode: 'NOERROR',
    answers: answers.map((answer) => ({ ...answer, name: question.name })),
    authorities: [],
    additionals: answers.flatMap((answer) => addressesNamedBy(zone, instances, answer)),
  };
}

/** All records of `name`; empty for a name that only has names below it, undefined for one that does not exist. */
function recordsAt(zone: Zone, instances: readonly Instance[], name: string): Answer[] | undefined {
  const service = serviceName(zone);
  switch (name) {
    case apexOf(zone):
      return [startOfAuthority(zone), { type: 'NS', name, ttl: ttlSeconds, data: nameServerName(zone) }];
    case nameServerName(zone):
      return addressRecords(name, zone.address);
    case service:
      return instances.flatMap(({ host }) => addressRecords(name, host));
    case `_tcp.${service}`:
      return [];
    case `_http._tcp.${service}`:
      return instances.map((instance) => serviceRecord(zone, instance, name));
    default: {
      const instance = instances.find(({ uuid }) => name === `${uuid.toLowerCase()}.${service}`);
      return instance && addressRecords(name, instance.host);
    }
  }
}

function serviceRecord(zone: Zone, { uuid, host, port }: Instance, name: string): SrvAnswer {
  const target = isIP(host) ? `${uuid.toLowerCase()}.${serviceName(zone)}` : host;
  return { type: 'SRV', name, ttl: ttlSeconds, data: { priority: 0, weight: 0, port, target } };
}

/** The addresses of the name that `answer` points to, to spare a second question. */
function addressesNamedBy(zone: Zone, instances: readonly Instance[], answer: Answer): Answer[] {
  if (answer.type === 'SRV') return recordsAt(zone, instances, answer.data.target) ?? [];
  if (answer.type === 'NS') return recordsAt(zone, instances, answer.data) ?? [];
  return [];
}

function addressRecords(name: string, host: string): Answer[] {
  switch (isIP(host)) {
    case 4:
      return [{ type: 'A', name, ttl: ttlSeconds, data: host }];
    case 6:
      return [{ type: 'AAAA', name, ttl: ttlSeconds, data: host }];
    default:
      return [];
  }
}

function nothing(zone: Zone, rcode: Rcode): ZoneAnswer {
  return { rcode, answers: [], authorities: [startOfAuthority(zone)], additionals: [] };
}

/** ANY is answered with as little as possible, so that nobody is flooded by way of us (RFC 8482 section 4.2). */
function minimalAny(name: string): Answer {
  return { type: 'HINFO', name, ttl: ttlSeconds, data: { cpu: 'RFC8482', os: '' } };
}

function startOfAuthority(zone: Zone): Answer {
  const apex = apexOf(zone);
  return {
    type: 'SOA',
    name: apex,
    ttl: ttlSeconds,
    data: {
      mname: nameServerName(zone),
      rname: `hostmaster.${apex}`,
      serial: 1,
      refresh: ttlSeconds,
      retry: ttlSeconds,
      expire: ttlSeconds,
      minimum: ttlSeconds,
    },
  };
}

function isTransfer(type: string): boolean {
  return type === 'AXFR' || type === 'IXFR';
}

function apexOf({ datacenter, domain }: Zone): string {
  return `${datacenter}.${domain}`.toLowerCase();
}

function nameServerName(zone: Zone): string {
  return `ns.${apexOf(zone)}`;
}
