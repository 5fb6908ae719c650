/** Every route of the OpenAPI document, over bare connections. An input is one request. */
import { randomUUID } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { contractOf } from '../support/contracts.ts';
import { AnswerReader } from './answers.ts';
import { letGo } from './let-go.ts';
import { feeder, type Part, Wrong } from './part.ts';
import { type OpenApi, type PlannedRequest, type RequestScript, requestScripts } from './requests.ts';
import { complaintOf, MAY_WAIT } from './rest-rules.ts';
import { ANSWER_WITHIN_MS, type Target } from './target.ts';

/** After this the caller leaves, if the route is one that may wait. */
const PATIENCE_MS = 40;
/** Ids become unusable: servers are deleted, tickets end. */
const RENEW_EVERY = 200;

export const restPart: Part = {
  name: 'rest',
  about: 'requests to every route of the OpenAPI document, over bare connections, to an instance',
  share: 280,
  quick: 500,
  async open(start) {
    const target = await start();
    const ids = new Ids(target);
    await ids.renew();
    const { body: document } = await target.get<OpenApi>('/openapi.json');
    let fed = 0;
    return feeder<RequestScript>({
      arbitrary: requestScripts(document),
      lanes: 6,
      // Labels of metrics and statements are created one after the other.
      slack: { entries: 150 },
      async feed(script) {
        await target.revive();
        if (fed++ % RENEW_EVERY === RENEW_EVERY - 1) await ids.renew();
        await new Conversation(script, target, ids).run();
        return script.requests.length;
      },
      vitals: () => target.instance.vitals(),
      inspect: () => target.inspect(),
      close: () => target.stop(),
    });
  },
};

/** The present values of `{server}` and the other placeholders. */
class Ids {
  readonly #target: Target;
  readonly #ids = new Map<string, string>();
  #turn = 0;

  constructor(target: Target) {
    this.#target = target;
  }

  /**
   * Alternately a server with an agent that takes tasks, and one that is known only by its sysinfo.
   */
  async renew(): Promise<void> {
    const target = this.#target;
    const turn = this.#turn++;
    const known = randomUUID();
    await target.call('POST', `/servers/${known}/sysinfo`, { sysinfo: { UUID: known, Hostname: 'bait' } });
    const server = turn % 3 === 2 ? known : target.bait(turn);
    const task = await target.call<{ id?: string }>('POST', `/servers/${target.bait(turn)}/nop`, {});
    const ticket = await target.call<{ uuid?: string }>('POST', '/servers/default/tickets', {
      scope: 'fuzz',
      id: String(turn % 50),
      expires_in: 60,
    });
    const instances = await target.get<{ uuid: string }[]>('/instances');
    // The agents may be reconnecting; their servers may have been deleted.
    this.#ids.set('server', server);
    this.#ids.set('task', task.body?.id ?? this.#ids.get('task') ?? randomUUID());
    this.#ids.set('ticket', ticket.body?.uuid ?? randomUUID());
    this.#ids.set('instance', instances.body[0]?.uuid ?? randomUUID());
    this.#ids.set('unknown', randomUUID());
    await target.call('POST', '/loglevel', { level: 'error' });
  }

  fill(text: string): string {
    if (text.includes('{mebibyte}')) return text.replace('{mebibyte}', 'y'.repeat(1024 * 1024));
    return text.replace(
      /\{(server|task|ticket|instance|unknown)\}/g,
      (whole, name: string) => this.#ids.get(name) ?? whole,
    );
  }
}

/** One connection from its first byte to its end. */
class Conversation {
  readonly #requests: readonly PlannedRequest[];
  readonly #script: RequestScript;
  readonly #target: Target;
  readonly #bytes: readonly Buffer[];
  readonly #reader: AnswerReader;
  #socket!: Socket; // Set by run() before anything else.
  #isClosed = false;
  #judged = 0;
  #wake: () => void = () => undefined;

  constructor(script: RequestScript, target: Target, ids: Ids) {
    this.#script = script;
    this.#requests = script.requests;
    this.#target = target;
    this.#bytes = this.#requests.map((request) => bytesOf(request, (text) => ids.fill(text)));
    this.#reader = new AnswerReader(this.#requests.map(({ method }) => method));
  }

