/**
 * I8: a duty has one holder, a former holder writes nothing, and each ends once with all its work
 * done.
 */
import { ANNEALER_DUTY_ID } from '../../lib/control/annealer/noderole-store.ts';
import type { DutyRow, DutyStepRow, InstanceRow } from './changes.ts';
import type { World } from './world.ts';

/** After a slow poll, a holder knows that it has lost a duty. */
const SLACK_MS = 3_000;

export class DutyChecks {
  readonly #world: World;
  readonly #rows = new Map<string, DutyRow>();
  readonly #liveRuns = new Set<string>();
  readonly #steps = new Map<string, number>();
  takeovers = 0;
  /** Since when a process works on what it no longer holds. */
  readonly #staleSince = new Map<string, number>();

  constructor(world: World) {
    this.#world = world;
  }

  get unended(): DutyRow[] {
    // The annealer's duty never ends.
    return [...this.#rows.values()].filter(({ id, state }) => state !== 'ended' && id !== ANNEALER_DUTY_ID);
  }

  /** The name of the instance that holds it. */
  holderOf(id: string): string | undefined {
    const run = this.#rows.get(id)?.run ?? '';
    const uuid = this.#world.checks.roster.instanceOf(run);
    return this.#world.instances.find((instance) => instance.uuid === uuid)?.name;
  }

  has(id: string): boolean {
    return this.#rows.has(id);
  }

  instanceChanged(before: InstanceRow | null, after: InstanceRow | null): void {
    if (after?.state === 'live') this.#liveRuns.add(after.run);
    else this.#liveRuns.delete((after ?? before)?.run ?? '');
  }

  rowChanged(before: DutyRow | null, after: DutyRow | null): void {
    if (after === null) return this.#violated(before?.id ?? '', 'was deleted');
    this.#rows.set(after.id, after);
    if (before === null) return;
    if (before.state === 'ended') this.#violated(after.id, `changed after its end to ${after.state}`);
    const isClaim = after.state === 'held' && before.run !== after.run;
    if (after.generation !== before.generation + (isClaim ? 1 : 0))
      this.#violated(after.id, `went from generation ${before.generation} to ${after.generation}`);
    if (isClaim && before.run !== null && this.#liveRuns.has(before.run))
      this.#violated(after.id, 'was taken from a live run');
    if (isClaim && before.state === 'held') this.takeovers += 1;
    if (before.state === 'held' && after.state !== 'held') this.#checkRelease(before, after);
  }

  /** Only its holder ends it or hands it over, and not while it works. */
  #checkRelease(before: DutyRow, after: DutyRow): void {
    const isAtWork = this.#world.instances.some(
      ({ isUp, core, duties }) =>
        isUp &&
        core?.roster.membership.run === before.run &&
        [...(duties?.working ?? [])].some(({ id, generation }) => id === after.id && generation === before.generation),
    );
    if (isAtWork) this.#violated(after.id, `is ${after.state} while its holder works on it`);
    if (after.state !== 'ended') return;
    // The work of other kinds has checks of its own.
    const steps = this.#world.workload.dutyOf(after.id)?.steps;
    if (steps === undefined) return;
    const done = this.#steps.get(after.id) ?? 0;
    if (done !== steps) this.#violated(after.id, `ended after ${done} of ${steps} steps`);
  }

  stepWritten({ duty, step, run, generation }: DutyStepRow): void {
    const row = this.#rows.get(duty);
    if (row?.state !== 'held' || row.run !== run || row.generation !== generation)
      this.#violated(duty, `step ${step} was written by a former holder, generation ${generation}`);
    if (step !== (this.#steps.get(duty) ?? 0) + 1) this.#violated(duty, `step ${step} came out of turn`);
    this.#steps.set(duty, step);
  }

  /** Each second: a process that has lost a duty stops its work. */
  tick(): void {
    const stale = new Set<string>();
    for (const { name, isUp, duties, config } of this.#world.instances) {
      if (!isUp) continue;
      for (const { id, run, generation } of duties?.working ?? []) {
        const row = this.#rows.get(id);
        if (row?.run === run && row.generation === generation) continue;
        const key = `${name} works on generation ${generation} of ${id}`;
        stale.add(key);
        const since = this.#staleSince.get(key) ?? this.#world.time.now;
        this.#staleSince.set(key, since);
        const withinMs = config.slowPollMs + SLACK_MS;
        if (this.#world.time.now - since > withinMs && this.#calmForMs() > withinMs)
          this.#violated(id, `${name} still works on it`);
      }
    }
    for (const key of this.#staleSince.keys()) if (!stale.has(key)) this.#staleSince.delete(key);
  }

  #calmForMs(): number {
    return this.#world.calmForMs('instances', 'drains', 'network', 'database');
  }

  #violated(id: string, what: string): void {
    this.#world.violated('I8', `duty ${id} ${what}`);
  }
}
