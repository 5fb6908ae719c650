/**
 * The table of statements: a row for each that a store exports. `catalogue.test.ts` fails when one
 * is missing.
 */
import { annealerStatements } from './annealer-statements.ts';
import { dutyStatements } from './duty-statements.ts';
import { eventStatements } from './event-statements.ts';
import { placementStatements } from './placement-statements.ts';
import { pushStatements } from './push-statements.ts';
import { rosterStatements } from './roster-statements.ts';
import { scheduleStatements } from './schedule-statements.ts';
import type { Call, Statement } from './statement.ts';
import { taskStatements } from './task-statements.ts';
import { ticketStatements } from './ticket-statements.ts';
import { workflowStatements } from './workflow-statements.ts';

export const statements: readonly Statement[] = [
  ...rosterStatements,
  ...taskStatements,
  ...ticketStatements,
  ...dutyStatements,
  ...pushStatements,
  ...scheduleStatements,
  ...workflowStatements,
  ...annealerStatements,
  ...placementStatements,
  ...eventStatements,
];

export const writingCalls: readonly Call[] = statements
  .filter(({ isReadOnly }) => !isReadOnly)
  .flatMap(({ calls }) => calls);
