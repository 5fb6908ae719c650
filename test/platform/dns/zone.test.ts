import type { Answer } from 'dns-packet';
import t from 'tap';
import { answerQuestion, type Zone, type ZoneInstance, type ZoneQuestion } from '../../../lib/platform/dns/zone.ts';

const zone: Zone = { datacenter: 'local', domain: 'cnapi.internal', address: '127.0.0.1' };
const one = { uuid: '11111111-1111-4111-8111-111111111111', host: '127.0.0.1', port: 8080 };
const two = { uuid: '22222222-2222-4222-8222-222222222222', host: '127.0.0.2', port: 8081 };
const six = { uuid: '66666666-6666-4666-8666-666666666666', host: '::1', port: 8082 };
const named = { uuid: '77777777-7777-4777-8777-777777777777', host: 'host.example', port: 8083 };
const all = [one, two, six, named];
const service = 'cnapi.local.cnapi.internal';

/** A record as `type data`. */
const brief = (record: Answer) => {
  if (record.type === 'SRV') return `SRV ${record.data.port} ${record.data.target}`;
  if (record.type === 'SOA') return `SOA ${record.name} ${record.data.minimum}`;
  if (record.type === 'HINFO') return `HINFO ${record.data.cpu}`;
  return record.type === 'OPT' ? 'OPT' : `${record.type} ${String(record.data)}`;
};

const ask = (name: string, type: string, instances: readonly ZoneInstance[] = all, klass = 'IN') =>
  answerQuestion(zone, instances, { name, type, class: klass } satisfies ZoneQuestion);

interface Row {
  name: string;
  type: string;
  rcode?: string;
  answers?: string[];
  authorities?: string[];
  additionals?: string[];
  instances?: readonly ZoneInstance[];
}

const soa = ['SOA local.cnapi.internal 1'];
const rows: Record<string, Row> = {
  'SRV of the service names the instances, with their addresses': {
    name: `_http._tcp.${service}`,
    type: 'SRV',
    answers: [
      `SRV 8080 ${one.uuid}.${service}`,
      `SRV 8081 ${two.uuid}.${service}`,
      `SRV 8082 ${six.uuid}.${service}`,
      'SRV 8083 host.example',
    ],
    additionals: ['A 127.0.0.1', 'A 127.0.0.2', 'AAAA ::1'],
  },
  'A of the service names the IPv4 addresses': { name: service, type: 'A', answers: ['A 127.0.0.1', 'A 127.0.0.2'] },
  'AAAA of the service names the IPv6 addresses': { name: service, type: 'AAAA', answers: ['AAAA ::1'] },
  'A of one instance': { name: `${two.uuid}.${service}`, type: 'A', answers: ['A 127.0.0.2'] },
  'AAAA of an instance that has only A is empty': { name: `${two.uuid}.${service}`, type: 'AAAA', authorities: soa },
  'an instance with a host name has no address in the zone': {
    name: `${named.uuid}.${service}`,
    type: 'A',
    authorities: soa,
  },
  'an instance that is not live is NXDOMAIN': {
    name: `${two.uuid}.${service}`,
    type: 'A',
    instances: [one],
    rcode: 'NXDOMAIN',
    authorities: soa,
  },
  'an unknown name is NXDOMAIN': { name: `nobody.${service}`, type: 'A', rcode: 'NXDOMAIN', authorities: soa },
  'a name below an instance is NXDOMAIN': {
    name: `x.${one.uuid}.${service}`,
    type: 'A',
    rcode: 'NXDOMAIN',
    authorities: soa,
  },
  'the service exists even without a live instance': { name: service, type: 'A', instances: [], authorities: soa },
  'the SRV name exists even without a live instance': {
    name: `_http._tcp.${service}`,
    type: 'SRV',
    instances: [],
    authorities: soa,
  },
  'a name that only has names below it exists': { name: `_tcp.${service}`, type: 'SRV', authorities: soa },
  'SOA of the zone': { name: 'local.cnapi.internal', type: 'SOA', answers: soa },
  'NS of the zone': {
    name: 'local.cnapi.internal',
    type: 'NS',
    answers: ['NS ns.local.cnapi.internal'],
    additionals: ['A 127.0.0.1'],
  },
  'A of the zone is empty': { name: 'local.cnapi.internal', type: 'A', authorities: soa },
  'A of the name server': { name: 'ns.local.cnapi.internal', type: 'A', answers: ['A 127.0.0.1'] },
  'ANY is answered with HINFO only': { name: service, type: 'ANY', answers: ['HINFO RFC8482'] },
  'ANY of an unknown name is NXDOMAIN': { name: `nobody.${service}`, type: 'ANY', rcode: 'NXDOMAIN', authorities: soa },
  'an unknown type is empty': { name: service, type: 'UNKNOWN_4711', authorities: soa },
  'another zone is refused': { name: 'example.org', type: 'A', rcode: 'REFUSED' },
  'a parent zone is refused': { name: 'cnapi.internal', type: 'SOA', rcode: 'REFUSED' },
  'a name that only ends like the zone is refused': { name: 'notlocal.cnapi.internal', type: 'A', rcode: 'REFUSED' },
  'the root is refused': { name: '.', type: 'NS', rcode: 'REFUSED' },
  'a zone transfer is refused': { name: 'local.cnapi.internal', type: 'AXFR', rcode: 'REFUSED' },
};

for (const [title, row] of Object.entries(rows)) {
  t.test(title, async (t) => {
    const answer = ask(row.name, row.type, row.instances);
    t.equal(answer.rcode, row.rcode ?? 'NOERROR');
    t.same(answer.answers.map(brief), row.answers ?? []);
    t.same(answer.authorities.map(brief), row.authorities ?? []);
    t.same(answer.additionals.map(brief), row.additionals ?? []);
  });
}

t.test('names match in any case and are answered in the case of the query', async (t) => {
  const asked = '_HTTP._tcp.CnApi.LOCAL.cnapi.Internal';
  t.same(
    ask(asked, 'SRV').answers.map(({ name }) => name),
    Array(4).fill(asked),
  );
});

t.test('every record has a TTL of one second', async (t) => {
  const answers = [ask(`_http._tcp.${service}`, 'SRV'), ask(service, 'A'), ask('x.local.cnapi.internal', 'A')];
  const records = answers.flatMap(({ answers, authorities, additionals }) => [
    ...answers,
    ...authorities,
    ...additionals,
  ]);
  t.ok(records.length > 5 && records.every((record) => record.type !== 'OPT' && record.ttl === 1));
});

t.test('a class other than IN or ANY is refused', async (t) => {
  t.equal(ask(service, 'A', all, 'CH').rcode, 'REFUSED');
  t.equal(ask(service, 'A', all, 'ANY').answers.length, 2);
});
