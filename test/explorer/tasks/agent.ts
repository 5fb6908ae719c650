/**
 * What may happen at the agent: lib/agent/runner/runner.ts in its order, over the product's journal
 * and answers. One task runs at a time, as in the serial lane.
 */
import type { JournalRecord, JournalState } from '../../../lib/agent/journal/journal.ts';
import type { TaskEndFrame } from '../../../lib/protocol/link/frames.ts';
import type { Move } from '../explorer.ts';
import { hangUp, open, say } from './connections.ts';
import { spend } from './fault.ts';
import type { Rules } from './rules.ts';
import { type DownFrame, runOf, type TaskWorldState, type UpFrame, type WorkPhase } from './state.ts';

type State = TaskWorldState;

export function agentMoves(rules: Rules, state: State): Move<State>[] {
  const { agent } = state;
  const moves = [...sessionMoves(rules, state), ...frames(rules, state), ...repeats(state), ...deaths(rules, state)];
  if (agent.journal !== agent.disk) moves.push({ what: 'the journal is on the disk', to: synced(state) });
  for (const [id, phase] of Object.entries(agent.works)) {
    if (isStartable(state, phase)) moves.push({ what: `starts ${id}`, to: started(rules, state, id) });
    if (phase === 'running') moves.push({ what: `completes ${id}`, to: completed(rules, state, id) });
  }
  return moves.map((move) => ({ ...move, what: `agent: ${move.what}` }));
}

function append(rules: Rules, state: State, record: JournalRecord): State {
  const { journal } = state.agent;
  const next: JournalState = { ...journal, tasks: new Map(journal.tasks), acknowledged: new Map(journal.acknowledged) };
  rules.fold(next, record, 1, 0);
  return { ...state, agent: { ...state.agent, journal: next } };
}

function withWork(state: State, id: string, phase: WorkPhase | undefined): State {
  const { [id]: _, ...others } = state.agent.works;
  const works = phase === undefined ? others : { ...others, [id]: phase };
  return { ...state, agent: { ...state.agent, works } };
}

/** Sends a report to the newest session, whichever session gave the task. */
const report = (state: State, frame: UpFrame): State =>
  state.agent.session === undefined ? state : say(state, state.agent.session, frame);

const endFrame = ({ id, attempt, outcome, error }: TaskEndFrame): UpFrame => ({
  type: 'ended',
  id,
  attempt,
  outcome,
  code: error?.code,
});

function end(id: string, attempt: number, code?: string): TaskEndFrame {
  const how = code === undefined ? { outcome: 'complete' as const } : { outcome: 'failure' as const };
  const error = code === undefined ? {} : { error: { code, message: '' } };
  return { type: 'task_end', id, attempt, ...how, ...error, reportedAt: '' };
}

/** Without a session it connects to any instance; with one only when it is asked to move. */
function sessionMoves(rules: Rules, state: State): Move<State>[] {
  const { agent, fence } = state;
  if (agent.highest !== (agent.session ?? 0) && isWelcomed(state))
    return [{ what: 'enters its new session', to: entered(rules, state) }];
  const isMoving = agent.session !== undefined;
  const from = isMoving ? spend(state, 'move') : [state];
  return from.flatMap((before) =>
    [0, 1].flatMap((instance) => {
      if (isMoving && runOf(instance) === fence.run) return [];
      const epoch = Math.max(fence.epoch, agent.journal.epoch) + 1;
      const { journalId } = agent.journal;
      const taken: State = {
        ...open(before, { instance, epoch, journalId }),
        fence: { run: runOf(instance), epoch, isRunning: true },
      };
      const to = { ...taken, agent: { ...taken.agent, highest: epoch } };
      return [{ what: `is welcomed by ${runOf(instance)} under epoch ${epoch}`, to, isFault: isMoving }];
    }),
  );
}

const isWelcomed = ({ agent, connections }: State): boolean =>
  connections.some(({ epoch, isAgentOpen }) => epoch === agent.highest && isAgentOpen);

/**
 * The epoch is written to the journal, and with it everything before; then the inventory is sent,
 * then everything that waited for a session.
 */
