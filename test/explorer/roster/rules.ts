/** The product's parts that a world runs on, so that a test can replace one with a defect. */
import { step } from '../../../lib/agent/link/link.ts';
import { Orphans } from '../../../lib/control/roster/sessions/orphans.ts';
import { decideHello } from '../../../lib/control/roster/status/roster.ts';
import { accept, recordLoss, recordOrphan } from './model.ts';
import type { InstanceState, PolledHeld } from './state.ts';

export interface Rules {
  step: typeof step;
  decideHello: typeof decideHello;
  accept: typeof accept;
  recordLoss: typeof recordLoss;
  recordOrphan: typeof recordOrphan;
  isOwnerless: (instance: InstanceState, row: PolledHeld) => boolean;
  openOrphans: (known: InstanceState['orphan']) => Pick<Orphans, 'readRows'>;
  /** A session that does not own its row is ended. */
  closesDisowned: boolean;
  /** A poll is compared with sessions that were accepted after it was sent. */
  ignoresRegistration: boolean;
}

const GRACE_MS = 1;

export const rules: Rules = {
  step,
  decideHello,
  accept,
  recordLoss,
  recordOrphan,
  isOwnerless,
  openOrphans,
  closesDisowned: true,
  ignoresRegistration: false,
};

/** `Reaper.#isOwnerless`. */
function isOwnerless({ run, canJudgeForeignRows, pendings, session }: InstanceState, row: PolledHeld): boolean {
  if (!row.isRunning) return false;
  if (row.run !== run) return canJudgeForeignRows;
  return pendings.length === 0 && session?.epoch !== row.epoch;
}

/** As the last poll left them; the grace passes between two polls. */
function openOrphans(known: InstanceState['orphan']): Orphans {
  const orphans = new Orphans(GRACE_MS);
  if (known !== undefined) {
    orphans.readRows([known]);
    orphans.countHealthyTick(GRACE_MS);
  }
  return orphans;
}
