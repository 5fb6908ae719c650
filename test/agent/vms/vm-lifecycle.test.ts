import t from 'tap';
import type { ContainerState } from '../../../lib/agent/containers/lifecycle.ts';
import {
  NEW_VM,
  shownState,
  stepVm,
  type VmCommand,
  type VmContainerState,
  type VmEvent,
  type VmLife,
  type VmPhase,
  VmTransitionError,
  ZONE_STATES,
} from '../../../lib/agent/vms/vm-lifecycle.ts';
import { VM_STATES, type VmState } from '../../../lib/protocol/vms.ts';
import { checkStepTable, type StepTable } from '../../support/step-table.ts';

const PROVISIONED: VmPhase = { name: 'provisioned' };
const REBOOTING: VmPhase = { name: 'rebooting' };
const ROLLING_BACK: VmPhase = { name: 'rolling-back', snapshot: 'a' };
const stopped: ContainerState = { name: 'stopped', run: 1, exit: { code: 0 } };
const vanished: ContainerState = { name: 'stopped', run: 1, exit: { unknown: 'The machine restarted while it ran' } };
const running: ContainerState = { name: 'running', run: 1 };
const stopping: ContainerState = { name: 'stopping', run: 1, killAt: 1 };
const unreadable = (shouldRun: boolean) => ({ name: 'unreadable', reason: 'why', shouldRun }) as const;
const wanted = (phase: VmPhase): VmLife => ({ phase, shouldRun: true });
const unwanted = (phase: VmPhase): VmLife => ({ phase, shouldRun: false });

type Situation = [VmLife, VmContainerState | undefined];

const SITUATIONS = {
  creating: [NEW_VM, undefined],
  replacing: [wanted({ name: 'provisioning', by: 'reprovision' }), undefined],
  running: [wanted(PROVISIONED), running],
  stopping: [unwanted(PROVISIONED), stopping],
  stopped: [unwanted(PROVISIONED), stopped],
  exited: [wanted(PROVISIONED), stopped],
  vanished: [wanted(PROVISIONED), vanished],
  lost: [wanted(PROVISIONED), undefined],
  rebooting: [wanted(REBOOTING), running],
  halted: [wanted(REBOOTING), stopped],
  rolling: [wanted(ROLLING_BACK), stopped],
  failed: [unwanted({ name: 'failed', reason: 'why' }), stopped],
  destroying: [unwanted({ name: 'destroying' }), stopped],
} as const satisfies Record<string, Situation>;
type SituationName = keyof typeof SITUATIONS;

const EVENTS: { readonly [Type in VmEvent['type']]: VmEvent & { type: Type } } = {
  boot: { type: 'boot' },
  shutdown: { type: 'shutdown' },
  reboot: { type: 'reboot' },
  kill: { type: 'kill', signal: 'SIGHUP' },
  update: { type: 'update' },
  reprovision: { type: 'reprovision' },
  'create-snapshot': { type: 'create-snapshot' },
  'rollback-snapshot': { type: 'rollback-snapshot', snapshot: 'b' },
  'delete-snapshot': { type: 'delete-snapshot' },
  'create-image': { type: 'create-image' },
  destroy: { type: 'destroy' },
  provisioned: { type: 'provisioned', isStarted: true },
  replacing: { type: 'replacing' },
  failed: { type: 'failed', reason: 'why' },
  'start-failed': { type: 'start-failed' },
  halted: { type: 'halted' },
  rebooted: { type: 'rebooted' },
  'rolled-back': { type: 'rolled-back' },
  stopped: { type: 'stopped' },
  removed: { type: 'removed' },
  recovered: { type: 'recovered', autoboot: true },
};

/**
 * For each event, in which situations it leads where: the phase, `+` if it should run afterwards,
 * and the effects; or the refusal; or `never`, if it cannot come there.
 */
