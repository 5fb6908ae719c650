/**
 * What is attacked: an instance, a name server and agents as processes of their own, on a fresh
 * database. One agent is honest and nobody's bait: its server must be `running` from the beginning
 * to the end. The others may be hit by whatever is sent; their machines are simulated, so that no
 * command that somebody makes up is ever carried out.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { ownProgram, Program } from '../../tools/processes/program.ts';
import { freshDatabase, type Teardown } from '../support/postgres.ts';
import { until } from '../support/until.ts';
import { Wrong } from './part.ts';
import type { Usage, Vitals } from './probe.ts';

/**
 * A request without an answer for this time will never be answered, however busy the machine is.
 */
export const ANSWER_WITHIN_MS = 45_000;
/** While its resources are counted, a process is stopped; on a full machine for minutes. */
const VITALS_WITHIN_MS = 600_000;
export const START_WITHIN_MS = 300_000;
const BAIT = 3;
const PROBE = path.join(import.meta.dirname, 'probe.ts');

/** Long silences are tolerated: the subject is hostile input, on a machine with other users. */
const CONFIG = { silenceMs: 20_000, serverSilenceMs: 60_000, startGraceMs: 2_000, reconnectMaxMs: 2_000 };

export class Target {
  readonly directory = mkdtempSync(path.join(os.tmpdir(), 'cnapi-fuzz-'));
  readonly instance: ProbedProgram;
  readonly port: number;
  readonly databaseUrl: string;
  readonly #fleet: Program;
  readonly #programs: Program[];
  #honest = '';
  #bait: string[] = [];

  private constructor(databaseUrl: string, port: number) {
    this.databaseUrl = databaseUrl;
    this.port = port;
    const file = path.join(this.directory, 'instance.json');
    const settings = { ...CONFIG, databaseUrl, databasePoolSize: 5, host: '127.0.0.1', port, logLevel: 'error' };
    writeFileSync(file, JSON.stringify(settings));
    this.instance = this.program('instance', 'server.ts', ['--config', file]);
    const agents = ['--agents', String(1 + BAIT), '--seed', path.basename(this.directory), '--url', this.url];
    this.#fleet = this.program('fleet', 'lib/agent/simulated/main.ts', agents).program;
    this.#programs = [this.instance.program, this.#fleet];
  }

  static async start(t: Teardown): Promise<Target> {
    const { url } = await freshDatabase(t);
    const target = new Target(url, await freePort());
    t.teardown(() => target.stop());
    await target.#start();
    return target;
  }

