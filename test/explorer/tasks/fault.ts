/** Faults are counted: each world has a limited number of each. */
import type { Budget, TaskWorldState } from './state.ts';

/** The state with one less of that fault left; none when there is none left. */
export function spend(state: TaskWorldState, fault: keyof Budget): TaskWorldState[] {
  if (state.left[fault] === 0) return [];
  return [{ ...state, left: { ...state.left, [fault]: state.left[fault] - 1 } }];
}