const TABLE: StepTable<VmEvent['type']> = {
  boot: {
    VmIsBusy: 'creating replacing stopping halted rolling destroying',
    VmAlreadyRunning: 'running rebooting',
    'provisioned+, start': 'stopped exited vanished',
    VmHasFailed: 'lost failed',
  },
  shutdown: {
    VmIsBusy: 'creating replacing rebooting destroying',
    'provisioned, stop': 'running stopping',
    VmNotRunning: 'stopped exited vanished halted rolling',
    VmHasFailed: 'lost failed',
  },
  reboot: {
    VmIsBusy: 'creating replacing rebooting destroying',
    'rebooting+, restart': 'running',
    'rebooting, restart': 'stopping',
    VmNotRunning: 'stopped exited vanished halted rolling',
    VmHasFailed: 'lost failed',
  },
  kill: {
    VmIsBusy: 'creating replacing destroying',
    'provisioned+, kill': 'running',
    'provisioned, kill': 'stopping',
    VmNotRunning: 'stopped exited vanished halted rolling',
    VmHasFailed: 'lost failed',
    'rebooting+, kill': 'rebooting',
  },
  update: {
    VmIsBusy: 'creating replacing rebooting halted rolling destroying',
    'provisioned+, work': 'running exited vanished',
    'provisioned, work': 'stopping stopped',
    VmHasFailed: 'lost failed',
  },
  reprovision: {
    VmIsBusy: 'creating replacing rebooting halted rolling destroying',
    'provisioned+, work': 'running exited vanished lost',
    'provisioned, work': 'stopping stopped',
    'failed, work': 'failed',
  },
  'create-snapshot': {
    VmIsBusy: 'creating replacing stopping rebooting halted rolling destroying',
    'provisioned+, work': 'running exited vanished',
    'provisioned, work': 'stopped',
    VmHasFailed: 'lost failed',
  },
  'rollback-snapshot': {
    VmIsBusy: 'creating replacing rebooting halted rolling destroying',
    'rolling-back+, roll-back': 'running stopping exited vanished',
    'rolling-back, roll-back': 'stopped',
    VmHasFailed: 'lost failed',
  },
  'delete-snapshot': {
    VmIsBusy: 'creating replacing rebooting halted rolling destroying',
    'provisioned+, work': 'running exited vanished',
    'provisioned, work': 'stopping stopped',
    VmHasFailed: 'lost failed',
  },
  'create-image': {
    VmIsBusy: 'creating replacing stopping halted rolling destroying',
    VmAlreadyRunning: 'running rebooting',
    'provisioned, work': 'stopped',
    'provisioned+, work': 'exited vanished',
    VmHasFailed: 'lost failed',
  },
  destroy: {
    'destroying, remove':
      'creating replacing running stopping stopped exited vanished lost rebooting halted rolling failed destroying',
  },
  provisioned: {
    'provisioned+, start': 'creating replacing',
    never: 'running stopping stopped exited vanished lost rebooting halted rolling failed destroying',
  },
  replacing: {
    never: 'creating replacing rebooting halted rolling destroying',
    'provisioning+': 'running exited vanished lost',
    provisioning: 'stopping stopped failed',
  },
  failed: {
    failed: 'creating replacing running stopping stopped exited vanished lost rolling',
    never: 'rebooting halted failed destroying',
  },
  'start-failed': {
    never: 'creating replacing rolling failed destroying',
    provisioned: 'running stopping stopped exited vanished lost',
    rebooting: 'rebooting halted',
  },
  halted: {
    never: 'creating replacing running stopping stopped exited vanished lost rolling failed destroying',
    'rebooting+, start': 'rebooting halted',
  },
  rebooted: {
    never: 'creating replacing running stopping stopped exited vanished lost rolling failed destroying',
    'provisioned+': 'rebooting halted',
  },
  'rolled-back': {
    never: 'creating replacing running stopping stopped exited vanished lost rebooting halted failed destroying',
    'provisioned+, start': 'rolling',
  },
  stopped: {
    provisioning: 'creating',
    'provisioning+': 'replacing',
    'provisioned+': 'running lost',
    provisioned: 'stopping stopped exited vanished',
    'rebooting+': 'rebooting halted',
    'rolling-back+': 'rolling',
    failed: 'failed',
    destroying: 'destroying',
  },
  removed: {
    never: 'creating replacing running stopping stopped exited vanished lost rebooting halted rolling failed',
    gone: 'destroying',
  },
  recovered: {
    failed: 'creating replacing lost failed',
    'provisioned+, reconcile': 'running',
    'provisioned, reconcile': 'stopping stopped exited',
    'provisioned+, reconcile, start': 'vanished',
    'rebooting+, reconcile, restart': 'rebooting halted',
    'rolling-back+, roll-back': 'rolling',
    'destroying, remove': 'destroying',
  },
};

t.test('each event does in each situation what the table says', async (t) => {
  checkStepTable(t, TABLE, SITUATIONS, (name, type) => outcomeOf(SITUATIONS[name], EVENTS[type]));
});

function outcomeOf([life, container]: Situation, event: VmEvent): string {
  const before = structuredClone(life);
  try {
    const step = stepVm(life, event, container);
    if ('refusal' in step) return step.refusal;
    const { state, effects } = step;
    const after = state === undefined ? 'gone' : `${state.phase.name}${state.shouldRun ? '+' : ''}`;
    return [after, ...effects.map((effect) => effect.do)].join(', ');
  } catch (error) {
    if (error instanceof VmTransitionError) return 'never';
    throw error;
  } finally {
    t.same(life, before, 'the state is not modified');
  }
}

t.test('a repeated command is a success if the caller says idempotent', async (t) => {
  const rows: [SituationName, VmCommand['type'], boolean][] = [
    ['running', 'boot', true],
    ['stopped', 'shutdown', true],
    ['stopped', 'reboot', true],
    ['stopped', 'kill', true],
    ['failed', 'boot', false],
    ['destroying', 'shutdown', false],
  ];
  for (const [name, type, isDone] of rows) {
    const [life, container] = SITUATIONS[name];
    const step = stepVm(life, { ...EVENTS[type], idempotent: true } as VmCommand, container);
    if (isDone) t.same(step, { state: life, effects: [] }, `${type} while ${name}`);
    else t.match(step, { refusal: String }, `${type} while ${name}`);
  }
});