function entered(rules: Rules, before: State): State {
  const { session: former, highest } = before.agent;
  let state = synced(append(rules, before, { record: 'epoch', epoch: highest }));
  if (former !== undefined) state = hangUp(state, former);
  state = { ...state, agent: { ...state.agent, session: highest } };
  const { works } = state.agent;
  const known = rules.inventoryOf(state.agent.journal, (task) => task.state !== 'ended' && !works[task.id]);
  state = report(state, { type: 'inventory', epoch: highest, tasks: known });
  for (const task of state.agent.journal.tasks.values())
    if (task.state === 'ended') state = report(state, endFrame(task.end));
  return state;
}

/** A task that a former process left goes on. */
function continued(state: State, id: string): State {
  const isHeld = state.agent.journal.tasks.get(id)?.state === 'accepted' && state.agent.works[id] === undefined;
  return isHeld ? withWork(state, id, 'queued') : state;
}

function frames(rules: Rules, state: State): Move<State>[] {
  return state.connections.flatMap((connection, at) => {
    const [frame, ...down] = connection.down;
    if (frame === undefined || !connection.isAgentOpen) return [];
    const taken = { ...state, connections: state.connections.with(at, { ...connection, down }) };
    return [
      { what: `takes ${frame.type} ${frame.id} a${frame.attempt}`, to: take(rules, taken, frame, connection.epoch) },
    ];
  });
}

function take(rules: Rules, state: State, frame: DownFrame, epoch: number): State {
  const { session, highest } = state.agent;
  switch (frame.type) {
    case 'ack':
      return acknowledged(rules, state, frame);
    case 'cancel':
      return session === undefined ? state : cancelled(rules, state, frame);
    default: {
      const isAllowed = session === epoch && session === highest && frame.epoch === highest;
      if (!isAllowed && rules.refusesLowerEpochs) return state;
      return frame.type === 'task' ? given(rules, state, frame) : continued(state, frame.id);
    }
  }
}

function acknowledged(rules: Rules, state: State, { id, attempt }: DownFrame): State {
  const known = state.agent.journal.tasks.get(id);
  if (known?.state !== 'ended' || known.attempt !== attempt) return state;
  return append(rules, state, { record: 'acknowledged', id });
}

function renumbered(rules: Rules, state: State, frame: DownFrame): State {
  const record = rules.renumberingOf(state.agent.journal, frame);
  return record === undefined ? state : append(rules, state, record);
}

function given(rules: Rules, before: State, frame: Extract<DownFrame, { type: 'task' }>): State {
  const state = renumbered(rules, before, frame);
  const { id, attempt, epoch } = frame;
  const answer = rules.answerTask(state.agent.journal, frame);
  switch (answer.do) {
    case 'take': {
      const task = { type: 'task', id, attempt, epoch, name: 'nop', params: {}, timeoutMs: 1 } as const;
      return waiting(rules, withWork(append(rules, state, { record: 'accepted', task }), id, 'accepting'));
    }
    case 'say-accepted': {
      if (!state.agent.disk.tasks.has(id)) return state;
      return report(state, { type: 'accepted', id, attempt });
    }
    case 'send-end':
      return reportEnd(state, id);
    case 'say-ended':
      return report(state, endFrame(end(id, attempt, 'TaskAlreadyEnded')));
    default:
      return answer satisfies never;
  }
}

/** Not before it is on the disk: `synced` sends it then. */
function reportEnd(state: State, id: string): State {
  const known = state.agent.journal.tasks.get(id);
  const isWaiting = state.agent.works[id] === 'ending';
  return known?.state === 'ended' && !isWaiting ? report(state, endFrame(known.end)) : state;
}

function cancelled(rules: Rules, before: State, frame: DownFrame): State {
  const state = renumbered(rules, before, frame);
  const { id, attempt } = frame;
  const answer = rules.answerCancel(state.agent.journal, frame);
  switch (answer.do) {
    case 'nothing':
      return state;
    case 'send-end':
      return reportEnd(state, id);
    case 'say-cancelled':
      return report(state, endFrame(end(id, attempt, 'Cancelled')));
    case 'end':
    case 'end-unknown':
      return ending(rules, state, end(id, attempt, 'Cancelled'));
    default:
      return answer satisfies never;
  }
}

function ending(rules: Rules, state: State, frame: TaskEndFrame): State {
  return waiting(rules, withWork(append(rules, state, { record: 'ended', end: frame }), frame.id, 'ending'));
}

