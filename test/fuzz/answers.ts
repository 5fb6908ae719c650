/**
 * Parses the output of an instance on a bare connection as HTTP/1.1 answers. Throws at invalid
 * HTTP.
 */

export interface Answer {
  status: number;
  /** Names in lower case. */
  headers: Record<string, string>;
  body: string;
  /** Event streams and upgrades: only the head is read. */
  isOpenEnded: boolean;
}

export class AnswerReader {
  readonly answers: Answer[] = [];
  /** The methods of the requests, in order: an answer to HEAD has no body. */
  readonly #methods: readonly string[];
  #pending: Buffer = Buffer.alloc(0);
  #isOver = false;

  constructor(methods: readonly string[]) {
    this.#methods = methods;
  }

  get isOpenEnded(): boolean {
    return this.#isOver;
  }

  push(chunk: Buffer): void {
    this.#pending = Buffer.concat([this.#pending, chunk]);
    while (!this.#isOver && this.#readOne());
  }

  /** True when an answer was complete. */
  #readOne(): boolean {
    const end = this.#pending.indexOf('\r\n\r\n');
    if (end < 0) return false;
    const [statusLine = '', ...lines] = this.#pending.subarray(0, end).toString('latin1').split('\r\n');
    const status = Number(/^HTTP\/1\.1 (\d{3})( |$)/.exec(statusLine)?.[1]);
    if (!(status >= 100)) throw new Error(`no HTTP status line: ${JSON.stringify(statusLine.slice(0, 100))}`);
    const headers = Object.fromEntries(lines.map(splitHeader));
    const rest = this.#pending.subarray(end + 4);
    if (status === 101 || headers['content-type'] === 'text/event-stream') {
      this.#isOver = true;
      return this.#take({ status, headers, body: '', isOpenEnded: true }, Buffer.alloc(0));
    }
    if (status < 200) {
      this.#pending = rest;
      return true;
    }
    const isEndOnly = status === 204 || status === 304 || this.#methods[this.answers.length] === 'HEAD';
    const read = isEndOnly ? { body: Buffer.alloc(0), rest } : readBody(headers, rest);
    return (
      read !== undefined && this.#take({ status, headers, body: read.body.toString(), isOpenEnded: false }, read.rest)
    );
  }

  #take(answer: Answer, rest: Buffer): true {
    this.answers.push(answer);
    this.#pending = Buffer.from(rest);
    return true;
  }
}

function splitHeader(line: string): [string, string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw new Error(`no header: ${JSON.stringify(line.slice(0, 100))}`);
  return [line.slice(0, colon).toLowerCase(), line.slice(colon + 1).trim()];
}

function readBody(headers: Record<string, string>, bytes: Buffer): { body: Buffer; rest: Buffer } | undefined {
  if (headers['transfer-encoding'] === 'chunked') return readChunks(bytes);
  const length = Number(headers['content-length']);
  if (!Number.isSafeInteger(length)) throw new Error('an answer says neither its length nor that it comes in chunks');
  return bytes.length < length ? undefined : { body: bytes.subarray(0, length), rest: bytes.subarray(length) };
}

function readChunks(bytes: Buffer): { body: Buffer; rest: Buffer } | undefined {
  const chunks: Buffer[] = [];
  for (let at = 0; ; ) {
    const end = bytes.indexOf('\r\n', at);
    if (end < 0) return undefined;
    const size = Number.parseInt(bytes.subarray(at, end).toString('latin1'), 16);
    if (bytes.length < end + 2 + size + 2) return undefined;
    if (size === 0) return { body: Buffer.concat(chunks), rest: bytes.subarray(end + 4) };
    chunks.push(bytes.subarray(end + 2, end + 2 + size));
    at = end + 2 + size + 2;
  }
}