t.test('an event carries what its state and effects need', async (t) => {
  const rows: [string, SituationName, VmEvent, object][] = [
    ['a stop has its own time', 'running', { type: 'shutdown', timeoutMs: 9 }, { effects: [{ timeoutMs: 9 }] }],
    ['or a minute', 'running', { type: 'shutdown' }, { effects: [{ timeoutMs: 60_000 }] }],
    ['a reboot has its own time', 'running', { type: 'reboot', timeoutMs: 0 }, { effects: [{ timeoutMs: 0 }] }],
    ['that of an earlier agent has a minute', 'halted', EVENTS.recovered, { effects: [{}, { timeoutMs: 60_000 }] }],
    ['a kill has its signal', 'running', { type: 'kill', signal: 'SIGHUP' }, { effects: [{ signal: 'SIGHUP' }] }],
    [
      'a rollback has its snapshot',
      'running',
      { type: 'rollback-snapshot', snapshot: 'b' },
      { state: { phase: { snapshot: 'b' } }, effects: [{ snapshot: 'b' }] },
    ],
    ['that of an earlier agent, too', 'rolling', EVENTS.recovered, { effects: [{ snapshot: 'a' }] }],
    [
      'a failure has its reason',
      'creating',
      { type: 'failed', reason: 'There is no room.' },
      { state: { phase: { reason: 'There is no room.' } } },
    ],
  ];
  for (const [name, situation, event, step] of rows) t.match(stepVm(...args(situation, event)), step, name);
  t.same(
    stepVm(NEW_VM, { type: 'provisioned', isStarted: false }, { name: 'created' }),
    { state: unwanted(PROVISIONED), effects: [] },
    'a new VM that is not to start stays stopped',
  );
});

const args = (name: SituationName, event: VmEvent): Parameters<typeof stepVm> => {
  const [life, container] = SITUATIONS[name];
  return [life, event, container];
};

t.test('what a new agent does with a VM depends on its container, too', async (t) => {
  const recovered = { type: 'recovered', autoboot: true } as const;
  const same = (life: VmLife, effects: readonly string[] = []) => ({
    state: life,
    effects: effects.map((one) => ({ do: one })),
  });
  const rows: [string, VmLife, VmContainerState | undefined, object][] = [
    ['not started yet', wanted(PROVISIONED), { name: 'created' }, same(wanted(PROVISIONED), ['reconcile', 'start'])],
    ['lost after it was stopped', unwanted(PROVISIONED), vanished, same(unwanted(PROVISIONED), ['reconcile'])],
    ['rebooting without a container', wanted(REBOOTING), undefined, { state: { phase: { name: 'failed' } } }],
    ['half destroyed without one', unwanted({ name: 'destroying' }), undefined, { effects: [{ do: 'remove' }] }],
    ['failed without one', SITUATIONS.failed[0], undefined, same(SITUATIONS.failed[0])],
    [
      'with one that failed',
      wanted(PROVISIONED),
      { name: 'failed', reason: 'no room' },
      { state: { phase: { reason: 'no room' } } },
    ],
    ['with an unreadable one', wanted(PROVISIONED), unreadable(true), same(wanted(PROVISIONED))],
    [
      'the same, half destroyed',
      unwanted({ name: 'destroying' }),
      unreadable(true),
      same(unwanted({ name: 'destroying' })),
    ],
    ['the same, half created', NEW_VM, unreadable(true), same(NEW_VM)],
  ];
  for (const [name, life, container, step] of rows) t.match(stepVm(life, recovered, container), step, name);
  const still = stepVm(wanted(PROVISIONED), { ...recovered, autoboot: false }, vanished);
  t.same(still, same(unwanted(PROVISIONED), ['reconcile']), 'lost, and not to start by itself');
});

t.test('the state that callers see', async (t) => {
  const rows: [string, VmPhase, VmContainerState | undefined, VmState][] = [
    ['being created', { name: 'provisioning', by: 'create' }, undefined, 'provisioning'],
    ['being created, and running already', { name: 'provisioning', by: 'create' }, running, 'provisioning'],
    ['running', PROVISIONED, running, 'running'],
    ['never started', PROVISIONED, { name: 'created' }, 'stopped'],
    ['starting', PROVISIONED, { name: 'starting', run: 1 }, 'stopped'],
    ['ended by itself', PROVISIONED, stopped, 'stopped'],
    ['being stopped', REBOOTING, stopping, 'stopping'],
    ['rolled back', ROLLING_BACK, stopped, 'stopped'],
    ['without a container', PROVISIONED, undefined, 'failed'],
    ['with a container that failed', PROVISIONED, { name: 'failed', reason: 'why' }, 'failed'],
    ['with a record of its container that cannot be read', PROVISIONED, unreadable(true), 'running'],
    ['the same, after it was stopped', PROVISIONED, unreadable(false), 'stopped'],
    ['failed', { name: 'failed', reason: 'why' }, running, 'failed'],
    ['being destroyed', { name: 'destroying' }, running, 'destroying'],
  ];
  for (const [name, phase, container, shown] of rows) t.equal(shownState(phase, container), shown, name);
  for (const state of VM_STATES) t.ok(ZONE_STATES[state], state);
});
