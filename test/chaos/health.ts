/**
 * Watches the machine and the zone during a run: which processes were kept from running and for how
 * long (time spent waiting for a processor, from /proc), what the roster says, and whether a
 * process ended without a fault.
 */
import { readFileSync } from 'node:fs';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { Program } from '../../tools/processes/program.ts';
import type { Zone } from '../support/fleet-harness.ts';
import type { RosterLook } from './history.ts';
import type { Recorder } from './recorder.ts';

const LOOK_MS = 250;
const ROSTER_MS = 400;
/**
 * reconnectMaxMs + ownerlessGraceMs: how long a time at which an agent was told to return matters.
 */
const RETURN_GRACE_MS = 13_000;
/** Shorter times are normal. */
const STARVED_MS = 40;

type Row = RosterLook['rows'][number];

export class Health {
  /** Programs that a fault has ended. */
  readonly down = new Set<Program>();
  /** Programs of a fault. */
  readonly also = new Set<Program>();
  readonly #zone: Zone;
  readonly #servers: ReadonlySet<string>;
  readonly #recorder: Recorder;
  readonly #waited = new Map<string, number>();
  readonly #exited = new Set<Program>();
  readonly #roster = new Map<string, Row>();
  readonly #timers: { cancel(): void }[] = [];
  #lookedAt: number;
  #reading: Promise<void> | undefined;

  /** `servers`: those that exist from beginning to end. */
  constructor(zone: Zone, recorder: Recorder, servers: readonly string[]) {
    this.#zone = zone;
    this.#servers = new Set(servers);
    this.#recorder = recorder;
    this.#lookedAt = recorder.now();
  }

  start(): void {
    this.#timers.push(clock.every(LOOK_MS, () => this.#look()));
    this.#timers.push(clock.every(ROSTER_MS, () => void this.readRoster()));
  }

  async stop(): Promise<void> {
    for (const timer of this.#timers) timer.cancel();
    await this.#reading;
  }

  get programs(): Program[] {
    const { instances, agents, fleet } = this.#zone;
    return [...instances, ...agents].map(({ program }) => program).concat(fleet ?? [], ...this.also);
  }

  /** The rows of the last read, without the servers of arriving agents. */
  get roster(): Row[] {
    return [...this.#roster.values()].filter(({ server }) => this.#servers.has(server));
  }

  statusOf(server: string): string | undefined {
    return this.#roster.get(server)?.status;
  }

  /** Reads the roster now; a failed read is not evidence. */
  readRoster(): Promise<void> {
    this.#reading ??= this.#readRows()
      .catch(() => undefined)
      .finally(() => {
        this.#reading = undefined;
      });
    return this.#reading;
  }

  async #readRows(): Promise<void> {
    const found = await this.#zone.sql<{ server: string; epoch: string; owner: string | null; status: string }>(
      'select server_uuid as server, epoch, cnapi_uuid as owner, status from cnapi_roster_authority',
    );
    const rows = found.map((row) => ({ ...row, epoch: Number(row.epoch) }));
    const changed = rows.filter((row) => JSON.stringify(row) !== JSON.stringify(this.#roster.get(row.server)));
    for (const row of changed) this.#roster.set(row.server, row);
    if (changed.length > 0) this.#recorder.write({ kind: 'roster', at: this.#recorder.now(), rows: changed });
    const deferring = await this.#zone.sql(
      `select 1 from cnapi_instances where latest_return_at > cnapi_now() - interval '${RETURN_GRACE_MS} ms' limit 1`,
    );
    if (deferring.length > 0) this.#recorder.write({ kind: 'deferring', at: this.#recorder.now() });
  }

  #look(): void {
    const from = this.#lookedAt;
    const to = this.#recorder.now();
    this.#lookedAt = to;
    const starved = (who: string, ms: number) => {
      if (ms > STARVED_MS) this.#recorder.write({ kind: 'starved', from, to, ms: Math.round(ms), who });
    };
    starved('harness', to - from - LOOK_MS);
    for (const program of this.programs) {
      if (program.isAlive) starved(program.name, this.#waitedSince(program.pid));
      else if (!this.down.has(program) && !this.#exited.has(program)) this.#reportExit(program, to);
    }
    for (const pid of this.#backends()) starved(`postgres ${pid}`, this.#waitedSince(pid));
  }

  #reportExit(program: Program, at: number): void {
    this.#exited.add(program);
    this.#recorder.write({ kind: 'exited', at, name: program.name, exitCode: program.exitCode ?? null });
  }

  /** How long its main thread has waited for a processor since the last call. */
  #waitedSince(pid: number): number {
    try {
      const waited = Number(readFileSync(`/proc/${pid}/task/${pid}/schedstat`, 'latin1').split(' ')[1]) / 1e6;
      const before = this.#waited.get(String(pid)) ?? waited;
      this.#waited.set(String(pid), waited);
      return waited - before;
    } catch {
      return 0;
    }
  }

  #backends(): number[] {
    try {
      const { pid } = this.#zone.postgres;
      return readFileSync(`/proc/${pid}/task/${pid}/children`, 'latin1').trim().split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  }
}
