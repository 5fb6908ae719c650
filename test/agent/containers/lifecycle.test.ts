import t from 'tap';
import {
  type ContainerEvent,
  type ContainerState,
  type ContainerStep,
  ContainerTransitionError,
  stepContainer,
} from '../../../lib/agent/containers/lifecycle.ts';
import { checkStepTable, type StepTable } from '../../support/step-table.ts';

const NOW = 1_000_000;
const exit = { code: 3 };

const creating: ContainerState = { name: 'creating' };
const created: ContainerState = { name: 'created' };
const starting: ContainerState = { name: 'starting', run: 2 };
const running: ContainerState = { name: 'running', run: 2 };
const stopping: ContainerState = { name: 'stopping', run: 2, killAt: NOW + 5_000, signal: 'SIGINT' };
/** Stopped by an agent of an earlier version, or without time. */
const unsignalled: ContainerState = { name: 'stopping', run: 2, killAt: NOW + 5_000 };
/** The state of a container whose kill has failed. */
const overdue: ContainerState = { name: 'stopping', run: 2, killAt: NOW };
const stopped: ContainerState = { name: 'stopped', run: 2, exit };
const failed: ContainerState = { name: 'failed', reason: 'There is no room.' };
const deletingRun: ContainerState = { name: 'deleting', run: 2 };
const deleting: ContainerState = { name: 'deleting', run: undefined };
const every = { creating, created, starting, running, stopping, stopped, failed, deletingRun, deleting };

const ended: ContainerEvent = { type: 'ended', run: 2, exit };
const stop: ContainerEvent = { type: 'stop', signal: 'SIGTERM', timeoutMs: 3_000 };
const kill = [
  { do: 'arm-kill', run: 2, at: NOW + 5_000 },
  { do: 'signal', run: 2, signal: 'SIGKILL' },
] as const;
const clear = { do: 'clean-up', run: 2 } as const;
const remove = { do: 'remove' } as const;
const same = (state: ContainerState): ContainerStep => ({ state, effects: [] });

const lost = 'The agent ended while it started the container';

