/**
 * What one end of a WebSocket may write: valid frames, and frames that RFC 6455 forbids. The bytes
 * are built here because no library would write them. Used against both ends of the agent link.
 */
import fc from 'fast-check';

export type Step =
  /** A whole text frame. */
  | { do: 'text'; text: string }
  /** A text in fragments, with a ping between them. */
  | { do: 'fragments'; text: string; pieces: number }
  | { do: 'ping' | 'pong'; payload: string }
  /** A close frame: code and reason, or bytes that are neither. */
  | { do: 'close'; payload: string }
  /** Any frame. */
  | { do: 'frame'; first: number; isMasked: boolean; payload: string; declared: number | undefined }
  /** Bytes that are not a frame. */
  | { do: 'bytes'; bytes: string }
  /** Everything so far is sent, and a moment passes. */
  | { do: 'pause' };

const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((one) => Buffer.from(one).toString('latin1'));

/** Lengths that a header can declare, up to more than any memory holds. */
const LENGTHS = [0, 1, 125, 126, 127, 65_535, 65_536, 8 * 1024 * 1024, 8 * 1024 * 1024 + 1, 2 ** 31, 2 ** 53 - 1];

export function stepsOf(texts: fc.Arbitrary<string>, maxLength: number): fc.Arbitrary<Step[]> {
  const spoilt = fc.record({
    do: fc.constant('frame' as const),
    /** FIN, RSV and opcode. */
    first: fc.oneof(fc.nat(255), fc.constantFrom(0x81, 0x01, 0x80, 0x00, 0x82, 0xc1, 0x89, 0x09, 0x8b, 0x88)),
    isMasked: fc.boolean(),
    payload: bytes(140),
    declared: fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, fc.constantFrom(...LENGTHS)),
  });
  const closePayload = fc.oneof(
    fc.constantFrom('', '\x03\xe8', '\x03', '\x00\x00', '\x03\xed', '\x03\xee', '\x13\x88bye', '\xff\xff'),
    bytes(125).map((reason) => `\x03\xe8${reason}`),
  );
  const good = fc.oneof(
    { weight: 20, arbitrary: fc.record({ do: fc.constant('text' as const), text: texts }) },
    {
      weight: 2,
      arbitrary: fc.record({
        do: fc.constant('fragments' as const),
        text: texts,
        pieces: fc.integer({ min: 1, max: 40 }),
      }),
    },
    { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('ping' as const, 'pong' as const), payload: bytes(125) }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('pause' as const) }) },
  );
  const bad: fc.Arbitrary<Step> = fc.oneof(
    { weight: 4, arbitrary: spoilt },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('close' as const), payload: closePayload }) },
    { weight: 1, arbitrary: fc.record({ do: fc.constant('bytes' as const), bytes: bytes(60) }) },
  );
  return fc
    .record({
      steps: fc.array(good as fc.Arbitrary<Step>, { maxLength }),
      last: fc.oneof({ weight: 2, arbitrary: fc.constant([]) }, fc.array(bad, { minLength: 1, maxLength: 2 })),
    })
    .map(({ steps, last }) => [...steps, ...last]);
}

/**
 * True while a peer that follows the RFC can continue to read: no frame is broken off, no fragment
 * is left alone.
 */
export function isReadable(steps: readonly Step[]): boolean {
  return steps.every((step) => ['text', 'fragments', 'ping', 'pong', 'pause'].includes(step.do));
}

/** The bytes of a step, from a client (`isMasking`) or a server. */
export function bytesOf(step: Step, isMasking: boolean): Buffer {
  switch (step.do) {
    case 'text':
      return frame({ first: 0x81, payload: Buffer.from(step.text), isMasked: isMasking });
    case 'fragments':
      return fragments(Buffer.from(step.text), step.pieces, isMasking);
    case 'ping':
    case 'pong':
      return control(step.do === 'ping' ? 0x89 : 0x8a, step.payload, isMasking);
    case 'close':
      return control(0x88, step.payload, isMasking);
    case 'frame':
      return frame({ ...step, payload: Buffer.from(step.payload, 'latin1') });
    case 'bytes':
      return Buffer.from(step.bytes, 'latin1');
    case 'pause':
      return Buffer.alloc(0);
    default:
      return step satisfies never;
  }
}

