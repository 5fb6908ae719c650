/**
 * The zone `<datacenter>.<domain>`: the answer to a question, given the live instances. Pure;
 * called by `message.ts` for `name-server.ts`.
 *
 *      <datacenter>.<domain>                         SOA, NS
 *      ns.<datacenter>.<domain>                      A or AAAA of the name server
 *      cnapi.<datacenter>.<domain>                   A, AAAA of the live instances
 *      _http._tcp.cnapi.<datacenter>.<domain>        SRV of the live instances
 *      <uuid>.cnapi.<datacenter>.<domain>            A or AAAA of one live instance
 *
 * Everything may change within a second, so every TTL is 1, also in negative answers (RFC 2308).
 */
import { isIP } from 'node:net';
import type { Answer, SrvAnswer } from 'dns-packet';

const TTL_SECONDS = 1;

export interface Zone {
  readonly datacenter: string;
  readonly domain: string;
  /** The name server's own address. */
  readonly address: string;
}

export interface ZoneInstance {
  readonly uuid: string;
  /** An IP address. A host name works for SRV only. */
  readonly host: string;
  readonly port: number;
}

export interface ZoneQuestion {
  /** The name with the letter case of the query. Answers repeat it. */
  readonly name: string;
  /** IN or ANY; questions of other classes are refused. */
  readonly class: string;
  /** A record type's mnemonic, or UNKNOWN_n. */
  readonly type: string;
}

type Rcode = 'NOERROR' | 'NXDOMAIN' | 'REFUSED';

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

/** Returns the answer, with records in the order of `instances`. */
export function answerQuestion(zone: Zone, instances: readonly ZoneInstance[], question: ZoneQuestion): ZoneAnswer {
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

/**
 * Returns all records of `name`: empty for a name that has only names below it, undefined for a
 * name that does not exist.
 */
function recordsAt(zone: Zone, instances: readonly ZoneInstance[], name: string): Answer[] | undefined {
  const service = serviceName(zone);
  switch (name) {
    case apexOf(zone):
      return [startOfAuthority(zone), { type: 'NS', name, ttl: TTL_SECONDS, data: nameServerName(zone) }];
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

function serviceRecord(zone: Zone, { uuid, host, port }: ZoneInstance, name: string): SrvAnswer {
  const target = isIP(host) ? `${uuid.toLowerCase()}.${serviceName(zone)}` : host;
  return { type: 'SRV', name, ttl: TTL_SECONDS, data: { priority: 0, weight: 0, port, target } };
}

/** Returns the addresses of the name in `answer`, which saves the client a second question. */
function addressesNamedBy(zone: Zone, instances: readonly ZoneInstance[], answer: Answer): Answer[] {
  if (answer.type === 'SRV') return recordsAt(zone, instances, answer.data.target) ?? [];
  if (answer.type === 'NS') return recordsAt(zone, instances, answer.data) ?? [];
  return [];
}

function addressRecords(name: string, host: string): Answer[] {
  switch (isIP(host)) {
    case 4:
      return [{ type: 'A', name, ttl: TTL_SECONDS, data: host }];
    case 6:
      return [{ type: 'AAAA', name, ttl: TTL_SECONDS, data: host }];
    default:
      return [];
  }
}

function nothing(zone: Zone, rcode: Rcode): ZoneAnswer {
  return { rcode, answers: [], authorities: [startOfAuthority(zone)], additionals: [] };
}

/**
 * An ANY query gets a minimal answer, so that nobody can use this server to flood a third party
 * (RFC 8482 section 4.2).
 */
function minimalAny(name: string): Answer {
  return { type: 'HINFO', name, ttl: TTL_SECONDS, data: { cpu: 'RFC8482', os: '' } };
}

function startOfAuthority(zone: Zone): Answer {
  const apex = apexOf(zone);
  return {
    type: 'SOA',
    name: apex,
    ttl: TTL_SECONDS,
    data: {
      mname: nameServerName(zone),
      rname: `hostmaster.${apex}`,
      serial: 1,
      refresh: TTL_SECONDS,
      retry: TTL_SECONDS,
      expire: TTL_SECONDS,
      minimum: TTL_SECONDS,
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
