import type { Answer } from 'dns-packet';
import t from 'tap';
import { answerQuestion, type Instance, type Zone, type ZoneQuestion } from '../../lib/dns/zone.ts';

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

const ask = (name: string, type: string, instances: readonly Instance[] = all, klass = 'IN') =>
  answerQuestion(zone, instances, { name, type, class: klass } satisfies ZoneQuestion);

interface Row {
  name: string;
  type: string;
  rcode?: string;
  answers?: string[];
  authorities?: string[];
  additionals?: string[];
  instances?: readonly Instance[];
}

const soa = ['SOA local.cnapi.internal 1'];
const rows: Record<string, Row> = {
  'SRV names the instances, addresses come along': {
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
  'A of the service': { name: service, type: 'A', answers: ['A 127.0.0.1', 'A 127.0.0.2'] },
  'AAAA of the service': { name: service, type: 'AAAA', answers: ['AAAA ::1'] },
  'A of one instance': { name: `${two.uuid}.${service}`, type: 'A', answers: ['A 127.0.0.2'] },
  'AAAA of an instance that has A only': { name: `${two.uuid}.${service}`, type: 'AAAA', authorities: soa },
  'an instance known by a host name has no address here': {
    name: `${named.uuid}.${service}`,
    type: 'A',
    authorities: soa,
  },
  'an instance that does not live': {
    name: `${two.uuid}.${service}`,
    type: 'A',
    instances: [one],
    rcode: 'NXDOMAIN',
    authorities: soa,
  },
  'a name that never was': { name: `nobody.${service}`, type: 'A', rcode: 'NXDOMAIN', authorities: soa },
  'below an instance is nothing': { name: `x.${one.uuid}.${service}`, type: 'A', rcode: 'NXDOMAIN', authorities: soa },
  'the service exists also while nobody lives': { name: service, type: 'A', instances: [], authorities: soa },
  'so does its SRV name': { name: `_http._tcp.${service}`, type: 'SRV', instances: [], authorities: soa },
  'a name that only has names below it exists': { name: `_tcp.${service}`, type: 'SRV', authorities: soa },
  'SOA of the zone': { name: 'local.cnapi.internal', type: 'SOA', answers: soa },
  'NS of the zone': {
    name: 'local.cnapi.internal',
    type: 'NS',
    answers: ['NS ns.local.cnapi.internal'],
    additionals: ['A 127.0.0.1'],
  },
  'A of the zone': { name: 'local.cnapi.internal', type: 'A', authorities: soa },
  'A of the name server': { name: 'ns.local.cnapi.internal', type: 'A', answers: ['A 127.0.0.1'] },
  'ANY is answered with next to nothing': { name: service, type: 'ANY', answers: ['HINFO RFC8482'] },
  'ANY of what is not': { name: `nobody.${service}`, type: 'ANY', rcode: 'NXDOMAIN', authorities: soa },
  'a type nobody has heard of': { name: service, type: 'UNKNOWN_4711', authorities: soa },
  'another zone': { name: 'example.org', type: 'A', rcode: 'REFUSED' },
  'a zone above': { name: 'cnapi.internal', type: 'SOA', rcode: 'REFUSED' },
  'a name that only ends like the zone': { name: 'notlocal.cnapi.internal', type: 'A', rcode: 'REFUSED' },
  'the root': { name: '.', type: 'NS', rcode: 'REFUSED' },
  'a zone transfer': { name: 'local.cnapi.internal', type: 'AXFR', rcode: 'REFUSED' },
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

t.test('names are asked in any case, and answered in the one asked', async (t) => {
  const asked = '_HTTP._tcp.CnApi.LOCAL.cnapi.Internal';
  t.same(
    ask(asked, 'SRV').answers.map(({ name }) => name),
    Array(4).fill(asked),
  );
});

t.test('every record lives for a second, so that who has gone is soon forgotten', async (t) => {
  const answers = [ask(`_http._tcp.${service}`, 'SRV'), ask(service, 'A'), ask('x.local.cnapi.internal', 'A')];
  const records = answers.flatMap(({ answers, authorities, additionals }) => [
    ...answers,
    ...authorities,
    ...additionals,
  ]);
  t.ok(records.length > 5 && records.every((record) => record.type !== 'OPT' && record.ttl === 1));
});

t.test('nothing is known of classes but IN', async (t) => {
  t.equal(ask(service, 'A', all, 'CH').rcode, 'REFUSED');
  t.equal(ask(service, 'A', all, 'ANY').answers.length, 2);
});
