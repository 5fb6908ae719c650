/**
 * The state of a small world of tasks: their rows, one server's agent with its journal, two
 * instances, messages in transit.
 */
import { type JournalState, newJournal } from '../../../lib/agent/journal/journal.ts';
import type { InventoryDecision, KnownTask } from '../../../lib/control/tasks/store/task.ts';
import type { TaskEndFrame } from '../../../lib/protocol/link/frames.ts';
import { type AsRead, type Fence, newTask, type TaskRow } from './model.ts';

export type DownFrame =
  | { type: 'task'; id: string; attempt: number; epoch: number }
  /** The inventory is settled; the product sends it once for all held tasks. */
  | { type: 'settled'; id: string; attempt: number; epoch: number }
  | { type: 'cancel' | 'ack'; id: string; attempt: number };

export type UpFrame =
  | { type: 'inventory'; epoch: number; tasks: readonly (KnownTask & { id: string })[] }
  | { type: 'accepted' | 'started'; id: string; attempt: number }
  | { type: 'ended'; id: string; attempt: number; outcome: TaskEndFrame['outcome']; code: string | undefined }
  | { type: 'end' };

/** One session's connection. */
export interface Connection {
  instance: number;
  epoch: number;
  journalId: string;
  up: readonly UpFrame[];
  down: readonly DownFrame[];
  isAgentOpen: boolean;
}

/** `accepting`, `starting` and `ending` wait for the disk. */
export type WorkPhase = 'accepting' | 'queued' | 'starting' | 'running' | 'ending';

export interface AgentState {
  /** The journal in the memory of the process; `disk` is the journal on the disk. */
  journal: JournalState;
  disk: JournalState;
  works: Readonly<Record<string, WorkPhase>>;
  /** The highest epoch that it was welcomed under. */
  highest: number;
  /** The epoch of its session. */
  session: number | undefined;
}

export interface InstanceState {
  session: { epoch: number; journalId: string; isInventoried: boolean } | undefined;
  /** The inventory that is being compared, and the decisions about it. */
  inventory: { epoch: number; journalId: string; tasks: readonly (KnownTask & { id: string })[] } | undefined;
  decided: readonly { id: string; read: AsRead; decision: InventoryDecision }[] | undefined;
  /** Ends that it received and has not recorded. */
  receivedEnds: readonly (Extract<UpFrame, { type: 'ended' }> & { connection: number })[];
  /** Frames that a statement returned and that are not sent yet. */
  orders: readonly { frame: DownFrame; epoch: number }[];
}

export interface Budget {
  cut: number;
  move: number;
  crashInstance: number;
  crashAgent: number;
  loseJournal: number;
  rollBackJournal: number;
  lostAnswer: number;
  resend: number;
  lateOrder: number;
  cancel: number;
  sweep: number;
}

export interface TaskWorldState {
  fence: Fence;
  tasks: Readonly<Record<string, TaskRow>>;
  connections: readonly Connection[];
  agent: AgentState;
  instances: readonly InstanceState[];
  /** How often each task has begun and finished its work, and how often its row has ended. */
  begun: Readonly<Record<string, number>>;
  done: Readonly<Record<string, number>>;
  ends: Readonly<Record<string, number>>;
  journals: number;
  /** No journal was lost or rolled back. */
  areJournalsWhole: boolean;
  left: Budget;
}

export interface TaskBounds {
  name: string;
  /** Whether each may be run again. */
  idempotent: readonly boolean[];
  faults: Partial<Budget>;
}

const NO_FAULTS: Budget = {
  cut: 0,
  move: 0,
  crashInstance: 0,
  crashAgent: 0,
  loseJournal: 0,
  rollBackJournal: 0,
  lostAnswer: 0,
  resend: 0,
  lateOrder: 0,
  cancel: 0,
  sweep: 0,
};

const NO_INSTANCE: InstanceState = {
  session: undefined,
  inventory: undefined,
  decided: undefined,
  receivedEnds: [],
  orders: [],
};

export const idleInstance = (): InstanceState => NO_INSTANCE;

export function firstState({ idempotent, faults }: TaskBounds): TaskWorldState {
  const ids = idempotent.map((_, at) => `t${at + 1}`);
  const none = Object.fromEntries(ids.map((id) => [id, 0]));
  const journal = newJournal('J1');
  return {
    fence: { run: '', epoch: 0, isRunning: false },
    tasks: Object.fromEntries(ids.map((id, at) => [id, newTask(idempotent[at] ?? false)])),
    connections: [],
    agent: { journal, disk: journal, works: {}, highest: 0, session: undefined },
    instances: [NO_INSTANCE, NO_INSTANCE],
    begun: none,
    done: none,
    ends: none,
    journals: 1,
    areJournalsWhole: true,
    left: { ...NO_FAULTS, ...faults },
  };
}

export const runOf = (instance: number): string => (instance === 0 ? 'A' : 'B');

export function keyOf({ agent, ...others }: TaskWorldState): string {
  const { journal, disk, ...rest } = agent;
  return JSON.stringify([others, rest, journalKey(journal), journal === disk ? 'same' : journalKey(disk)]);
}

function journalKey({ journalId, epoch, tasks, acknowledged }: JournalState): unknown {
  const known = [...tasks.values()].map((task) => [
    task.id,
    task.attempt,
    task.state,
    task.state === 'ended' ? `${task.end.outcome} ${task.end.error?.code}` : '',
  ]);
  return [journalId, epoch, known.sort(), [...acknowledged.keys()].sort()];
}

export function tell({ fence, tasks, connections, agent, instances }: TaskWorldState): string {
  const rows = Object.entries(tasks).map(([id, task]) => {
    const how =
      task.state === 'ended' ? `ended ${task.outcome} ${task.error?.code ?? ''}` : `${task.state} e${task.epoch}`;
    const marks = `${task.cancelRequested ? ' cancel' : ''}${task.uncertain ? ' uncertain' : ''}`;
    return `${id} ${how} a${task.attempt}${marks}`;
  });
  const journal = [...agent.journal.tasks.values()].map(({ id, state, attempt }) => `${id} ${state} a${attempt}`);
  const works = Object.entries(agent.works).map(([id, phase]) => `${id} ${phase}`);
  const sync = agent.journal === agent.disk ? '' : ' not on disk';
  const frames = connections.map(({ instance, epoch, up, down, isAgentOpen }) => {
    const list = (all: readonly { type: string }[]) => all.map(({ type }) => type).join('+');
    return `${runOf(instance)} e${epoch}${isAgentOpen ? '' : ' left'} up[${list(up)}] down[${list(down)}]`;
  });
  const held = instances.map(({ session }, at) => (session ? ` ${runOf(at)} holds e${session.epoch}` : '')).join('');
  return [
    `row ${fence.run} e${fence.epoch} ${fence.isRunning ? 'running' : 'unknown'}${held}`,
    ...rows,
    `agent e${agent.session ?? '-'}/${agent.highest} ${agent.journal.journalId} [${journal.join(', ')}]${sync} [${works.join(', ')}]`,
    ...frames,
  ].join(' | ');
}
