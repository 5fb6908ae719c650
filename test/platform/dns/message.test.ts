import { type Answer, type DecodedPacket, decode, encode, type OptAnswer, type Packet } from 'dns-packet';
import fc from 'fast-check';
import t from 'tap';
import { decodeDnsMessage, optionsRecord, replyTo } from '../../../lib/platform/dns/message.ts';
import { answerQuestion, type Zone } from '../../../lib/platform/dns/zone.ts';
import { matchLists } from '../../support/match-lists.ts';

const zone: Zone = { datacenter: 'local', domain: 'cnapi.internal', address: '127.0.0.1' };
const service = 'cnapi.local.cnapi.internal';
const instancesNumbering = (count: number) =>
  Array.from({ length: count }, (_, n) => ({
    uuid: `11111111-1111-4111-8111-${String(n).padStart(12, '0')}`,
    host: `127.0.${n >> 8}.${n & 255}`,
    port: 8080 + n,
  }));

type Reply = DecodedPacket & { rcode: string };
const rawReply = (bytes: Buffer, { transport = 'udp' as 'udp' | 'tcp', count = 3 } = {}) =>
  replyTo(bytes, transport, (question) => answerQuestion(zone, instancesNumbering(count), question));
const reply = (packet: Packet, options = {}): Reply => {
  const bytes = rawReply(encode({ type: 'query', id: 7, ...packet }), options);
  if (!bytes) throw new Error('no reply');
  return decode(bytes) as Reply;
};
const srv = { name: `_http._tcp.${service}`, type: 'SRV', class: 'IN' } as const;
const edns = (udpPayloadSize: number, more: Partial<OptAnswer> = {}): Answer => ({
  ...optionsRecord({ extendedRcode: 0, dnssecOk: false }),
  udpPayloadSize,
  ...more,
});

t.test('a reply carries the id, the question and the recursion bit of its query', async (t) => {
  const name = srv.name.toUpperCase();
  const answer = reply({ id: 4711, flags: 0x100, questions: [{ ...srv, name }] }, { count: 2 });
  t.match(answer, { id: 4711, type: 'response', flag_aa: true, flag_rd: true, flag_ra: false, flag_tc: false });
  t.equal(answer.rcode, 'NOERROR');
  t.same(answer.questions, [{ ...srv, name }]);
  t.equal(answer.answers?.length, 2);
  t.equal(answer.additionals?.length, 2);
});

t.test('an unknown type and class are copied to the reply', async (t) => {
  const bytes = encode({ type: 'query', id: 7, questions: [srv] });
  bytes.writeUInt16BE(4711, bytes.length - 4);
  bytes.writeUInt16BE(254, bytes.length - 2);
  const answer = rawReply(bytes);
  t.same(answer?.subarray(12), bytes.subarray(12));
  t.equal((answer && (decode(answer) as Reply).rcode) ?? '', 'REFUSED');
});

t.test('a datagram has at most the size asked for; what does not fit is truncated', async (t) => {
  const sizes: [title: string, packet: Packet, options: object, expected: object][] = [
    ['fits', { questions: [srv] }, { count: 2 }, { tc: false, answers: 2, additionals: 2 }],
    ['fits without addresses', { questions: [srv] }, { count: 3 }, { tc: false, answers: 3, additionals: 0 }],
    ['does not fit into 512', { questions: [srv] }, { count: 5 }, { tc: true, answers: 0, additionals: 0 }],
    [
      'fits by EDNS',
      { questions: [srv], additionals: [edns(1_232)] },
      { count: 5 },
      { tc: false, answers: 5, additionals: 6 },
    ],
    [
      'a size below 512 counts as 512',
      { questions: [srv], additionals: [edns(10)] },
      { count: 3 },
      { tc: false, answers: 3, additionals: 1 },
    ],
    [
      'a size above 1232 counts as 1232',
      { questions: [srv], additionals: [edns(65_000)] },
      { count: 20 },
      { tc: true, answers: 0, additionals: 1 },
    ],
    [
      'TCP has room',
      { questions: [srv] },
      { count: 200, transport: 'tcp' },
      { tc: false, answers: 200, additionals: 200 },
    ],
    [
      'even TCP has a limit',
      { questions: [srv] },
      { count: 600, transport: 'tcp' },
      { tc: true, answers: 0, additionals: 0 },
    ],
  ];
  for (const [title, packet, options, expected] of sizes) {
    const { flag_tc: tc, answers, additionals } = reply(packet, options);
    t.same({ tc, answers: answers?.length, additionals: additionals?.length }, expected, title);
  }
});

