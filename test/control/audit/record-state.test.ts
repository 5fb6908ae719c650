import t from 'tap';
import {
  mayHaveChanged,
  type RecordEvent,
  type RecordState,
  stepRecord,
} from '../../../lib/control/audit/record-state.ts';
import { checkStepTable, type StepTable } from '../../support/step-table.ts';

const STATES: Record<RecordState, true> = {
  new: true,
  beginning: true,
  begun: true,
  handling: true,
  writing: true,
  recorded: true,
};
const EVENTS: Record<'begin' | 'handle' | 'write' | 'written' | 'end' | 'end, limited', RecordEvent> = {
  begin: { type: 'begin' },
  handle: { type: 'handle' },
  write: { type: 'write' },
  written: { type: 'written' },
  end: { type: 'end', isLimited: false },
  'end, limited': { type: 'end', isLimited: true },
};
const TABLE: StepTable<keyof typeof EVENTS> = {
  begin: { beginning: 'new', illegal: 'beginning begun handling writing recorded' },
  handle: { handling: 'new', recorded: 'begun', illegal: 'beginning handling writing recorded' },
  write: { writing: 'handling writing', recorded: 'recorded', illegal: 'new beginning begun' },
  written: { begun: 'beginning', recorded: 'handling writing recorded', illegal: 'new begun' },
  end: { end: 'begun recorded', 'refuse, perhaps begun': 'beginning writing', refuse: 'new handling' },
  'end, limited': { end: 'begun recorded', 'refuse, perhaps begun': 'beginning writing', nothing: 'new handling' },
};

/** The new state; for the end, what is done about the record. */
function outcomeOf(name: RecordState, event: keyof typeof EVENTS): string {
  let step: ReturnType<typeof stepRecord>;
  try {
    step = stepRecord(name, EVENTS[event]);
  } catch {
    return 'illegal';
  }
  if (EVENTS[event].type !== 'end') return step.state;
  const [effect] = step.effects;
  if (effect === undefined) return 'nothing';
  return effect.do === 'refuse' && effect.mayHaveBegun ? 'refuse, perhaps begun' : effect.do;
}

t.test('the record of a request', async (t) => {
  checkStepTable(t, TABLE, STATES, outcomeOf);
});

t.test('a request may have changed something once its handler was called', async (t) => {
  const states = Object.keys(STATES) as RecordState[];
  t.same(states.filter(mayHaveChanged), ['handling', 'writing', 'recorded']);
});
