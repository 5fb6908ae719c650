/**
 * Messages of the name server: takes the bytes of a query, returns the bytes of its reply. Pure;
 * `name-server.ts` calls it for each datagram and each frame. It never throws, whatever the bytes.
 * The codec is dns-packet. That library trusts the header (its arrays are as large as the header
 * claims), so the counts are checked first. Rules: RFC 1035 section 4, RFC 6891 (EDNS0), RFC 2181
 * section 9 (truncation), RFC 4343 (case).
 */
import { type Answer, type DecodedPacket, decode, encode, type OptAnswer } from 'dns-packet';
import type { ZoneAnswer, ZoneQuestion } from './zone.ts';

export const HEADER_BYTES = 12;
const PLAIN_UDP_BYTES = 512;
/**
 * The largest datagram that crosses any network unfragmented. This code neither sends nor requests
 * a larger one.
 */
export const MAX_UDP_BYTES = 1_232;
export const MAX_TCP_BYTES = 65_535;
const MAX_ADDITIONALS = 8;

const rcodes = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;
const flagBits = { response: 0x8000, authoritative: 0x0400, truncated: 0x0200, recursionDesired: 0x0100 } as const;
const OPCODE_BITS = 0x7800;
const DNSSEC_OK_BIT = 0x8000;
/** The upper part of BADVERS (16), which goes into the OPT record; the lower part is 0. */
const BAD_VERSION_EXTENSION = 1;

type Transport = 'udp' | 'tcp';

interface Query {
  question: ZoneQuestion;
  /** The bytes of the question in the query; the reply repeats them unchanged. */
  questionBytes: Buffer;
  edns: OptAnswer | undefined;
}

/**
 * Returns the reply to `bytes`; undefined when `bytes` is a response or not a message, which must
 * not be answered.
 */
export function replyTo(
  bytes: Buffer,
  transport: Transport,
  answer: (question: ZoneQuestion) => ZoneAnswer,
): Buffer | undefined {
  if (bytes.length < HEADER_BYTES || bytes.readUInt16BE(2) & flagBits.response) return undefined;
  if (bytes.readUInt16BE(2) & OPCODE_BITS) return bareReply(bytes, 'NOTIMP');
  try {
    const query = parseQuery(bytes);
    if (query === undefined) return bareReply(bytes, 'FORMERR');
    return fullReply(bytes, query, sizeLimit(transport, query.edns), answer);
  } catch {
    return bareReply(bytes, 'SERVFAIL');
  }
}

/**
 * Decodes a message whose header claims no more records than its bytes can hold. Returns undefined
 * when it is malformed.
 */
export function decodeDnsMessage(bytes: Buffer): DecodedPacket | undefined {
  if (bytes.length < HEADER_BYTES) return undefined;
  const [questions, ...records] = sectionCounts(bytes);
  const leastBytes = questions * 5 + records.reduce((sum, count) => sum + count, 0) * 11;
  if (leastBytes > bytes.length - HEADER_BYTES) return undefined;
  try {
    return decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * The record in queries and replies that announces EDNS0 and the largest datagram that the sender
 * accepts.
 */
export function optionsRecord({ extendedRcode, dnssecOk }: { extendedRcode: number; dnssecOk: boolean }): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: MAX_UDP_BYTES,
    extendedRcode,
    ednsVersion: 0,
    flags: dnssecOk ? DNSSEC_OK_BIT : 0,
    flag_do: dnssecOk,
    options: [],
  };
}

function parseQuery(bytes: Buffer): Query | undefined {
  const [questions, answers, authorities, additionals] = sectionCounts(bytes);
  if (questions !== 1 || answers > 0 || authorities > 0 || additionals > MAX_ADDITIONALS) return undefined;
  const message = decodeDnsMessage(bytes);
  const question = message?.questions?.[0];
  if (!message || !question) return undefined;
  const questionBytes = bytesOfQuestion(bytes, question.name);
  const options = (message.additionals ?? []).filter((record) => record.type === 'OPT');
  if (questionBytes === undefined || options.length > 1 || options.some(({ name }) => name !== '.')) return undefined;
  return {
    question: { name: question.name, type: question.type, class: question.class ?? 'IN' },
    questionBytes,
    edns: options[0],
  };
}