  async run(): Promise<void> {
    this.#socket = connect({ port: this.#target.port, host: '127.0.0.1', noDelay: true, allowHalfOpen: true });
    const failures: Error[] = [];
    this.#socket.on('error', () => undefined);
    this.#socket.on('close', () => this.#closed());
    this.#socket.on('end', () => this.#closed());
    this.#socket.on('data', (chunk) => {
      try {
        this.#reader.push(chunk);
      } catch (error) {
        failures.push(error as Error);
        this.#closed();
      }
      this.#wake();
    });
    try {
      await this.#talk();
      if (failures[0] !== undefined) throw new Wrong(failures[0].message);
    } finally {
      letGo(this.#socket);
    }
    if (!this.#target.instance.program.isAlive)
      throw new Wrong(`the instance died. ${this.#target.instance.lastWords()}`);
  }

  async #talk(): Promise<void> {
    const { isPipelined } = this.#script;
    const wellFramed = this.#requests.findIndex((one) => !isWellFramed(one));
    const expected = wellFramed < 0 ? this.#requests.length : wellFramed;
    for (const [index, bytes] of this.#bytes.entries()) {
      if (this.#isOver) break;
      await this.#write(bytes);
      if (!isPipelined && index < expected && (await this.#answered(index + 1)) === 'left') return;
    }
    if (isPipelined && (await this.#answered(expected)) === 'left') return;
    if (this.#isOver) return;
    // Every other request is answered, or not, by the time that the connection has ended.
    this.#socket.end();
    await this.#wait(() => this.#isOver, 'to close a connection that its caller has ended');
    this.#judge();
  }

  get #isOver(): boolean {
    return this.#isClosed || this.#reader.isOpenEnded;
  }

  async #write(bytes: Buffer): Promise<void> {
    const { pieceBytes } = this.#script;
    // Large inputs are not written in pieces: a megabyte byte by byte would take a day.
    const step = pieceBytes === 0 || bytes.length > 500 * pieceBytes ? bytes.length : pieceBytes;
    for (let at = 0; at < bytes.length && !this.#isOver; at += step) {
      this.#socket.write(bytes.subarray(at, at + step));
      if (step < bytes.length) await new Promise((done) => setImmediate(done));
    }
  }

  /**
   * Resolves when this number of answers has arrived or no more can come; `left` if the caller
   * stopped waiting.
   */
  async #answered(count: number): Promise<'answered' | 'left'> {
    const isThere = () => this.#reader.answers.length >= count || this.#isOver;
    const mayWait = () => {
      const next = this.#requests[this.#reader.answers.length];
      return (
        next !== undefined &&
        (MAY_WAIT.has(next.operationId) || MAY_WAIT.has(contractOf(next.method, next.target)?.name ?? ''))
      );
    };
    const outcome = await this.#wait(isThere, 'to answer', mayWait);
    this.#judge();
    return outcome === 'left' ? 'left' : 'answered';
  }

  /** @throws Wrong when it does not happen. */
  async #wait(isThere: () => boolean, what: string, mayLeave = () => false): Promise<'there' | 'left'> {
    const begin = Date.now();
    while (!isThere()) {
      const elapsed = Date.now() - begin;
      if (elapsed >= PATIENCE_MS && mayLeave()) return 'left';
      if (elapsed > ANSWER_WITHIN_MS) throw new Wrong(`the instance failed ${what} within ${ANSWER_WITHIN_MS} ms`);
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, PATIENCE_MS);
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return 'there';
  }

  #closed(): void {
    this.#isClosed = true;
    this.#wake();
  }

  #judge(): void {
    for (const answer of this.#reader.answers.slice(this.#judged)) {
      const request = this.#requests[this.#judged];
      this.#judged += 1;
      const method = request?.method ?? '';
      const operationId = request && contractOf(request.method, request.target)?.name;
      const complaint = complaintOf(answer, { operationId, method });
      if (complaint === undefined) continue;
      const what = `${method} ${request?.target.slice(0, 300)} was answered with ${complaint}`;
      throw new Wrong(what, `${method} ${operationId}: ${complaint.slice(0, 60)}`);
    }
  }
}

/** Whether a server must read the bytes as exactly one request. */
function isWellFramed({ method, target, headers, framing, body }: PlannedRequest): boolean {
  const isPlain = !/[^\x21-\x7e]/.test(target) && target !== '' && /^[A-Z]+$/.test(method) && method !== 'CONNECT';
  const touchy = /^(transfer-encoding|content-length|connection|upgrade|expect|host)$/i;
  const areTame = headers.every(
    ([name, value]) => /^[\w-]+$/.test(name) && !touchy.test(name) && !/[\r\n\0]/.test(value),
  );
  const isFramed = framing === 'length' || framing === 'chunked' || (framing === 'bare' && body === '');
  return isPlain && areTame && isFramed;
}

function bytesOf(request: PlannedRequest, fill: (text: string) => string): Buffer {
  const { method, target, headers, framing } = request;
  const body = Buffer.from(fill(request.body), request.encoding);
  const hasHost = headers.some(([name]) => name === 'Host');
  const lines = [
    `${method} ${fill(target)} HTTP/1.1`,
    ...(hasHost ? [] : ['Host: 127.0.0.1']),
    ...headers.map(([name, value]) => `${name}: ${fill(value)}`),
    ...framingHeaders(request, body.length),
  ];
  const head = Buffer.from(`${lines.join('\r\n')}\r\n\r\n`, 'utf8');
  return Buffer.concat([head, ...framed(framing, body)]);
}

function framingHeaders({ framing, method }: PlannedRequest, length: number): string[] {
  switch (framing) {
    case 'length':
      return length === 0 && method === 'GET' ? [] : [`Content-Length: ${length}`];
    case 'short':
      return [`Content-Length: ${length + 10}`];
    case 'long':
      return [`Content-Length: ${Math.max(0, length - 1)}`];
    case 'both':
      return [`Content-Length: ${length}`, 'Transfer-Encoding: chunked'];
    case 'bare':
      return [];
    default:
      return ['Transfer-Encoding: chunked'];
  }
}

function framed(framing: PlannedRequest['framing'], body: Buffer): Buffer[] {
  const chunk = (bytes: Buffer) => [Buffer.from(`${bytes.length.toString(16)};x=y\r\n`), bytes, Buffer.from('\r\n')];
  const half = Math.floor(body.length / 2);
  const chunks = [body.subarray(0, half), body.subarray(half)].filter(({ length }) => length > 0).flatMap(chunk);
  switch (framing) {
    case 'chunked':
    case 'both':
      return [...chunks, Buffer.from('0\r\n\r\n')];
    case 'unfinished':
      return chunks;
    case 'bad-chunks':
      return [Buffer.from('zz\r\n'), body];
    default:
      return [body];
  }
}