function control(first: number, payload: string, isMasked: boolean): Buffer {
  return frame({ first, payload: Buffer.from(payload, 'latin1'), isMasked });
}

function fragments(payload: Buffer, pieces: number, isMasked: boolean): Buffer {
  const size = Math.max(1, Math.ceil(payload.length / pieces));
  const parts: Buffer[] = [];
  for (let at = 0; at === 0 || at < payload.length; at += size) {
    const isLast = at + size >= payload.length;
    const first = (isLast ? 0x80 : 0) | (at === 0 ? 1 : 0);
    parts.push(frame({ first, payload: payload.subarray(at, at + size), isMasked }));
    if (!isLast && parts.length === 1) parts.push(control(0x89, 'between', isMasked));
  }
  return Buffer.concat(parts);
}

interface FrameParts {
  first: number;
  payload: Buffer;
  isMasked: boolean;
  /** A length that differs from the payload's. */
  declared?: number | undefined;
}

const MASK = Buffer.from([0x11, 0x22, 0x33, 0x44]);

/** RFC 6455, section 5.2. */
function frame({ first, payload, isMasked, declared = payload.length }: FrameParts): Buffer {
  const maskBit = isMasked ? 0x80 : 0;
  const head = Buffer.alloc(10);
  head[0] = first;
  let length = 2;
  if (declared < 126) head[1] = maskBit | declared;
  else if (declared < 65_536) {
    head[1] = maskBit | 126;
    head.writeUInt16BE(declared, 2);
    length = 4;
  } else {
    head[1] = maskBit | 127;
    head.writeBigUInt64BE(BigInt(declared), 2);
    length = 10;
  }
  if (!isMasked) return Buffer.concat([head.subarray(0, length), payload]);
  const masked = Buffer.from(payload.map((byte, at) => byte ^ (MASK[at % 4] ?? 0)));
  return Buffer.concat([head.subarray(0, length), MASK, masked]);
}

export interface HeardFrame {
  opcode: number;
  payload: Buffer;
}

/**
 * Reads the output of the other end. Throws at what RFC 6455 forbids: a mask from a server, or none
 * from a client.
 */
export class FrameReader {
  readonly #expectMask: boolean;
  #pending: Buffer = Buffer.alloc(0);

  constructor({ expectMask }: { expectMask: boolean }) {
    this.#expectMask = expectMask;
  }

  push(chunk: Buffer): HeardFrame[] {
    this.#pending = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const heard: HeardFrame[] = [];
    for (let one = this.#readOne(); one !== undefined; one = this.#readOne()) heard.push(one);
    return heard;
  }

  #readOne(): HeardFrame | undefined {
    const bytes = this.#pending;
    if (bytes.length < 2) return undefined;
    const [first = 0, second = 0] = bytes;
    if ((first & 0x70) !== 0) throw new Error(`a frame with reserved bits: ${first}`);
    const isMasked = (second & 0x80) !== 0;
    if (isMasked !== this.#expectMask)
      throw new Error(isMasked ? 'a server that masks' : 'a client that does not mask');
    const short = second & 0x7f;
    const at = 2 + (short === 126 ? 2 : short === 127 ? 8 : 0);
    if (bytes.length < at + 8) {
      const isEnough = bytes.length >= at + (isMasked ? 4 : 0);
      if (!isEnough) return undefined;
    }
    const length = short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short;
    const start = at + (isMasked ? 4 : 0);
    if (bytes.length < start + length) return undefined;
    const mask = bytes.subarray(at, start);
    const raw = bytes.subarray(start, start + length);
    const payload = isMasked ? Buffer.from(raw.map((byte, index) => byte ^ (mask[index % 4] ?? 0))) : Buffer.from(raw);
    this.#pending = Buffer.from(bytes.subarray(start + length));
    return { opcode: first & 0x0f, payload };
  }
}
