/**
 * Ownerless rows (docs/design.md section 5): rows that say `running` under a dead run, or under
 * this instance's run although none of its sessions has their epoch. A row that stays ownerless
 * throughout `graceMs` of the observer's healthy ticks, with no failed read, is due for `unknown`.
 * Pure; the reaper reads, counts the ticks and writes.
 */
import type { HeldRow } from '../status/roster.ts';

interface Orphan extends HeldRow {
  aloneMs: number;
}

export class Orphans {
  readonly #graceMs: number;
  #orphans = new Map<string, Orphan>();

  constructor(graceMs: number) {
    this.#graceMs = graceMs;
  }

  get size(): number {
    return this.#orphans.size;
  }

  countHealthyTick(tickMs: number): void {
    for (const orphan of this.#orphans.values()) orphan.aloneMs += tickMs;
  }

  readFailed(): void {
    for (const orphan of this.#orphans.values()) orphan.aloneMs = 0;
  }

  /**
   * Takes the rows that are ownerless now; returns those that have been so, under the same run and
   * epoch, for long enough.
   */
  readRows(rows: readonly HeldRow[]): HeldRow[] {
    const before = this.#orphans;
    this.#orphans = new Map(rows.map((row) => [row.serverUuid, carriedOver(row, before.get(row.serverUuid))]));
    return [...this.#orphans.values()].filter(({ aloneMs }) => aloneMs >= this.#graceMs);
  }
}

function carriedOver(row: HeldRow, known: Orphan | undefined): Orphan {
  const isSame = known !== undefined && known.run === row.run && known.epoch === row.epoch;
  return { ...row, aloneMs: isSame ? known.aloneMs : 0 };
}
