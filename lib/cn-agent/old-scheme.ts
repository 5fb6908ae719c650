/**
 * How agents spoke before there was a link: sysinfo, the agents there are, heartbeats and status, each by POST. Three loops
 * beside each other, so that nothing that fails holds up the heartbeats. Owned by Agent, which starts it when the link falls
 * back and stops it when a session stands.
 *
 *     stopped ── start ──► sysinfo is posted ── taken, or a second ──► heartbeats, status; sysinfo and agents until taken, and on change
 *        ▲                                               │
 *        └────────────────────── stop ───────────────────┘
 */
import { messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import type { Random } from '../ports/random.ts';
import { digestOf } from '../wire/canonical-json.ts';
import type { Machine } from './machine.ts';
import type { OldCnapi } from './old-cnapi.ts';
import { adviceOn } from './refusals.ts';
import { isWorthTelling, STATUS_LOOK_MS, STATUS_PERIOD_MS, SYSINFO_LOOK_MS } from './reports.ts';

export interface OldSchemeDeps {
  clock: Clock;
  random: Random;
  log: Logger;
  machine: Machine;
  cnapi: Pick<OldCnapi, 'post'>;
  serverUuid: string;
}

/** After the answer to the one before. */
const HEARTBEAT_MS = 5000;
/** The first heartbeat waits no longer for the sysinfo to be taken. */
const INTRODUCE_FIRST_MS = 1000;
const INTRODUCE_AGAIN_MS = 30_000;
/**
 * A CNAPI of the older kind goes by the version of the reference's agent in what it asks for: from this one on it has
 * sysinfo read and servers rebooted by tasks, which this agent knows.
 */
const REFERENCE_VERSION = '2.11.0';
const AGENTS = [{ name: 'cn-agent', version: REFERENCE_VERSION, image_uuid: '00000000-0000-0000-0000-000000000000' }];

export class OldScheme {
  readonly #deps: OldSchemeDeps;
  #stopping: AbortController | undefined;
  /** Ends the pause of the sysinfo loop. */
  #hurry = new AbortController();
  #loops: Promise<unknown> = Promise.resolve();
  /** What was posted and taken last (empty: nothing), and when. */
  #toldDigest = '';
  #toldAt = 0;
  #hasToldAgents = false;
  /** The last failure by what failed, so that each is logged once until it is over. */
  readonly #failures = new Map<string, string>();

  constructor(deps: OldSchemeDeps) {
    this.#deps = deps;
  }

  get isRunning(): boolean {
    return this.#stopping !== undefined;
  }

  /** Harmless when it runs. */
  start(): void {
    if (this.#stopping) return;
    this.#stopping = new AbortController();
    this.#toldDigest = '';
    this.#hasToldAgents = false;
    this.#loops = this.#run(this.#loops, this.#stopping.signal);
  }

  /** Resolves when nothing is on its way any more. */
  async stop(): Promise<void> {
    this.#stopping?.abort();
    this.#stopping = undefined;
    await this.#loops;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /** A server that is not known yet gets its sysinfo first; but whoever is slow to take it does not hold up the rest. */
  async #run(former: Promise<unknown>, signal: AbortSignal): Promise<void> {
    await former;
    const first = this.#tellSysinfo(signal);
    await Promise.race([first, this.#deps.clock.sleep(INTRODUCE_FIRST_MS, signal)]);
    await Promise.all([this.#beat(signal), this.#watchStatus(signal), this.#watchSysinfo(first, signal)]);
  }

  async #beat(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#post('/events/heartbeat', {}, signal);
      await this.#deps.clock.sleep(HEARTBEAT_MS, signal);
    }
  }

  async #watchStatus(signal: AbortSignal): Promise<void> {
    const { clock, machine } = this.#deps;
    let told: { status: Record<string, unknown>; at: number } | undefined;
    while (!signal.aborted) {
      const status = await this.#look(() => machine.status());
      const isDue = !told || clock.now() - told.at >= STATUS_PERIOD_MS || isWorthTelling(told.status, status);
      if (status && isDue) {
        const isTold = await this.#post('/events/status', status, signal);
        told = isTold ? { status, at: clock.now() } : undefined;
      }
      await clock.sleep(STATUS_LOOK_MS, signal);
    }
  }

  async #watchSysinfo(first: Promise<boolean>, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#deps;
    let failures = (await first) ? 0 : 1;
    while (!signal.aborted) {
      this.#hurry = new AbortController();
      const pauseMs = failures === 0 ? SYSINFO_LOOK_MS : retryMs(failures, random.fraction());
      await clock.sleep(pauseMs, AbortSignal.any([signal, this.#hurry.signal]));
      if (!signal.aborted) failures = (await this.#tellSysinfo(signal)) ? 0 : failures + 1;
    }
  }

  /** True when there is nothing left to tell. */
  async #tellSysinfo(signal: AbortSignal): Promise<boolean> {
    const sysinfo = await this.#look(() => this.#deps.machine.sysinfo());
    if (!sysinfo) return false;
    const digest = digestOf(sysinfo);
    if (digest !== this.#toldDigest && !(await this.#post('/sysinfo', { sysinfo }, signal))) return false;
    this.#toldDigest = digest;
    this.#toldAt = this.#deps.clock.now();
    this.#hasToldAgents ||= await this.#post('', { agents: AGENTS }, signal);
    return true;
  }

  /** True when it was taken, or is not wanted: a CNAPI older still has no route for sysinfo. */
  async #post(path: string, body: unknown, signal: AbortSignal): Promise<boolean> {
    try {
      const status = await this.#deps.cnapi.post(path, body, signal);
      if (status === 404 && path !== '/sysinfo') this.#introduceAgain();
      const isOver = status < 400 || (status === 404 && path === '/sysinfo');
      const advice = adviceOn({ status });
      const why = advice === undefined ? `answered with HTTP ${status}` : `answered with HTTP ${status}: ${advice}`;
      this.#note(path, isOver ? undefined : why, signal);
      return isOver;
    } catch (error) {
      this.#note(path, messageOf(error), signal);
      return false;
    }
  }

  /** It does not know the server, or not any more; or it is so old that it has no such route, and will not learn by haste. */
  #introduceAgain(): void {
    if (this.#deps.clock.now() - this.#toldAt < INTRODUCE_AGAIN_MS) return;
    this.#toldDigest = '';
    this.#hasToldAgents = false;
    this.#hurry.abort();
  }

  async #look<Seen>(look: () => Promise<Seen>): Promise<Seen | undefined> {
    return look().catch((err: unknown) => {
      this.#deps.log.warn({ server_uuid: this.#deps.serverUuid, err }, 'the machine could not be looked at');
      return undefined;
    });
  }

  #note(path: string, why: string | undefined, signal: AbortSignal): void {
    if (signal.aborted || this.#failures.get(path) === why) return;
    const fields = { server_uuid: this.#deps.serverUuid, path };
    if (why === undefined) {
      this.#failures.delete(path);
      return this.#deps.log.info(fields, 'the CNAPI takes it again');
    }
    this.#failures.set(path, why);
    this.#deps.log.warn({ ...fields, why }, 'the CNAPI does not take it; trying again');
  }
}

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 120_000;
const RETRY_FACTOR = 1.6;

/** As the reference's agent, a fifth earlier or later; but a success begins anew. `failures` from 1. */
export function retryMs(failures: number, chance: number): number {
  const ms = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * RETRY_FACTOR ** Math.min(failures - 1, 50));
  return ms * (0.8 + 0.4 * chance);
}
