/**
 * Ownerless rows (docs/design/roster.md): rows that say `running` under a dead run, or under
 * this instance's run although none of its sessions has their epoch. A row that stays ownerless,
 * under one run and epoch, throughout `graceMs` of the observer's healthy ticks, with no failed
 * read, is due for `unknown`. The reaper reads, counts the ticks and writes, and gives agents more
 * time that were told to return later.
 */

import type { HeldRow } from '../status/authority-row.ts';
import { UnchangedRows } from '../unchanged-rows.ts';

export type OwnerlessRows = UnchangedRows<HeldRow>;

export function observeOwnerless(graceMs: number): OwnerlessRows {
  return new UnchangedRows<HeldRow>(graceMs, {
    keyOf: ({ serverUuid }) => serverUuid,
    versionOf: ({ run, epoch }) => `${run} ${epoch}`,
  });
}
