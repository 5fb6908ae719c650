/**
 * What the statements of lib/control/roster/status/roster-store.ts and instance-store.ts do to one
 * row, written a second time for the small worlds. `roster-conformance.test.ts` compares it with
 * the statements themselves.
 */
import type { DrainResult } from '../../../lib/control/roster/membership/instance-store.ts';
import type { BeatReading } from '../../../lib/control/roster/membership/lease.ts';
import type { HeldRow, HelloIdentity, RosterRow } from '../../../lib/control/roster/status/authority-row.ts';
import { MAX_EPOCH_LEAD } from '../../../lib/protocol/limits.ts';

export type Row = Pick<
  RosterRow,
  'run' | 'epoch' | 'status' | 'reason' | 'incarnation' | 'conn' | 'journalId' | 'inventoryEpoch'
> & { replaced: string | null };

export interface AcceptedRow {
  row: Row;
  previousRun: string | null;
  isAlternating: boolean;
}

/** `acceptSessions`, with one hello. */
export function accept(
  row: Row | undefined,
  run: string,
  hello: HelloIdentity,
  replaces: string | null = null,
): AcceptedRow | undefined {
  if (row === undefined) return acceptNew(run, hello);
  if (hello.epoch > row.epoch + MAX_EPOCH_LEAD) return undefined;
  const isSameJournal = row.journalId === hello.journalId;
  if (hello.epoch < row.inventoryEpoch && (isSameJournal || hello.epoch > 0)) return undefined;
  const isSame = row.incarnation === hello.incarnation;
  const isHeld = row.incarnation !== null && row.status === 'running' && row.run !== null;
  if (isSame ? (row.conn ?? 0) >= hello.conn : isHeld && row.incarnation !== replaces) return undefined;
  const wasHeld = row.status === 'running' && row.run !== null;
  const replaced = isSame ? row.replaced : wasHeld ? row.incarnation : null;
  return {
    row: {
      run,
      epoch: Math.max(row.epoch, hello.epoch) + 1,
      status: 'running',
      reason: 'connected',
      incarnation: hello.incarnation,
      conn: hello.conn,
      journalId: hello.journalId,
      inventoryEpoch: row.inventoryEpoch,
      replaced,
    },
    previousRun: row.run,
    isAlternating: row.replaced === hello.incarnation && replaced !== null,
  };
}

function acceptNew(run: string, { epoch, incarnation, conn, journalId }: HelloIdentity): AcceptedRow | undefined {
  if (epoch > MAX_EPOCH_LEAD) return undefined;
  const fresh = { status: 'running', reason: 'connected', inventoryEpoch: 0, replaced: null } as const;
  return {
    row: { ...fresh, run, epoch: epoch + 1, incarnation, conn, journalId },
    previousRun: null,
    isAlternating: false,
  };
}

type Held = Pick<HeldRow, 'run' | 'epoch'>;

const isHeldBy = (row: Row | undefined, held: Held): row is Row => row?.run === held.run && row.epoch === held.epoch;

/** `recordInventories`; undefined: the row does not belong to the session. */
export function recordInventory(row: Row | undefined, session: Held): Row | undefined {
  return isHeldBy(row, session) ? { ...row, inventoryEpoch: row.epoch } : undefined;
}

/** `recordLosses`; undefined: it does not apply. */
export function recordLoss(row: Row | undefined, loss: Held & Pick<Row, 'reason'>): Row | undefined {
  if (!isHeldBy(row, loss) || row.status !== 'running') return undefined;
  return { ...row, status: 'unknown', reason: loss.reason };
}

/** `markOwnerlessUnknown`, by the instance of `run`. */
export function recordOwnerless(row: Row | undefined, run: string, ownerlessRow: Held): Row | undefined {
  return recordLoss(row, { ...ownerlessRow, reason: ownerlessRow.run === run ? 'session-lost' : 'instance-lost' });
}

/** `renewRun`. */
export function renewRun(row: Row | undefined, newRun: string, session: Held): Row | undefined {
  const isTheirs = isHeldBy(row, session) || isHeldBy(row, { ...session, run: newRun });
  return row && isTheirs && row.status === 'running' ? { ...row, run: newRun } : undefined;
}

/** `cnapi_remove_authority`. */
export function remove(row: Row | undefined): Row | undefined {
  return row && { ...row, run: null, status: 'unknown', reason: 'removed' };
}

/** Whether `pollRows` shows it to the instance of `run`. */
export function isPolled(row: Row | undefined, run: string, runs: readonly Run[]): row is Row & { run: string } {
  if (row === undefined || row.run === null) return false;
  if (row.run === run) return true;
  return row.status === 'running' && !runs.some((other) => other.run === row.run && other.isLive);
}

/** A row of cnapi_instances. */
export interface Run {
  run: string;
  cnapiUuid: string;
  isLive: boolean;
  isDraining: boolean;
  beat: number;
}

const isNamed = (run: string) => (other: Run) => other.run === run;

/** `insertRun`. */
export function insertRun(runs: readonly Run[], { run, cnapiUuid }: Pick<Run, 'run' | 'cnapiUuid'>): Run[] {
  if (runs.some(isNamed(run))) return [...runs];
  return [...runs, { run, cnapiUuid, isLive: true, isDraining: false, beat: 0 }];
}

/** `incrementBeat`; undefined: the run is dead. */
export function incrementBeat(runs: readonly Run[], run: string): Run[] | undefined {
  const mine = runs.find(isNamed(run));
  if (!mine?.isLive) return undefined;
  return runs.map((other) => (other === mine ? { ...mine, beat: mine.beat + 1 } : other));
}

/** `declareLapsed`, with one run. */
export function declareLapsed(runs: readonly Run[], { run, beat }: BeatReading): Run[] {
  return runs.map((other) => (other.run === run && other.beat === beat ? { ...other, isLive: false } : other));
}

/** `endRun`. */
export function endRun(runs: readonly Run[], run: string): Run[] {
  return runs.map((other) => (other.run === run ? { ...other, isLive: false } : other));
}

/** `drainRun`. */
export function drainRun(runs: readonly Run[], run: string): { runs: Run[]; answer: DrainResult } {
  const mine = runs.find(isNamed(run));
  const stays = (other: Run) => other.isLive && !other.isDraining && other.cnapiUuid !== mine?.cnapiUuid;
  if (!mine?.isLive) return { runs: [...runs], answer: 'gone' };
  if (mine.isDraining) return { runs: [...runs], answer: 'draining' };
  if (!runs.some(stays)) return { runs: [...runs], answer: 'last' };
  return { runs: runs.map((other) => (other === mine ? { ...mine, isDraining: true } : other)), answer: 'draining' };
}
