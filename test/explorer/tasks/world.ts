/** The worlds of tasks: docs/design/tasks.md, invariant I3, for one server's agent. */
import { type TaskError, taskEnds } from '../../../lib/control/tasks/store/task.ts';
import type { Move, World } from '../explorer.ts';
import { agentMoves } from './agent.ts';
import { drop } from './connections.ts';
import { spend } from './fault.ts';
import { instanceMoves, lost, withTask } from './instance.ts';
import { rules as productRules, type Rules } from './rules.ts';
import { firstState, keyOf, type TaskBounds, type TaskWorldState, tell } from './state.ts';

type State = TaskWorldState;

export function taskWorld(bounds: TaskBounds, rules: Rules = productRules): World<State> {
  const { name, idempotent, faults } = bounds;
  const said = Object.entries(faults).map(([fault, times]) => `${fault} ${times}`);
  const kinds = idempotent.map((may) => (may ? 'idempotent' : 'not idempotent'));
  return {
    name,
    bounds: `2 instances, 1 agent, ${idempotent.length} task${idempotent.length === 1 ? '' : 's'} (${kinds.join(', ')}); ${said.length === 0 ? 'no faults' : said.join(', ')}`,
    initial: [firstState(bounds)],
    moves: function* (state): Generator<Move<State>> {
      yield* agentMoves(rules, state);
      for (const at of state.instances.keys()) yield* instanceMoves(rules, state, at);
      yield* others(rules, state);
    },
    keyOf,
    complaintOf: (state) =>
      Object.keys(state.tasks)
        .map((id) => complaintOf(state, id))
        .find((one) => one !== undefined),
    isEnd,
    tell,
  };
}

/** Callers, time, and the network. */
function* others(rules: Rules, state: State): Generator<Move<State>> {
  for (const { epoch, instance } of state.connections)
    for (const left of spend(state, 'cut'))
      yield {
        what: `the connection of epoch ${epoch} breaks`,
        to: lost(drop(left, epoch), instance, epoch),
        isFault: true,
      };
  for (const [id, task] of Object.entries(state.tasks)) {
    const swept = rules.sweep(task);
    const cancelled = rules.cancel(task);
    if (swept !== undefined)
      for (const left of spend(state, 'sweep'))
        yield { what: `${id} is swept`, to: withTask(left, id, swept), isFault: true };
    if (cancelled !== undefined && !task.cancelRequested)
      for (const left of spend(state, 'cancel'))
        yield { what: `a caller cancels ${id}`, to: withTask(left, id, cancelled), isFault: true };
  }
}

/** Ends that say that it has not run. */
const NOT_RUN: readonly TaskError[] = [taskEnds.notTaken, taskEnds.cancelled];

function complaintOf({ tasks, begun, done, ends, areJournalsWhole }: State, id: string): string | undefined {
  const task = tasks[id];
  const times = begun[id] ?? 0;
  if (task === undefined) return `${id} is gone`;
  if ((ends[id] ?? 0) > 1) return `I3: ${id} has ended ${ends[id]} times`;
  if (times > 1 && !task.idempotent) return `${id} may not be run again and was started ${times} times`;
  if (task.outcome === 'complete' && !done[id]) return `${id} is complete and its work was never done`;
  if (task.error && NOT_RUN.includes(task.error) && times > 0) return `${id} is reported as not run, but it started`;
  if (areJournalsWhole && task.error?.code === taskEnds.outcomeUnknown.code)
    return `the outcome of ${id} is unknown although its agent's journal is complete`;
  if (task.error?.code === 'TaskAlreadyEnded') return `${id} had ended before, and its outcome is lost`;
  return undefined;
}

/** All have ended, and the agent has no trace of them left. */
function isEnd({ tasks, agent, instances }: State): boolean {
  const hasAllEnded = Object.values(tasks).every(({ state }) => state === 'ended');
  const isIdle = Object.keys(agent.works).length === 0 && agent.journal.tasks.size === 0;
  return hasAllEnded && isIdle && instances.every(({ receivedEnds }) => receivedEnds.length === 0);
}
