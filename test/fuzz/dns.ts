/** The name server as a process of its own, over UDP and TCP. An input is one message. */
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { encode, type RecordType } from 'dns-packet';
import fc from 'fast-check';
import { decodeDnsMessage, HEADER_BYTES, MAX_UDP_BYTES } from '../../lib/platform/dns/message.ts';
import { until } from '../support/until.ts';
import { letGo } from './let-go.ts';
import { feeder, type Part, Wrong } from './part.ts';
import { ANSWER_WITHIN_MS, freePort, type ProbedProgram, START_WITHIN_MS, type Target } from './target.ts';

const SERVICE = 'cnapi.local.cnapi.internal';
const NAMES = [
  SERVICE,
  `_http._tcp.${SERVICE}`,
  'local.cnapi.internal',
  `ns.local.cnapi.internal`,
  '.',
  'example.com',
  'CnApI.LoCaL.cnapi.internal',
];
const TYPES: RecordType[] = ['A', 'AAAA', 'SRV', 'NS', 'SOA', 'TXT', 'CNAME', 'HINFO', 'AXFR', 'PTR'];

const good = fc
  .record({
    name: fc.oneof(fc.constantFrom(...NAMES), fc.domain(), fc.string({ maxLength: 60 })),
    type: fc.constantFrom(...TYPES),
    id: fc.nat(0xffff),
    edns: fc.boolean(),
  })
  .map(({ name, type, id, edns }) => {
    const additionals = edns
      ? [
          {
            type: 'OPT' as const,
            name: '.',
            udpPayloadSize: 4_096,
            extendedRcode: 0,
            ednsVersion: 0,
            flags: 0,
            flag_do: false,
            options: [],
          },
        ]
      : [];
    try {
      return encode({ type: 'query', id, flags: 0x100, questions: [{ name, type, class: 'IN' }], additionals });
    } catch {
      return Buffer.alloc(HEADER_BYTES);
    }
  });

/** A query with alterations: bytes changed, cut off, added. */
const message: fc.Arbitrary<Buffer> = fc.oneof(
  { weight: 3, arbitrary: good },
  {
    weight: 6,
    arbitrary: fc
      .tuple(
        good,
        fc.array(fc.tuple(fc.nat(60), fc.nat(255)), { maxLength: 6 }),
        fc.nat(80),
        fc.uint8Array({ maxLength: 20 }),
      )
      .map(([bytes, changes, length, more]) => {
        const spoilt = Buffer.from(bytes);
        for (const [at, byte] of changes) if (at < spoilt.length) spoilt[at] = byte;
        return Buffer.concat([length > 60 ? spoilt.subarray(0, length - 60) : spoilt, more]);
      }),
  },
  { weight: 2, arbitrary: fc.uint8Array({ maxLength: 600 }).map((bytes) => Buffer.from(bytes)) },
  { weight: 1, arbitrary: pointers() },
);

/**
 * Names with pointers to themselves, to each other or ahead, and headers that announce missing
 * data.
 */
function pointers(): fc.Arbitrary<Buffer> {
  return fc.tuple(fc.array(fc.nat(40), { minLength: 1, maxLength: 60 }), fc.nat(0xffff)).map(([targets, count]) => {
    const header = Buffer.alloc(HEADER_BYTES);
    header.writeUInt16BE(1, 4);
    header.writeUInt16BE(count % 3 === 0 ? 0 : count, 10);
    return Buffer.concat([header, ...targets.map((target) => Buffer.from([0xc0, target])), Buffer.from([0, 1, 0, 1])]);
  });
}

interface DnsScript {
  messages: Buffer[];
  overTcp: boolean;
  /** Bytes per write over TCP; `isCut`: the last message is cut off. */
  pieceBytes: number;
  isCut: boolean;
}

export const dnsPart: Part = {
  name: 'dns',
  about: 'messages to the name server, over UDP and TCP',
  share: 60,
  quick: 600,
  async open(start) {
    const target = await start();
    const server = await startNameServer(target);
    const udp = await Promise.all(
      Array.from({ length: LANES }, () => UdpAsker.open(server.port, () => server.program.program.isAlive)),
    );
    return feeder<DnsScript>({
      arbitrary: fc.record({
        messages: fc.array(message, { minLength: 1, maxLength: 20 }),
        overTcp: fc.oneof({ weight: 3, arbitrary: fc.constant(false) }, fc.constant(true)),
        pieceBytes: fc.constantFrom(0, 0, 1, 3, 50),
        isCut: fc.boolean(),
      }),
      lanes: LANES,
      async feed(script, lane) {
        if (!server.program.program.isAlive) server.program.program.start();
        if (script.overTcp) await askByTcp(server.port, script);
        else await (udp[lane] as UdpAsker).askAll(script.messages);
        if (!server.program.program.isAlive)
          throw new Wrong(`the name server died. ${server.program.lastWords()}`, 'died');
        return script.messages.length;
      },
      vitals: () => server.program.vitals(),
      inspect: async () => [
        ...(server.program.program.isAlive
          ? server.program.defects()
          : [`it has ended. ${server.program.lastWords()}`]),
        ...((await (udp[0] as UdpAsker).isServed()) ? [] : ['a good question is not answered any more']),
      ],
      async close() {
        for (const asker of udp) asker.close();
        await server.program.program.kill();
        await target.stop();
      },
    });
  },
};

const LANES = 4;

async function startNameServer(target: Target): Promise<{ program: ProbedProgram; port: number }> {
  const port = await freePort();
  const file = path.join(target.directory, 'name-server.json');
  writeFileSync(file, JSON.stringify({ databaseUrl: target.databaseUrl, port, logLevel: 'warn' }));
  const program = target.program('name-server', 'lib/name-server/main.ts', ['--config', file]);
  program.program.start();
  const asker = await UdpAsker.open(port, () => true);
  await until(() => asker.isServed(500), 'the name server to answer', START_WITHIN_MS);
  asker.close();
  return { program, port };
}