  /** Only simulated agents, of an instance at this port. */
  static fleet(port: number, agents: number): ProbedProgram {
    const directory = mkdtempSync(path.join(os.tmpdir(), 'cnapi-fuzz-'));
    const url = `http://127.0.0.1:${port}`;
    const args = ['--agents', String(agents), '--seed', path.basename(directory), '--log-level', 'error', '--url', url];
    return new ProbedProgram({ name: 'fleet', file: 'lib/agent/simulated/main.ts', args, directory });
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** A server with an agent that may be attacked. */
  bait(number: number): string {
    return this.#bait[number % this.#bait.length] as string;
  }

  /** A program of this project that can report its vitals. */
  program(name: string, file: string, args: readonly string[]): ProbedProgram {
    return new ProbedProgram({ name, file, args, directory: this.directory });
  }

  /** Restarts it after a death that was found, so that its cause can be shrunk. */
  async revive(): Promise<void> {
    if (this.instance.program.isAlive) return;
    this.instance.program.start();
    await until(async () => (await this.#runningServers().catch(() => [])).length > 0, 'the instance to be back');
  }

  async #start(): Promise<void> {
    for (const program of this.#programs) program.start();
    const servers = await until(
      async () => {
        if (!this.instance.program.isAlive) throw new Error(this.instance.lastWords());
        const found = await this.#runningServers().catch(() => []);
        return found.length > BAIT ? found : undefined;
      },
      'the agents to be running',
      START_WITHIN_MS,
    );
    const [honest = '', ...bait] = servers.sort();
    this.#honest = honest;
    this.#bait = bait;
  }

  async #runningServers(): Promise<string[]> {
    const { body } = await this.get<{ uuid: string; status: string }[]>('/servers?extras=status');
    return body.flatMap(({ uuid, status }) => (status === 'running' ? [uuid] : []));
  }

  async get<Body>(route: string): Promise<{ status: number; body: Body }> {
    return this.call('GET', route);
  }

  /** One well-formed request. @throws Wrong when it is not answered */
  async call<Body>(method: string, route: string, body?: unknown): Promise<{ status: number; body: Body }> {
    const content =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    const response = await fetch(this.url + route, { method, signal, ...content }).catch((cause: Error) => {
      throw new Wrong(
        `${method} ${route} of good will was not answered: ${cause.message} ${this.instance.lastWords()}`,
      );
    });
    const text = await response.text();
    return { status: response.status, body: (text === '' ? undefined : JSON.parse(text)) as Body };
  }

  /** Problems of the process, its answers, the honest agent, and the log. */
  async inspect(): Promise<string[]> {
    const { instance } = this;
    if (!instance.program.isAlive) return [`the instance has ended. ${instance.lastWords()}`];
    const ping = await this.get<{ ready: boolean }>('/ping');
    const history = await this.get<{ status: string; reason: string }[]>(`/servers/${this.#honest}/status-history`);
    const lost = history.body.filter(({ status }) => status !== 'running');
    return [
      ...(ping.status === 200 && ping.body.ready ? [] : [`/ping answers ${ping.status} ${JSON.stringify(ping.body)}`]),
      ...lost.map(({ status, reason }) => `the honest agent's server was ${status} (${reason})`),
      ...(this.#fleet.isAlive ? [] : ['the process of the agents has ended']),
      ...instance.defects(),
    ];
  }

  async stop(): Promise<void> {
    await Promise.all(this.#programs.map((program) => program.kill()));
    rmSync(this.directory, { recursive: true, force: true });
  }
}

/** An answer to a question has the field that the question names. */
interface Answer {
  vitals: Vitals;
  usage: Usage;
}

interface ProbedPlan {
  name: string;
  file: string;
  args: readonly string[];
  directory: string;
}

/** A process with the probe in it. */
export class ProbedProgram {
  readonly program: Program;
  readonly #directory: string;
  #waiting: ((answer: Answer) => void) | undefined;
  #defectsSeen = 0;

  constructor({ name, file, args, directory }: ProbedPlan) {
    this.#directory = directory;
    this.program = new Program({
      name,
      command: ownProgram(file, args, ['--import', PROBE]),
      logFile: path.join(directory, `${name}.log`),
      onMessage: (message) => this.#waiting?.(message as Answer),
    });
  }

  /** Permanently, with its log. */
  async end(): Promise<void> {
    await this.program.kill();
    rmSync(this.#directory, { recursive: true, force: true });
  }

  async vitals(): Promise<Vitals> {
    return (await this.#ask('vitals')).vitals;
  }

  async usage(): Promise<Usage> {
    return (await this.#ask('usage')).usage;
  }

  async #ask(question: keyof Answer): Promise<Answer> {
    if (!this.program.isAlive) throw new Wrong(`${this.program.name} has ended. ${this.lastWords()}`);
    const { promise, resolve, reject } = Promise.withResolvers<Answer>();
    this.#waiting = resolve;
    const timer = setTimeout(
      () => reject(new Wrong(`${this.program.name} does not report its ${question}`)),
      VITALS_WITHIN_MS,
    );
    this.program.send(question);
    return promise.finally(() => clearTimeout(timer));
  }

  /**
   * Lines of its log that show a defect and were not reported yet: errors, and lines that are not
   * log lines.
   */
  defects(): string[] {
    const lines = this.program.log();
    const fresh = lines.slice(this.#defectsSeen);
    this.#defectsSeen = lines.length;
    // An instance that cannot keep up reflects the machine, which has other users.
    const isOfTheMachine = (msg: string) => msg.startsWith('instance: ');
    const defects = fresh.filter(({ level, msg }) =>
      typeof level === 'number' ? level >= 50 && !isOfTheMachine(msg) : msg !== '',
    );
    return defects.map((line) => `${this.program.name} logged ${JSON.stringify(line).slice(0, 600)}`).slice(0, 5);
  }

  /** The end of its log, for a report that it has ended. */
  lastWords(): string {
    if (this.program.isAlive) return '';
    const lines = this.program.log().slice(-15);
    return `It ended with ${this.program.exitCode}: ${lines.map((line) => line.msg || JSON.stringify(line)).join('\n')}`;
  }
}

export async function freePort(): Promise<number> {
  const { promise, resolve } = Promise.withResolvers<number>();
  const server = createServer().listen(0, '127.0.0.1', () => {
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    server.close(() => resolve(port));
  });
  return promise;
}
