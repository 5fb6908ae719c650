/**
 * Messages of the name server: bytes of a query in, bytes of its reply out. Pure; called by `name-server.ts` for each
 * datagram and each frame, and never throws, whatever the bytes. The codec is dns-packet's; what it would take on trust
 * is checked before (its arrays are as large as the header claims).
 *
 * Rules: RFC 1035 section 4, RFC 6891 (EDNS0), RFC 2181 section 9 (truncation), RFC 4343 (case).
 */
import { type Answer, type DecodedPacket, decode, encode, type OptAnswer } from 'dns-packet';
import type { ZoneAnswer, ZoneQuestion } from './zone.ts';

export const headerBytes = 12;
export const plainUdpBytes = 512;
/** The largest datagram that crosses any network in one piece; we neither send nor ask for more. */
export const maxUdpBytes = 1_232;
export const maxTcpBytes = 65_535;
const maxAdditionals = 8;

const rcodes = { NOERROR: 0, FORMERR: 1, SERVFAIL: 2, NXDOMAIN: 3, NOTIMP: 4, REFUSED: 5 } as const;
const flagBits = { response: 0x8000, authoritative: 0x0400, truncated: 0x0200, recursionDesired: 0x0100 } as const;
const opcodeBits = 0x7800;
const dnssecOkBit = 0x8000;
/** BADVERS is 16: this is its upper part, which stands in the OPT record; the lower one is 0. */
const badVersionExtension = 1;

type Transport = 'udp' | 'tcp';

interface Query {
  question: ZoneQuestion;
  /** The question as it stands in the query, to be repeated as it is. */
  questionBytes: Buffer;
  edns: OptAnswer | undefined;
}

/** The reply to `bytes`, or undefined when there must be none: it is a response, or no message at all. */
export function replyTo(
  bytes: Buffer,
  transport: Transport,
  answer: (question: ZoneQuestion) => ZoneAnswer,
): Buffer | undefined {
  if (bytes.length < headerBytes || bytes.readUInt16BE(2) & flagBits.response) return undefined;
  if (bytes.readUInt16BE(2) & opcodeBits) return bareReply(bytes, 'NOTIMP');
  try {
    const query = parseQuery(bytes);
    if (query === undefined) return bareReply(bytes, 'FORMERR');
    return fullReply(bytes, query, sizeLimit(transport, query.edns), answer);
  } catch {
    return bareReply(bytes, 'SERVFAIL');
  }
}

/** Decodes a message whose header claims no more records than its bytes could hold; undefined when it is malformed. */
export function decodeMessage(bytes: Buffer): DecodedPacket | undefined {
  if (bytes.length < headerBytes) return undefined;
  const [questions, ...records] = sectionCounts(bytes);
  const leastBytes = questions * 5 + records.reduce((sum, count) => sum + count, 0) * 11;
  if (leastBytes > bytes.length - headerBytes) return undefined;
  try {
    return decode(bytes);
  } catch {
    return undefined;
  }
}

/** The record that says, in queries and replies, that we speak EDNS0 and how large a datagram we take. */
export function optionsRecord({ extendedRcode, dnssecOk }: { extendedRcode: number; dnssecOk: boolean }): OptAnswer {
  return {
    type: 'OPT',
    name: '.',
    udpPayloadSize: maxUdpBytes,
    extendedRcode,
    ednsVersion: 0,
    flags: dnssecOk ? dnssecOkBit : 0,
    flag_do: dnssecOk,
    options: [],
  };
}

function parseQuery(bytes: Buffer): Query | undefined {
  const [questions, answers, authorities, additionals] = sectionCounts(bytes);
  if (questions !== 1 || answers > 0 || authorities > 0 || additionals > maxAdditionals) return undefined;
  const message = decodeMessage(bytes);
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

/** The question's bytes; undefined for a name that text cannot carry unchanged: compressed, or with binary labels. */
function bytesOfQuestion(bytes: Buffer, name: string): Buffer | undefined {
  const encoded = encode({ questions: [{ name, type: 'A' }] });
  const sameName = encoded.subarray(headerBytes, -4).equals(bytes.subarray(headerBytes, encoded.length - 4));
  return sameName ? bytes.subarray(headerBytes, encoded.length) : undefined;
}

function fullReply(bytes: Buffer, query: Query, limit: number, answer: (question: ZoneQuestion) => ZoneAnswer): Buffer {
  if (query.edns && query.edns.ednsVersion > 0) {
    const options = [optionsRecord({ extendedRcode: badVersionExtension, dnssecOk: query.edns.flag_do })];
    return assemble(bytes, query.questionBytes, { flags: 0, answers: [], authorities: [], additionals: options });
  }
  const { rcode, answers, authorities, additionals } = answer(query.question);
  const flags = rcodes[rcode] | (rcode === 'REFUSED' ? 0 : flagBits.authoritative);
  const options = query.edns ? [optionsRecord({ extendedRcode: 0, dnssecOk: query.edns.flag_do })] : [];
  // What does not fit loses first its additionals, which are a courtesy, then everything.
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

/** A reply with the question as it was; dns-packet does not compress names, so the rest may follow it at any offset. */
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
  return Buffer.concat([records.subarray(0, headerBytes), questionBytes, records.subarray(headerBytes)]);
}

/** A header and nothing else, for what could not be understood. */
function bareReply(bytes: Buffer, rcode: keyof typeof rcodes): Buffer {
  const reply = Buffer.alloc(headerBytes);
  const kept = bytes.readUInt16BE(2) & (opcodeBits | flagBits.recursionDesired);
  reply.writeUInt16BE(bytes.readUInt16BE(0), 0);
  reply.writeUInt16BE(flagBits.response | kept | rcodes[rcode], 2);
  return reply;
}

function sizeLimit(transport: Transport, edns: OptAnswer | undefined): number {
  if (transport === 'tcp') return maxTcpBytes;
  return Math.min(maxUdpBytes, Math.max(plainUdpBytes, edns?.udpPayloadSize ?? 0));
}

/** Questions, answers, authorities, additionals, as the header claims. */
function sectionCounts(bytes: Buffer): [number, number, number, number] {
  return [bytes.readUInt16BE(4), bytes.readUInt16BE(6), bytes.readUInt16BE(8), bytes.readUInt16BE(10)];
}