const rows: [string, ContainerState, ContainerEvent, ContainerStep | 'illegal'][] = [
  ['a prepared container is created', creating, { type: 'prepared' }, same(created)],
  [
    'one that cannot be prepared has failed',
    creating,
    { type: 'preparation-failed', reason: 'There is no room.' },
    same(failed),
  ],
  ['only a container that is being created is prepared', stopped, { type: 'prepared' }, 'illegal'],
  ['only a container that is being created fails', running, { type: 'preparation-failed', reason: '' }, 'illegal'],

  [
    'the first start is run 1',
    created,
    { type: 'start' },
    { state: { name: 'starting', run: 1 }, effects: [{ do: 'start', run: 1 }] },
  ],
  [
    'the next start is the next run',
    stopped,
    { type: 'start' },
    { state: { name: 'starting', run: 3 }, effects: [{ do: 'start', run: 3 }] },
  ],
  ['a start can be repeated while it starts', starting, { type: 'start' }, same(starting)],
  ['a start can be repeated while it runs', running, { type: 'start' }, same(running)],
  ['a stopping container cannot be started yet', stopping, { type: 'start' }, { refusal: 'is-stopping' }],
  ['a failed container cannot be started', failed, { type: 'start' }, { refusal: 'has-failed' }],
  ['a container that is created cannot be started yet', creating, { type: 'start' }, { refusal: 'is-creating' }],
  ['a container that is deleted cannot be started', deleting, { type: 'start' }, { refusal: 'is-deleting' }],

  ['a started container runs', starting, { type: 'started', run: 2 }, same(running)],
  ['a start of an earlier run changes nothing', starting, { type: 'started', run: 1 }, same(starting)],
  ['its end may be seen before its start', stopped, { type: 'started', run: 2 }, same(stopped)],
  [
    'a start that fails stops it with the reason',
    starting,
    { type: 'start-failed', run: 2, reason: 'no such program' },
    { state: { name: 'stopped', run: 2, exit: { unknown: 'no such program' } }, effects: [clear] },
  ],

  ['a run that ends is stopped and cleared', running, ended, { state: stopped, effects: [clear] }],
  ['so is one that ends while it starts', starting, ended, { state: stopped, effects: [clear] }],
  ['so is one that was asked to stop', stopping, ended, { state: stopped, effects: [clear] }],
  ['the end of an earlier run changes nothing', running, { type: 'ended', run: 1, exit }, same(running)],
  ['an end that is seen twice changes nothing', stopped, ended, same(stopped)],
  ['a deleted container is removed when its run has ended', deletingRun, ended, { state: deleting, effects: [remove] }],

  [
    'a stop sends the signal and arms the kill',
    running,
    stop,
    {
      state: { name: 'stopping', run: 2, killAt: NOW + 3_000, signal: 'SIGTERM' },
      effects: [
        { do: 'arm-kill', run: 2, at: NOW + 3_000 },
        { do: 'signal', run: 2, signal: 'SIGTERM' },
      ],
    },
  ],
  [
    'a stop without time kills',
    running,
    { ...stop, timeoutMs: 0 },
    { state: { name: 'stopping', run: 2, killAt: NOW }, effects: kill },
  ],
  [
    'a second stop can shorten the time',
    stopping,
    stop,
    {
      state: { name: 'stopping', run: 2, killAt: NOW + 3_000, signal: 'SIGTERM' },
      effects: [
        { do: 'arm-kill', run: 2, at: NOW + 3_000 },
        { do: 'signal', run: 2, signal: 'SIGTERM' },
      ],
    },
  ],
  ['a second stop cannot lengthen the time', stopping, { ...stop, timeoutMs: 60_000 }, same(stopping)],
  ['a stop of a stopped container can be repeated', stopped, stop, same(stopped)],
  ['a container that never ran is stopped', created, stop, same(created)],
  ['a starting container is stopped afterwards', starting, stop, { refusal: 'is-starting' }],
  ['a failed container cannot be stopped', failed, stop, { refusal: 'has-failed' }],
  ['the time of a stop ends with a kill', stopping, { type: 'kill-due', run: 2 }, { state: stopping, effects: kill }],
  [
    'a stop after the time of an earlier one kills again',
    overdue,
    { ...stop, timeoutMs: 60_000 },
    { state: overdue, effects: kill },
  ],
  ['so does a kill', overdue, { ...stop, timeoutMs: 0 }, { state: overdue, effects: kill }],
  [
    'a run of a deleted container that has not ended is killed again',
    deletingRun,
    { type: 'kill-due', run: 2 },
    { state: deletingRun, effects: kill },
  ],
  ['the time of an earlier stop does not', running, { type: 'kill-due', run: 2 }, same(running)],
  ['the time of an earlier run does not', stopping, { type: 'kill-due', run: 1 }, same(stopping)],

  [
    'a running container receives a signal',
    running,
    { type: 'signal', signal: 'SIGHUP' },
    { state: running, effects: [{ do: 'signal', run: 2, signal: 'SIGHUP' }] },
  ],
  ['a stopped one does not', stopped, { type: 'signal', signal: 'SIGHUP' }, { refusal: 'is-not-running' }],

  [
    'a stopped container can be deleted',
    stopped,
    { type: 'delete', force: false },
    { state: deleting, effects: [remove] },
  ],
  [
    'a failed container can be deleted',
    failed,
    { type: 'delete', force: false },
    { state: deleting, effects: [remove] },
  ],
  ['a running one cannot', running, { type: 'delete', force: false }, { refusal: 'is-running' }],
  [
    'unless by force; then its run ends first',
    running,
    { type: 'delete', force: true },
    { state: deletingRun, effects: kill },
  ],
  ['not while it is created', creating, { type: 'delete', force: true }, { refusal: 'is-creating' }],
  [
    'a delete that failed can be repeated',
    deleting,
    { type: 'delete', force: false },
    { state: deleting, effects: [remove] },
  ],
  ['a removed container is gone', deleting, { type: 'deleted' }, { state: undefined, effects: [] }],
  ['only a deleted container is gone', stopped, { type: 'deleted' }, 'illegal'],

  [
    'a creation that lost its agent has failed',
    creating,
    { type: 'recovered', found: 'not-started' },
    same({ name: 'failed', reason: 'The agent ended while it created the container' }),
  ],
  ['a new agent finds a running container again', running, { type: 'recovered', found: 'running' }, same(running)],
  ['one that was starting may run', starting, { type: 'recovered', found: 'running' }, same(running)],
  [
    'or not',
    starting,
    { type: 'recovered', found: 'not-started' },
    { state: { name: 'stopped', run: 2, exit: { unknown: lost } }, effects: [clear] },
  ],
  [
    'a new agent keeps the time of a stop, and sends its signal again',
    stopping,
    { type: 'recovered', found: 'running' },
    {
      state: stopping,
      effects: [
        { do: 'arm-kill', run: 2, at: NOW + 5_000 },
        { do: 'signal', run: 2, signal: 'SIGINT' },
      ],
    },
  ],
  [
    'but not that of a stop which it has received itself',
    stopping,
    { type: 'recovered', found: 'running', hasChanged: true },
    { state: stopping, effects: [{ do: 'arm-kill', run: 2, at: NOW + 5_000 }] },
  ],
  [
    'or only keeps the time, if no signal is recorded',
    unsignalled,
    { type: 'recovered', found: 'running' },
    { state: unsignalled, effects: [{ do: 'arm-kill', run: 2, at: NOW + 5_000 }] },
  ],
  [
    'a new agent learns how a run ended',
    running,
    { type: 'recovered', found: { exit } },
    { state: stopped, effects: [clear] },
  ],
  [
    'what is left of a stopped run is cleared again',
    stopped,
    { type: 'recovered', found: 'not-started' },
    { state: stopped, effects: [clear] },
  ],
  [
    'a new agent ends the run of a deleted container',
    deletingRun,
    { type: 'recovered', found: 'running' },
    { state: deletingRun, effects: kill },
  ],
  [
    'and continues to remove it',
    deletingRun,
    { type: 'recovered', found: { exit } },
    { state: deleting, effects: [remove] },
  ],
];

