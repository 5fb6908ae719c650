/**
 * The product's parts that a world of tasks runs on, so that a test can replace one with a defect.
 */

import { fold, inventoryOf } from '../../../lib/agent/journal/journal.ts';
import { answerCancel, answerTask, renumberingOf } from '../../../lib/agent/runner/answers.ts';
import { decideAtInventory } from '../../../lib/control/tasks/store/task.ts';
import { cancel, claim, record, settle, sweep } from './model.ts';

export interface Rules {
  answerTask: typeof answerTask;
  answerCancel: typeof answerCancel;
  renumberingOf: typeof renumberingOf;
  fold: typeof fold;
  inventoryOf: typeof inventoryOf;
  decideAtInventory: typeof decideAtInventory;
  claim: typeof claim;
  settle: typeof settle;
  record: typeof record;
  cancel: typeof cancel;
  sweep: typeof sweep;
  /** A record is on the disk before it is reported or acted on. */
  waitsForDisk: boolean;
  /** Only the session of the highest epoch may give work. */
  refusesLowerEpochs: boolean;
  /** An end is recorded before it is acknowledged. */
  recordsFirst: boolean;
}

export const rules: Rules = {
  answerTask,
  answerCancel,
  renumberingOf,
  fold,
  inventoryOf,
  decideAtInventory,
  claim,
  settle,
  record,
  cancel,
  sweep,
  waitsForDisk: true,
  refusesLowerEpochs: true,
  recordsFirst: true,
};