t.test('EDNS is answered with EDNS and its DO bit; a newer version is refused', async (t) => {
  t.match(
    reply({ questions: [srv], additionals: [edns(4_096, { flags: 0x8000, flag_do: true })] }).additionals?.at(-1),
    {
      type: 'OPT',
      udpPayloadSize: 1_232,
      ednsVersion: 0,
      flag_do: true,
    },
  );
  const newer = reply({ questions: [srv], additionals: [edns(4_096, { ednsVersion: 1 })] });
  matchLists(t, newer, {
    rcode: 'NOERROR',
    answers: [],
    additionals: [{ type: 'OPT', extendedRcode: 1, ednsVersion: 0 }],
  });
  t.same(
    reply({ questions: [srv] }, { count: 1 }).additionals?.map(({ type }) => type),
    ['A'],
    'without EDNS in the query there is none in the reply',
  );
});

t.test('a query that does not have exactly one question is answered with its error', async (t) => {
  const question = { name: service, type: 'A' } as const;
  const record: Answer = { name: service, type: 'A', data: '127.0.0.1' };
  const rows: [title: string, packet: Packet, rcode: string][] = [
    ['no question', { questions: [] }, 'FORMERR'],
    ['two questions', { questions: [question, question] }, 'FORMERR'],
    ['an answer in a query', { questions: [question], answers: [record] }, 'FORMERR'],
    ['two OPT records', { questions: [question], additionals: [edns(512), edns(512)] }, 'FORMERR'],
    ['too many additionals', { questions: [question], additionals: Array(9).fill(record) }, 'FORMERR'],
    ['NOTIFY', { flags: 4 << 11, questions: [question] }, 'NOTIMP'],
    ['UPDATE', { flags: 5 << 11, questions: [question] }, 'NOTIMP'],
    ['another zone', { questions: [{ name: 'example.org', type: 'A' }] }, 'REFUSED'],
  ];
  for (const [title, packet, rcode] of rows) t.match(reply(packet), { id: 7, rcode }, title);
});

t.test('a name with a dot inside a label is not taken for a name of the zone', async (t) => {
  const bytes = encode({ type: 'query', id: 7, questions: [{ name: 'xlocal.cnapi.internal', type: 'A' }] });
  bytes[12 + 'xlocal'.length + 1] = 0x2e;
  bytes[12] = 'xlocal.cnapi'.length;
  t.match(decode(rawReply(bytes) ?? Buffer.alloc(0)), { rcode: 'FORMERR' });
});

t.test('a response, or bytes too short for a message, get no reply', async (t) => {
  t.equal(rawReply(encode({ type: 'response', id: 7, questions: [srv] })), undefined);
  for (let length = 0; length < 12; length++) t.equal(rawReply(Buffer.alloc(length)), undefined);
});

t.test('a header with false counts costs far less to decode than with the codec', async (t) => {
  const junk = Buffer.alloc(12, 0xff);
  // The best of many runs, because other work of the machine slows some of them.
  const timeOf = (decoder: (bytes: Buffer) => unknown) =>
    Math.min(
      ...Array.from({ length: 30 }, () => {
        const started = performance.now();
        for (let n = 0; n < 30; n++) decoder(junk);
        return performance.now() - started;
      }),
    );
  const trusting = (bytes: Buffer) => {
    try {
      return decode(bytes);
    } catch {
      return undefined;
    }
  };
  t.equal(decodeDnsMessage(junk), undefined);
  t.ok(timeOf(decodeDnsMessage) * 3 < timeOf(trusting));
});

t.test('an instance whose address cannot be encoded fails its reply, not the server', async (t) => {
  const bad = [{ uuid: '1', host: 'x.'.repeat(2_000), port: 1e9 }];
  const bytes = replyTo(encode({ id: 7, questions: [srv] }), 'udp', (question) => answerQuestion(zone, bad, question));
  t.match(decode(bytes ?? Buffer.alloc(0)), { rcode: 'SERVFAIL' });
});

t.test('random bytes never throw, and no reply exceeds its size limit', async () => {
  const mutated = fc
    .tuple(fc.array(fc.tuple(fc.nat(200), fc.nat(255)), { maxLength: 8 }), fc.nat(200))
    .map(([changes, cut]) => {
      const bytes = encode({ type: 'query', id: 7, questions: [srv], additionals: [edns(1_232)] });
      for (const [at, value] of changes) bytes[at % bytes.length] = value;
      return cut < 20 ? bytes.subarray(0, bytes.length - cut) : bytes;
    });
  const random = fc.uint8Array({ maxLength: 600 }).map((bytes) => {
    if (bytes.length > 2) bytes[2] = (bytes[2] ?? 0) & 0x07;
    return Buffer.from(bytes);
  });
  fc.assert(
    fc.property(fc.oneof(mutated, random), fc.nat(40), (bytes, count) => {
      const answer = rawReply(bytes, { count });
      if (answer === undefined) return bytes.length < 12 || (bytes[2] ?? 0) >= 0x80;
      const isSmall = answer.length <= 1_232 && (bytes.length > 20 || answer.length <= 512);
      return isSmall && decodeDnsMessage(answer) !== undefined && answer.readUInt16BE(0) === bytes.readUInt16BE(0);
    }),
    { numRuns: 3_000 },
  );
});