const waiting = (rules: Rules, state: State): State => (rules.waitsForDisk ? state : done(state, state.agent.disk));

function isStartable({ agent }: State, phase: WorkPhase): boolean {
  const isBusy = Object.values(agent.works).some((other) => other === 'starting' || other === 'running');
  return (phase === 'queued' || phase === 'accepting') && !isBusy;
}

function started(rules: Rules, state: State, id: string): State {
  return waiting(rules, withWork(append(rules, state, { record: 'started', id }), id, 'starting'));
}

function completed(rules: Rules, state: State, id: string): State {
  const { attempt } = state.agent.journal.tasks.get(id) ?? { attempt: 0 };
  const next = { ...state, done: { ...state.done, [id]: (state.done[id] ?? 0) + 1 } };
  return ending(rules, next, end(id, attempt));
}

const synced = (state: State): State => done(state, state.agent.journal);

/** Work that waited for the disk continues. */
function done(before: State, disk: JournalState): State {
  let state: State = { ...before, agent: { ...before.agent, disk } };
  for (const [id, phase] of Object.entries(state.agent.works)) {
    const known = state.agent.journal.tasks.get(id);
    const attempt = known?.attempt ?? 0;
    if (phase === 'accepting') {
      state = report(withWork(state, id, 'queued'), { type: 'accepted', id, attempt });
    } else if (phase === 'starting') {
      const begun = { ...state.begun, [id]: (state.begun[id] ?? 0) + 1 };
      state = report(withWork({ ...state, begun }, id, 'running'), { type: 'started', id, attempt });
    } else if (phase === 'ending') {
      state = withWork(state, id, undefined);
      if (known?.state === 'ended') state = report(state, endFrame(known.end));
    }
  }
  return state;
}

/** An unacknowledged end is sent again; one at a time is enough. */
function repeats(state: State): Move<State>[] {
  const connection = state.connections.find(({ epoch, isAgentOpen }) => epoch === state.agent.session && isAgentOpen);
  if (connection === undefined) return [];
  return [...state.agent.disk.tasks.values()].flatMap((task) => {
    const isOnItsWay =
      connection.up.some((frame) => frame.type === 'ended' && frame.id === task.id) ||
      connection.down.some((frame) => frame.id === task.id) ||
      state.instances[connection.instance]?.receivedEnds.some(({ id }) => id === task.id);
    if (task.state !== 'ended' || isOnItsWay || state.agent.journal.tasks.get(task.id)?.state !== 'ended') return [];
    return [{ what: `reports the end of ${task.id} again`, to: reportEnd(state, task.id) }];
  });
}

function deaths(rules: Rules, state: State): Move<State>[] {
  const restarted = (left: State, disk: JournalState): State => {
    let next: State = {
      ...left,
      connections: left.connections.map((connection) => ({
        ...connection,
        isAgentOpen: false,
        down: [],
        up: [...connection.up, { type: 'end' }],
      })),
      agent: { journal: disk, disk, works: {}, highest: disk.epoch, session: undefined },
    };
    for (const task of disk.tasks.values())
      if (task.state === 'running')
        next = append(rules, next, { record: 'ended', end: end(task.id, task.attempt, 'AgentRestarted') });
    return { ...next, agent: { ...next.agent, disk: next.agent.journal } };
  };
  const fresh = (number: number): JournalState => {
    return { journalId: `J${number}`, epoch: 0, tasks: new Map(), acknowledged: new Map(), liveBytes: 0 };
  };
  return [
    ...spend(state, 'crashAgent').map((left) => ({
      what: 'restarts',
      to: restarted(left, left.agent.disk),
      isFault: true,
    })),
    ...spend(state, 'rollBackJournal').map((left) => ({
      what: 'restarts with its journal as it was when the session began',
      to: restarted(
        { ...left, areJournalsWhole: false },
        { ...left.agent.disk, tasks: new Map(), acknowledged: new Map() },
      ),
      isFault: true,
    })),
    ...spend(state, 'loseJournal').map((left) => {
      const journals = left.journals + 1;
      return {
        what: 'restarts without its journal',
        to: restarted({ ...left, journals, areJournalsWhole: false }, fresh(journals)),
        isFault: true,
      };
    }),
  ];
}