/**
 * Returns the bytes of the question; undefined when the name cannot be written unchanged as text,
 * because it is compressed or has binary labels.
 */
function bytesOfQuestion(bytes: Buffer, name: string): Buffer | undefined {
  const encoded = encode({ questions: [{ name, type: 'A' }] });
  const sameName = encoded.subarray(HEADER_BYTES, -4).equals(bytes.subarray(HEADER_BYTES, encoded.length - 4));
  return sameName ? bytes.subarray(HEADER_BYTES, encoded.length) : undefined;
}

function fullReply(bytes: Buffer, query: Query, limit: number, answer: (question: ZoneQuestion) => ZoneAnswer): Buffer {
  if (query.edns && query.edns.ednsVersion > 0) {
    const options = [optionsRecord({ extendedRcode: BAD_VERSION_EXTENSION, dnssecOk: query.edns.flag_do })];
    return assemble(bytes, query.questionBytes, { flags: 0, answers: [], authorities: [], additionals: options });
  }
  const { rcode, answers, authorities, additionals } = answer(query.question);
  const flags = rcodes[rcode] | (rcode === 'REFUSED' ? 0 : flagBits.authoritative);
  const options = query.edns ? [optionsRecord({ extendedRcode: 0, dnssecOk: query.edns.flag_do })] : [];
  // If the reply is too large, drop the optional additionals first, then everything.
  for (const extras of [[...additionals, ...options], options]) {
    const reply = assemble(bytes, query.questionBytes, { flags, answers, authorities, additionals: extras });
    if (reply.length <= limit) return reply;
  }
  const truncated = flags | flagBits.truncated;
  return assemble(bytes, query.questionBytes, { flags: truncated, answers: [], authorities: [], additionals: options });
}

interface Sections {
  flags: number;
  answers: readonly Answer[];
  authorities: readonly Answer[];
  additionals: readonly Answer[];
}

/**
 * Builds a reply with the original question. dns-packet does not compress names, so the records may
 * follow at any offset.
 */
function assemble(
  bytes: Buffer,
  questionBytes: Buffer,
  { flags, answers, authorities, additionals }: Sections,
): Buffer {
  const records = encode({
    type: 'response',
    id: bytes.readUInt16BE(0),
    flags: flags | (bytes.readUInt16BE(2) & flagBits.recursionDesired),
    answers: [...answers],
    authorities: [...authorities],
    additionals: [...additionals],
  });
  records.writeUInt16BE(1, 4);
  return Buffer.concat([records.subarray(0, HEADER_BYTES), questionBytes, records.subarray(HEADER_BYTES)]);
}

/** A header alone, in reply to a query that could not be understood. */
function bareReply(bytes: Buffer, rcode: keyof typeof rcodes): Buffer {
  const reply = Buffer.alloc(HEADER_BYTES);
  const kept = bytes.readUInt16BE(2) & (OPCODE_BITS | flagBits.recursionDesired);
  reply.writeUInt16BE(bytes.readUInt16BE(0), 0);
  reply.writeUInt16BE(flagBits.response | kept | rcodes[rcode], 2);
  return reply;
}

function sizeLimit(transport: Transport, edns: OptAnswer | undefined): number {
  if (transport === 'tcp') return MAX_TCP_BYTES;
  return Math.min(MAX_UDP_BYTES, Math.max(PLAIN_UDP_BYTES, edns?.udpPayloadSize ?? 0));
}

/** The numbers of questions, answers, authorities and additionals that the header claims. */
function sectionCounts(bytes: Buffer): [number, number, number, number] {
  return [bytes.readUInt16BE(4), bytes.readUInt16BE(6), bytes.readUInt16BE(8), bytes.readUInt16BE(10)];
}
