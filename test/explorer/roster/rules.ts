/** The product's parts that a world runs on, so that a test can replace one with a defect. */
import { stepLink } from '../../../lib/agent/link/link-step.ts';
import { type OwnerlessRows, observeOwnerless } from '../../../lib/control/roster/sessions/ownerless-rows.ts';
import { decideHello } from '../../../lib/control/roster/status/authority-row.ts';
import { accept, recordLoss, recordOwnerless } from './model.ts';
import type { InstanceState, PolledHeld } from './state.ts';

export interface Rules {
  step: typeof stepLink;
  decideHello: typeof decideHello;
  accept: typeof accept;
  recordLoss: typeof recordLoss;
  recordOwnerless: typeof recordOwnerless;
  isOwnerless: (instance: InstanceState, row: PolledHeld) => boolean;
  ownerlessAtLastPoll: (known: InstanceState['ownerlessRow']) => Pick<OwnerlessRows, 'read'>;
  /** A session that does not own its row is ended. */
  closesDisowned: boolean;
  /** A poll is compared with sessions that were accepted after it was sent. */
  ignoresRegistration: boolean;
}

const GRACE_MS = 1;

export const rules: Rules = {
  step: stepLink,
  decideHello,
  accept,
  recordLoss,
  recordOwnerless,
  isOwnerless,
  ownerlessAtLastPoll,
  closesDisowned: true,
  ignoresRegistration: false,
};

/** `Reaper.#isOwnerless`. */
function isOwnerless({ run, mayMarkOthersUnknown, pendings, session }: InstanceState, row: PolledHeld): boolean {
  if (!row.isRunning) return false;
  if (row.run !== run) return mayMarkOthersUnknown;
  return pendings.length === 0 && session?.epoch !== row.epoch;
}

/** The rows without an owner after the last poll. The grace passes between two polls. */
function ownerlessAtLastPoll(known: InstanceState['ownerlessRow']): OwnerlessRows {
  const ownerless = observeOwnerless(GRACE_MS);
  if (known !== undefined) {
    ownerless.read([known]);
    ownerless.countHealthyTick(GRACE_MS);
  }
  return ownerless;
}
