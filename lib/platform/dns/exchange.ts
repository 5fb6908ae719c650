/**
 * A DNS client: one question to one name server, over UDP with retries, or over TCP when the answer
 * was truncated. Used by `resolve.ts`. It accepts only a reply from the server it asked, with the
 * id and the question that it sent (RFC 5452).
 */
import { createSocket } from 'node:dgram';
import { connect, isIPv6 } from 'node:net';
import { type DecodedPacket, encode, type Question, RECURSION_DESIRED, type RecordType } from 'dns-packet';
import type { Random } from '../random.ts';
import type { Clock } from '../time/clock.ts';
import { FrameReader, frame } from './frames.ts';
import { decodeDnsMessage, MAX_TCP_BYTES, optionsRecord } from './message.ts';

const UDP_ATTEMPTS = 3;

export interface ServerAddress {
  host: string;
  port: number;
}

export interface Asker {
  server: ServerAddress;
  /** Time limit for all attempts at one question together. */
  timeoutMs: number;
  clock: Clock;
  random: Random;
}

/**
 * Returns the reply to `name` and `type`, whatever its rcode. Rejects when no reply comes in time.
 */
export async function askNameServer(asker: Asker, name: string, type: RecordType): Promise<DecodedPacket> {
  const reply = await askByUdp(asker, { name, type, class: 'IN' });
  return reply.flag_tc ? await askByTcp(asker, { name, type, class: 'IN' }) : reply;
}

async function askByUdp(asker: Asker, question: Question): Promise<DecodedPacket> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await exchangeDatagrams(asker, question);
    } catch (err) {
      if (attempt === UDP_ATTEMPTS) throw err;
    }
  }
}

function exchangeDatagrams({ server, timeoutMs, clock, random }: Asker, question: Question): Promise<DecodedPacket> {
  const id = randomId(random);
  const socket = createSocket(isIPv6(server.host) ? 'udp6' : 'udp4');
  const { promise, resolve, reject } = Promise.withResolvers<DecodedPacket>();
  const timer = clock.after(timeoutMs / (UDP_ATTEMPTS + 1), () => reject(new Error('no answer in time')));
  socket.on('error', reject);
  socket.on('message', (bytes) => {
    const reply = decodeDnsMessage(bytes);
    if (reply && isReplyTo(reply, id, question)) resolve(reply);
  });
  // A connected socket receives only from its server. It also reports a closed port immediately.
  socket.connect(server.port, server.host, () => socket.send(encodeQuery(id, question)));
  return promise.finally(() => {
    timer.cancel();
    socket.close();
  });
}

function askByTcp({ server, timeoutMs, clock, random }: Asker, question: Question): Promise<DecodedPacket> {
  const id = randomId(random);
  const frames = new FrameReader(MAX_TCP_BYTES);
  const { promise, resolve, reject } = Promise.withResolvers<DecodedPacket>();
  const timer = clock.after(timeoutMs / (UDP_ATTEMPTS + 1), () => reject(new Error('no answer in time over TCP')));
  const socket = connect(server.port, server.host, () => socket.write(frame(encodeQuery(id, question))));
  socket.on('error', reject);
  socket.on('close', () => reject(new Error('the name server closed the connection')));
  socket.on('data', (chunk) => {
    for (const bytes of frames.push(chunk) ?? []) {
      const reply = decodeDnsMessage(bytes);
      if (reply && isReplyTo(reply, id, question)) resolve(reply);
    }
  });
  return promise.finally(() => {
    timer.cancel();
    socket.destroy();
  });
}

function encodeQuery(id: number, question: Question): Buffer {
  return encode({
    type: 'query',
    id,
    flags: RECURSION_DESIRED,
    questions: [question],
    additionals: [optionsRecord({ extendedRcode: 0, dnssecOk: false })],
  });
}

function isReplyTo(reply: DecodedPacket, id: number, { name, type }: Question): boolean {
  const [asked, ...others] = reply.questions ?? [];
  return (
    reply.type === 'response' &&
    reply.id === id &&
    others.length === 0 &&
    asked?.name.toLowerCase() === name.toLowerCase() &&
    asked.type === type
  );
}

function randomId(random: Random): number {
  return Math.floor(random.fraction() * 0x1_0000);
}
