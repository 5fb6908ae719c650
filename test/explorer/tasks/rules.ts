/**
 * The product's parts that a world of tasks runs on, so that a test can replace one with a defect.
 */

import { buildInventory, fold } from '../../../lib/agent/journal/journal.ts';
import { answerCancel, answerTask, renumber } from '../../../lib/agent/runner/answers.ts';
import { decideAtInventory } from '../../../lib/control/tasks/store/task.ts';
import { cancel, claim, record, settle, sweep } from './model.ts';

export interface Rules {
  answerTask: typeof answerTask;
  answerCancel: typeof answerCancel;
  renumberingOf: typeof renumber;
  fold: typeof fold;
  inventoryOf: typeof buildInventory;
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
  renumberingOf: renumber,
  fold,
  inventoryOf: buildInventory,
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
