/**
 * The legacy protocol: the agent posts sysinfo, the list of agents, heartbeats and status. Three
 * loops run side by side, so no failure delays the heartbeats. Owned by Agent, which starts it when
 * the link falls back and stops it when a session opens.
 *
 *     stopped ── start ──► posting sysinfo ── accepted, or 1 s has passed ──► running
 *        ▲                        │                                              │
 *        └──────────────────────── stop ─────────────────────────────────────────┘
 *
 * While running it posts heartbeats and status. It posts sysinfo and the agents until they are
 * accepted, and again when they change.
 */

import { messageOf } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import { adviceOn } from '../link/refusals.ts';
import { type Machine, TRITON_AGENTS } from '../machine/machine.ts';
import { isWorthSending, STATUS_PERIOD_MS, STATUS_POLL_MS, SYSINFO_POLL_MS, withVms } from '../reports/reports.ts';
import type { Vms } from '../vms/vms.ts';
import type { LegacyCnapiClient } from './legacy-cnapi-client.ts';

interface LegacyReporterDeps {
  clock: Clock;
  random: Random;
  log: Logger;
  machine: Machine;
  vms?: Pick<Vms, 'summaries'> | undefined;
  cnapi: Pick<LegacyCnapiClient, 'post'>;
  serverUuid: string;
}

/** Pause after the answer to the previous heartbeat. */
const HEARTBEAT_MS = 5000;
/**
 * A heartbeat is valid for 11 s. So it must reach a third address although two are frozen, and 5 s
 * each would be too long for that.
 */
const HEARTBEAT_ANSWER_WITHIN_MS = 2000;
/** The first heartbeat waits at most this long for the sysinfo to be accepted. */
const INTRODUCE_FIRST_MS = 1000;
const INTRODUCE_AGAIN_MS = 30_000;

export class LegacyReporter {
  readonly #deps: LegacyReporterDeps;
  #stopping: AbortController | undefined;
  /** Ends the pause of the sysinfo loop. */
  #sendNow = new AbortController();
  #loops: Promise<unknown> = Promise.resolve();
  /** Digest of the sysinfo that was accepted last (empty: none), and when. */
  #sentDigest = '';
  #sysinfoSentAt = 0;
  #hasSentAgents = false;
  /** The last failure of each path. Each failure is logged once until it is over. */
  readonly #failures = new Map<string, string>();

  constructor(deps: LegacyReporterDeps) {
    this.#deps = deps;
  }

  get isRunning(): boolean {
    return this.#stopping !== undefined;
  }