const GOOD_ID = 4711;
const GOOD_QUESTION = encode({
  type: 'query',
  id: GOOD_ID,
  flags: 0,
  questions: [{ name: SERVICE, type: 'A', class: 'IN' }],
});

/**
 * One socket. A full machine may lose datagrams, so only received answers are checked, and a valid
 * question at the end.
 */
class UdpAsker {
  readonly #socket: UdpSocket;
  readonly #isAlive: () => boolean;
  /**
   * Ids of all questions so far: one that is repeated because the machine is slow is answered
   * twice, the second time late.
   */
  readonly #asked = new Set([GOOD_ID]);
  #heard: Buffer[] = [];
  #wake: () => void = () => undefined;

  private constructor(socket: UdpSocket, isAlive: () => boolean) {
    this.#socket = socket;
    this.#isAlive = isAlive;
    // A closed port is reported as an error; the process is checked anyway.
    socket.on('error', () => undefined);
    socket.on('message', (bytes) => {
      this.#heard.push(bytes);
      this.#wake();
    });
  }

  static async open(port: number, isAlive: () => boolean): Promise<UdpAsker> {
    const socket = createSocket('udp4');
    socket.connect(port, '127.0.0.1');
    await once(socket, 'connect');
    return new UdpAsker(socket, isAlive);
  }

  async askAll(messages: readonly Buffer[]): Promise<void> {
    this.#heard = [];
    for (const bytes of messages) if (bytes.length > 0) this.#socket.send(bytes);
    for (const bytes of messages) if (bytes.length >= HEADER_BYTES) this.#asked.add(bytes.readUInt16BE(0));
    if (!(await this.isServed()) && this.#isAlive())
      throw new Wrong('a valid query after these was not answered', 'not served');
    for (const bytes of this.#heard) judge(bytes, this.#asked, MAX_UDP_BYTES);
  }

  /** Whether a valid question is answered; it is repeated each second, as a resolver does. */
  async isServed(withinMs = ANSWER_WITHIN_MS): Promise<boolean> {
    const end = Date.now() + withinMs;
    const isAnswer = (bytes: Buffer) => bytes.readUInt16BE(0) === GOOD_ID && (bytes[3] ?? 0) % 16 === 0;
    while (Date.now() < end && this.#isAlive()) {
      this.#socket.send(GOOD_QUESTION);
      const { promise, resolve } = Promise.withResolvers<void>();
      const timer = setTimeout(resolve, 1_000);
      this.#wake = () => this.#heard.some(isAnswer) && resolve();
      this.#wake();
      await promise;
      clearTimeout(timer);
      if (this.#heard.some(isAnswer)) return true;
    }
    return false;
  }

  close(): void {
    this.#socket.close();
  }
}

/** An answer must be valid, belong to one of these questions, and not be too long. */
function judge(reply: Buffer, asked: ReadonlySet<number>, maxBytes: number): void {
  if (reply.length > maxBytes) throw new Wrong(`an answer of ${reply.length} bytes`, 'long answer');
  if (reply.length < HEADER_BYTES || (reply.readUInt16BE(2) & 0x8000) === 0)
    throw new Wrong('a message that is not an answer', 'no answer');
  const id = reply.readUInt16BE(0);
  if (!asked.has(id)) throw new Wrong(`an answer to query ${id}, which was not sent`, 'not asked');
  if (decodeDnsMessage(reply) === undefined)
    throw new Wrong(`an answer that cannot be parsed: ${reply.toString('hex')}`, 'unreadable');
  const rcode = reply.readUInt16BE(2) & 15;
  if (rcode === 2) throw new Wrong('SERVFAIL for an invalid query', 'SERVFAIL');
}

/**
 * Everything is sent in pieces; the server answers what it can parse and closes at what it cannot.
 */
async function askByTcp(port: number, { messages, pieceBytes, isCut }: DnsScript): Promise<void> {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
  socket.on('error', () => undefined);
  const heard: Buffer[] = [];
  const closed = Promise.withResolvers<void>();
  socket.on('data', (chunk) => heard.push(chunk));
  for (const event of ['end', 'close']) socket.on(event, () => closed.resolve());
  const whole = Buffer.concat(messages.flatMap((bytes) => [lengthOf(bytes), bytes]));
  const sent = isCut ? whole.subarray(0, -1) : whole;
  const step = pieceBytes === 0 ? sent.length || 1 : pieceBytes;
  for (let at = 0; at < sent.length && at < 200 * step; at += step) {
    socket.write(sent.subarray(at, at + step));
    if (step < sent.length) await new Promise((done) => setImmediate(done));
  }
  socket.end();
  const timer = setTimeout(
    () => closed.reject(new Wrong('a TCP connection was not closed', 'TCP kept')),
    ANSWER_WITHIN_MS,
  );
  try {
    await closed.promise;
  } finally {
    clearTimeout(timer);
    letGo(socket);
  }
  const bytes = Buffer.concat(heard);
  const ids = new Set(messages.map((one) => (one.length >= HEADER_BYTES ? one.readUInt16BE(0) : GOOD_ID)));
  for (let at = 0; at + 2 <= bytes.length; ) {
    const length = bytes.readUInt16BE(at);
    if (at + 2 + length > bytes.length) return;
    judge(bytes.subarray(at + 2, at + 2 + length), ids, 65_535);
    at += 2 + length;
  }
}

function lengthOf(bytes: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(bytes.length);
  return length;
}
