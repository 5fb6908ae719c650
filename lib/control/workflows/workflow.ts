/**
 * A workflow job: durable work of several steps on one server. Pure: how a job goes from step to
 * step (docs/design/workflows.md). `definitions.ts` says which steps each workflow has, and
 * `workflow-runner.ts` carries them out.
 *
 *     due ──begin──▶ begun ──done──▶ the next step is due; after the last one: succeeded
 *      ▲               │ failed, and the step may be tried again
 *      └───────────────┤
 *                      └ failed, timed out, cancelled ──▶ the first step of `onerror` is due
 *     due ──cancel──▶ the same
 *
 * The steps of `onerror` undo what steps of the chain have begun. They are carried out one after
 * the other, whatever becomes of each, and cannot be cancelled. Then the job ends as failed or
 * cancelled.
 */

/** Why a job leaves its chain, and how it ends then. */
type LeftAs = 'failed' | 'canceled';

/** Where a job is. */
export interface StepPosition {
  phase: 'chain' | 'onerror';
  /** Index in the chain, or in `onerror`. */
  step: number;
  /** How often the step has failed. */
  tries: number;
}

/** A job that has not ended. */
interface Unfinished extends StepPosition {
  name: 'due' | 'begun';
  /** In `onerror`: how the job ends, and how many steps of the chain had begun. */
  left?: { ending: LeftAs; begun: number } | undefined;
}

export type WorkflowState = Unfinished | { name: 'ended'; execution: 'succeeded' | LeftAs };

/**
 * `isFinal`: trying the step again would not help. `isCancelled`: a caller has cancelled the job
 * meanwhile.
 */
export type WorkflowEvent =
  | { type: 'begin' }
  | { type: 'done'; isCancelled: boolean }
  | { type: 'failed'; isCancelled: boolean; isFinal: boolean }
  | { type: 'timed-out' }
  | { type: 'cancel' };

interface PlannedStep {
  name: string;
  /** How often it is tried. */
  maxTries: number;
  /** Whether the step's work is a task, which ends by itself after a cancel. */
  isTask: boolean;
}

/**
 * A step of `onerror` is for a job in which the step `undoes` has begun; for every job if that is
 * undefined.
 */
interface UndoStep extends PlannedStep {
  undoes: string | undefined;
}

export interface Plan {
  chain: readonly PlannedStep[];
  onerror: readonly UndoStep[];
}

/** What the runner does beside storing the next state. */
type WorkflowEffect = { do: 'start'; step: string } | { do: 'cancel-task' };

interface Transition {
  state: WorkflowState;
  effects: WorkflowEffect[];
}

/** The job received an event that its state cannot have. */
class WorkflowTransitionError extends Error {
  override readonly name = 'WorkflowTransitionError';

  constructor(id: string, state: WorkflowState, event: WorkflowEvent) {
    super(`workflow job ${id}: ${event.type} in state ${state.name}`);
  }
}

/** @throws WorkflowTransitionError */
export function stepWorkflow(plan: Plan, state: WorkflowState, event: WorkflowEvent, id: string): Transition {
  switch (state.name) {
    case 'due':
      if (event.type === 'begin')
        return { state: { ...state, name: 'begun' }, effects: [{ do: 'start', step: stepOf(plan, state).name }] };
      if (event.type === 'cancel') return state.phase === 'chain' ? leaveChain(plan, state, 'canceled') : same(state);
      break;
    case 'begun':
      return stepBegun(plan, state, event);
    case 'ended':
      if (event.type === 'cancel') return same(state);
      break;
    default:
      return state satisfies never;
  }
  throw new WorkflowTransitionError(id, state, event);
}

/** The step at this position. */
export function stepOf(plan: Plan, { phase, step }: StepPosition): PlannedStep {
  const found = plan[phase][step];
  if (found === undefined) throw new Error(`there is no step ${step} in ${phase}`);
  return found;
}

function stepBegun(plan: Plan, state: Unfinished, event: WorkflowEvent): Transition {
  const step = stepOf(plan, state);
  switch (event.type) {
    case 'begin':
      // The answer to the begin was lost.
      return same(state);
    case 'cancel':
      if (state.phase === 'onerror') return same(state);
      return step.isTask ? { state, effects: [{ do: 'cancel-task' }] } : leaveChain(plan, state, 'canceled');
    case 'done':
      return event.isCancelled && state.phase === 'chain' ? leaveChain(plan, state, 'canceled') : goOn(plan, state);
    case 'failed':
      if (event.isCancelled && state.phase === 'chain') return leaveChain(plan, state, 'canceled');
      if (!event.isFinal && state.tries + 1 < step.maxTries)
        return same({ ...state, name: 'due', tries: state.tries + 1 });
      return state.phase === 'chain' ? leaveChain(plan, state, 'failed') : goOn(plan, state);
    case 'timed-out':
      return state.phase === 'chain' ? leaveChain(plan, state, 'failed') : goOn(plan, state);
    default:
      return event satisfies never;
  }
}

function goOn(plan: Plan, { step, left }: Unfinished): Transition {
  if (left !== undefined) return nextUndo(plan, step + 1, left);
  return same(
    step + 1 < plan.chain.length
      ? { name: 'due', phase: 'chain', step: step + 1, tries: 0 }
      : { name: 'ended', execution: 'succeeded' },
  );
}

/** The present step has begun, unless it is due for the first time. */
function leaveChain(plan: Plan, { name, step, tries }: Unfinished, ending: LeftAs): Transition {
  return nextUndo(plan, 0, { ending, begun: name === 'begun' || tries > 0 ? step + 1 : step });
}

/** The first undo step from `from` on that the job needs. */
function nextUndo(plan: Plan, from: number, left: { ending: LeftAs; begun: number }): Transition {
  const begun = new Set(plan.chain.slice(0, left.begun).map(({ name }) => name));
  const step = plan.onerror.findIndex(
    ({ undoes }, index) => index >= from && (undoes === undefined || begun.has(undoes)),
  );
  return same(
    step === -1 ? { name: 'ended', execution: left.ending } : { name: 'due', phase: 'onerror', step, tries: 0, left },
  );
}

const same = (state: WorkflowState): Transition => ({ state, effects: [] });
