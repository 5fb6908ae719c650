/**
 * Reports sysinfo and status of the machine to the instance. Sysinfo: on request and on change (of
 * which the machine tells, or which is found each minute). Status: at the start of a session, on a
 * significant change (checked every 5 s), and each minute. A change of a VM is reported
 * immediately.
 */
import type { Logger } from '../../platform/log.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { digestOf } from '../../protocol/json/canonical-json.ts';
import type { LinkDriver } from '../link/link-driver.ts';
import type { Machine, Sysinfo } from '../machine/machine.ts';
import type { Vms } from '../vms/vms.ts';

interface ReportsDeps {
  clock: Clock;
  machine: Machine;
  outbox: Pick<LinkDriver, 'hasRoom' | 'send'>;
  log: Logger;
  serverUuid: string;
  vms?: Pick<Vms, 'summaries' | 'onChange'> | undefined;
}

type Status = Record<string, unknown>;

export const STATUS_POLL_MS = 5_000;
export const STATUS_PERIOD_MS = 60_000;
export const SYSINFO_POLL_MS = 60_000;
/** A change of a VM is told immediately, and further ones after this time. */
export const VMS_GAP_MS = 100;
/** A figure that changed by this fraction is reported before the minute is over. */
const WORTH_TELLING = 0.05;

export class Reports {
  readonly #deps: ReportsDeps;
  #digest = '';
  #sentStatus: Status | undefined;
  #statusSentAt = 0;
  #nextStatusAt = 0;
  #nextSysinfoAt = 0;
  /** A change of a VM that no status tells yet. */
  #hasVmChanged = false;
  /** A status about VMs was sent just now, or is being sent. */
  #isAfterVms = false;
  #vmsTimer: Timer | undefined;
  readonly #unlisten: readonly ((() => void) | undefined)[];

  constructor(deps: ReportsDeps) {
    this.#deps = deps;
    this.#unlisten = [
      deps.vms?.onChange(() => this.#vmChanged()),
      deps.machine.onSysinfoChange?.(() => this.#guard(this.#sendSysinfo(false))),
    ];
  }

  /** Digest of the sysinfo, for the hello. */
  get digest(): string {
    return this.#digest;
  }

  /** Called before the first hello, which carries the digest. */
  async start(): Promise<void> {
    this.#digest = digestOf(await this.#deps.machine.sysinfo());
  }

  stop(): void {
    for (const unlisten of this.#unlisten) unlisten?.();
    this.#vmsTimer?.cancel();
  }

  /** A new session is open. */
  sessionOpened(now: number, sendSysinfo: boolean): void {
    this.#nextSysinfoAt = now + SYSINFO_POLL_MS;
    if (sendSysinfo) this.#guard(this.#sendSysinfo(true));
    this.#sentStatus = undefined;
    this.#nextStatusAt = now;
  }

  /** Called each second while there is a session. */
  tick(now: number): void {
    if (now >= this.#nextStatusAt) {
      this.#nextStatusAt = now + STATUS_POLL_MS;
      this.#guard(this.#sendStatus(now));
    }
    if (now >= this.#nextSysinfoAt) {
      this.#nextSysinfoAt = now + SYSINFO_POLL_MS;
      this.#guard(this.#sendSysinfo(false));
    }
  }

  #vmChanged(): void {
    this.#hasVmChanged = true;
    if (!this.#isAfterVms) this.#guard(this.#sendVms());
  }

  /**
   * Sends one report at a time, with a pause between two. Changes during the pause go into the next
   * report.
   */
  async #sendVms(): Promise<void> {
    const { clock } = this.#deps;
    this.#isAfterVms = true;
    this.#hasVmChanged = false;
    try {
      await this.#sendStatus(clock.now());
    } finally {
      this.#vmsTimer = clock.after(VMS_GAP_MS, () => {
        this.#isAfterVms = false;
        if (this.#hasVmChanged) this.#guard(this.#sendVms());
      });
    }
  }

  async #sendStatus(now: number): Promise<void> {
    const { machine, vms, outbox } = this.#deps;
    const status = withVms(await machine.status(), vms);
    const due = now - this.#statusSentAt >= STATUS_PERIOD_MS;
    if (this.#sentStatus && !due && !isWorthSending(this.#sentStatus, status)) return;
    if (!outbox.hasRoom || !outbox.send({ type: 'status', status })) {
      this.#nextStatusAt = now;
      return;
    }
    this.#sentStatus = status;
    this.#statusSentAt = now;
  }

  async #sendSysinfo(always: boolean): Promise<void> {
    const sysinfo: Sysinfo = await this.#deps.machine.sysinfo();
    const digest = digestOf(sysinfo);
    if (!always && digest === this.#digest) return;
    if (this.#deps.outbox.send({ type: 'sysinfo', digest, sysinfo })) this.#digest = digest;
  }

  #guard(sending: Promise<void>): void {
    sending.catch((err: unknown) => {
      this.#deps.log.warn({ server_uuid: this.#deps.serverUuid, err }, 'machine: inspection failed');
    });
  }
}

/** Call it when the rest is read: a change of a VM that comes later makes a status of its own. */
export const withVms = (status: Status, vms: Pick<Vms, 'summaries'> | undefined): Status =>
  vms === undefined ? status : { ...status, vms: vms.summaries() };

/**
 * True when a figure changed by more than a twentieth, or anything else except the time changed.
 */
export function isWorthSending(sent: unknown, now: unknown): boolean {
  if (sent === now) return false;
  if (typeof sent === 'number' && typeof now === 'number') {
    return Math.abs(now - sent) > WORTH_TELLING * Math.max(Math.abs(sent), Math.abs(now));
  }
  if (!isObject(sent) || !isObject(now)) return true;
  const keys = new Set([...Object.keys(sent), ...Object.keys(now)]);
  keys.delete('timestamp');
  return [...keys].some((key) => isWorthSending(sent[key], now[key]));
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