  /** Does nothing while it runs. */
  start(): void {
    if (this.#stopping) return;
    this.#stopping = new AbortController();
    this.#sentDigest = '';
    this.#hasSentAgents = false;
    this.#loops = this.#run(this.#loops, this.#stopping.signal);
  }

  /** Resolves when no request is in flight any more. */
  async stop(): Promise<void> {
    this.#stopping?.abort();
    this.#stopping = undefined;
    await this.#loops;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  /**
   * Posts the sysinfo first, because the CNAPI may not know the server yet. A slow CNAPI delays the
   * rest by at most INTRODUCE_FIRST_MS.
   */
  async #run(former: Promise<unknown>, signal: AbortSignal): Promise<void> {
    await former;
    const first = this.#sendSysinfo(signal);
    await Promise.race([first, this.#deps.clock.sleep(INTRODUCE_FIRST_MS, signal)]);
    await Promise.all([this.#postHeartbeats(signal), this.#watchStatus(signal), this.#watchSysinfo(first, signal)]);
  }

  async #postHeartbeats(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      await this.#post('/events/heartbeat', {}, signal, HEARTBEAT_ANSWER_WITHIN_MS);
      await this.#deps.clock.sleep(HEARTBEAT_MS, signal);
    }
  }

  async #watchStatus(signal: AbortSignal): Promise<void> {
    const { clock, machine, vms } = this.#deps;
    let sent: { status: Record<string, unknown>; at: number } | undefined;
    while (!signal.aborted) {
      const status = await this.#tryRead(async () => withVms(await machine.status(), vms));
      const isDue = !sent || clock.now() - sent.at >= STATUS_PERIOD_MS || isWorthSending(sent.status, status);
      if (status && isDue) {
        const isAccepted = await this.#post('/events/status', status, signal);
        sent = isAccepted ? { status, at: clock.now() } : undefined;
      }
      await clock.sleep(STATUS_POLL_MS, signal);
    }
  }

  async #watchSysinfo(first: Promise<boolean>, signal: AbortSignal): Promise<void> {
    const { clock, random } = this.#deps;
    let failures = (await first) ? 0 : 1;
    while (!signal.aborted) {
      this.#sendNow = new AbortController();
      const pauseMs = failures === 0 ? SYSINFO_POLL_MS : backoffMs(failures, random.fraction());
      await clock.sleep(pauseMs, AbortSignal.any([signal, this.#sendNow.signal]));
      if (!signal.aborted) failures = (await this.#sendSysinfo(signal)) ? 0 : failures + 1;
    }
  }

  /** True when nothing is left to post. */
  async #sendSysinfo(signal: AbortSignal): Promise<boolean> {
    const sysinfo = await this.#tryRead(() => this.#deps.machine.sysinfo());
    if (!sysinfo) return false;
    const digest = digestOf(sysinfo);
    if (digest !== this.#sentDigest && !(await this.#post('/sysinfo', { sysinfo }, signal))) return false;
    this.#sentDigest = digest;
    this.#sysinfoSentAt = this.#deps.clock.now();
    this.#hasSentAgents ||= await this.#post('', { agents: TRITON_AGENTS }, signal);
    return true;
  }

  /** True when it was accepted, or is not wanted: an even older CNAPI has no route for sysinfo. */
  async #post(path: string, body: unknown, signal: AbortSignal, withinMs?: number): Promise<boolean> {
    try {
      const status = await this.#deps.cnapi.post(path, body, signal, withinMs);
      if (status === 404 && path !== '/sysinfo') this.#introduceAgain();
      const isOver = status < 400 || (status === 404 && path === '/sysinfo');
      const advice = adviceOn({ status });
      const reason = advice === undefined ? `answered with HTTP ${status}` : `answered with HTTP ${status}: ${advice}`;
      this.#note(path, isOver ? undefined : reason, signal);
      return isOver;
    } catch (error) {
      this.#note(path, messageOf(error), signal);
      return false;
    }
  }

  /**
   * After a 404 posts the sysinfo again: the CNAPI does not know the server. It may also be too old
   * to have the route, so this happens at most every INTRODUCE_AGAIN_MS.
   */
  #introduceAgain(): void {
    if (this.#deps.clock.now() - this.#sysinfoSentAt < INTRODUCE_AGAIN_MS) return;
    this.#sentDigest = '';
    this.#hasSentAgents = false;
    this.#sendNow.abort();
  }

  async #tryRead<Seen>(look: () => Promise<Seen>): Promise<Seen | undefined> {
    return look().catch((err: unknown) => {
      this.#deps.log.warn({ server_uuid: this.#deps.serverUuid, err }, 'machine: inspection failed');
      return undefined;
    });
  }

  #note(path: string, reason: string | undefined, signal: AbortSignal): void {
    if (signal.aborted || this.#failures.get(path) === reason) return;
    const fields = { server_uuid: this.#deps.serverUuid, path };
    if (reason === undefined) {
      this.#failures.delete(path);
      return this.#deps.log.info(fields, 'report: accepted again by the CNAPI');
    }
    this.#failures.set(path, reason);
    this.#deps.log.warn({ ...fields, reason }, 'report: not accepted by the CNAPI; trying again');
  }
}

const FIRST_RETRY_MS = 500;
const LONGEST_RETRY_MS = 120_000;
const RETRY_FACTOR = 1.6;

/**
 * Triton's agent's backoff, varied by a fifth; a success resets it. `failures` counts from 1.
 */
export function backoffMs(failures: number, chance: number): number {
  const ms = Math.min(LONGEST_RETRY_MS, FIRST_RETRY_MS * RETRY_FACTOR ** Math.min(failures - 1, 50));
  return ms * (0.8 + 0.4 * chance);
}