for (const [name, state, event, expected] of rows) {
  t.test(name, async (t) => {
    const before = structuredClone(state);
    if (expected === 'illegal') t.throws(() => stepContainer(state, event, NOW), ContainerTransitionError);
    else t.same(stepContainer(state, event, NOW), expected);
    t.same(state, before, 'the state is not modified');
  });
}

const EVENTS: { readonly [Type in ContainerEvent['type']]: ContainerEvent & { type: Type } } = {
  prepared: { type: 'prepared' },
  'preparation-failed': { type: 'preparation-failed', reason: 'why' },
  start: { type: 'start' },
  started: { type: 'started', run: 2 },
  'start-failed': { type: 'start-failed', run: 2, reason: 'why' },
  stop,
  signal: { type: 'signal', signal: 'SIGHUP' },
  'kill-due': { type: 'kill-due', run: 2 },
  ended,
  delete: { type: 'delete', force: true },
  deleted: { type: 'deleted' },
  recovered: { type: 'recovered', found: 'running' },
};

/**
 * For each event, in which states it leads where: the state and the effects; the refusal; or
 * `never`.
 */
const TABLE: StepTable<ContainerEvent['type']> = {
  prepared: {
    created: 'creating',
    never: 'created starting running stopping stopped failed deletingRun deleting',
  },
  'preparation-failed': {
    failed: 'creating',
    never: 'created starting running stopping stopped failed deletingRun deleting',
  },
  start: {
    'is-creating': 'creating',
    'starting, start': 'created stopped',
    starting: 'starting',
    running: 'running',
    'is-stopping': 'stopping',
    'has-failed': 'failed',
    'is-deleting': 'deletingRun deleting',
  },
  started: {
    creating: 'creating',
    created: 'created',
    running: 'starting running',
    stopping: 'stopping',
    stopped: 'stopped',
    failed: 'failed',
    deleting: 'deletingRun deleting',
  },
  'start-failed': {
    creating: 'creating',
    created: 'created',
    'stopped, clean-up': 'starting running stopping',
    stopped: 'stopped',
    failed: 'failed',
    'deleting, remove': 'deletingRun',
    deleting: 'deleting',
  },
  stop: {
    'is-creating': 'creating',
    created: 'created',
    'is-starting': 'starting',
    'stopping, arm-kill, signal': 'running stopping',
    stopped: 'stopped',
    'has-failed': 'failed',
    'is-deleting': 'deletingRun deleting',
  },
  signal: {
    'is-creating': 'creating',
    'is-not-running': 'created stopped',
    'is-starting': 'starting',
    'running, signal': 'running',
    'stopping, signal': 'stopping',
    'has-failed': 'failed',
    'is-deleting': 'deletingRun deleting',
  },
  'kill-due': {
    creating: 'creating',
    created: 'created',
    starting: 'starting',
    running: 'running',
    'stopping, arm-kill, signal': 'stopping',
    stopped: 'stopped',
    failed: 'failed',
    'deleting, arm-kill, signal': 'deletingRun',
    deleting: 'deleting',
  },
  ended: {
    creating: 'creating',
    created: 'created',
    'stopped, clean-up': 'starting running stopping',
    stopped: 'stopped',
    failed: 'failed',
    'deleting, remove': 'deletingRun',
    deleting: 'deleting',
  },
  delete: {
    'is-creating': 'creating',
    'deleting, remove': 'created stopped failed deleting',
    'is-starting': 'starting',
    'deleting, arm-kill, signal': 'running stopping deletingRun',
  },
  deleted: {
    never: 'creating created starting running stopping stopped failed',
    gone: 'deletingRun deleting',
  },
  recovered: {
    failed: 'creating failed',
    created: 'created',
    running: 'starting running',
    'stopping, arm-kill, signal': 'stopping',
    'stopped, clean-up': 'stopped',
    'deleting, arm-kill, signal': 'deletingRun',
    'deleting, remove': 'deleting',
  },
};

t.test('each event does in each state what the table says, and effects reach only its run', async (t) => {
  checkStepTable(t, TABLE, every, (state, type) => outcomeOf(every[state], EVENTS[type]));
});

function outcomeOf(before: ContainerState, event: ContainerEvent): string {
  try {
    const step = stepContainer(before, event, NOW);
    if ('refusal' in step) return step.refusal;
    const { state, effects } = step;
    const isOther = (run: number) => event.type !== 'start' && 'run' in before && before.run !== run;
    if (effects.some((effect) => 'run' in effect && isOther(effect.run))) return 'reaches another run';
    return [state?.name ?? 'gone', ...effects.map((effect) => effect.do)].join(', ');
  } catch (error) {
    if (error instanceof ContainerTransitionError) return 'never';
    throw error;
  }
}
