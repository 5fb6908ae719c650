/**
 * The states of a VM and what leads from one to the next. Pure; vm-table.ts keeps the state on
 * disk, vm-executor.ts carries out the effects.
 *
 *                  provisioned                 reboot, rollback-snapshot
 *     provisioning ──────────► provisioned ◄─────────────────────────────► rebooting, rolling-back
 *        ▲     │ failed          │      │ failed (the first start)                │ failed
 *        │     └─────────────────┼──────┴───────────────► failed ◄────────────────┘
 *        └──── replacing ────────┴──────────────────────────┘
 *
 *     any ── destroy ──► destroying ── removed ──► gone
 *
 * A VM that is `provisioned` runs if its container runs. Its record also says whether it should
 * run: a boot sets that, and a shutdown and the end of its program take it away.
 */
import { VM_STOP_MS, type VmErrorCode, type VmState } from '../../protocol/vms.ts';
import type { ContainerState } from '../containers/lifecycle.ts';

export type VmPhase =
  | { name: 'provisioning'; by: 'create' | 'reprovision' }
  | { name: 'provisioned' }
  /** Stop it, then start it. */
  | { name: 'rebooting' }
  | { name: 'rolling-back'; snapshot: string }
  /** `reason` is a sentence. */
  | { name: 'failed'; reason: string }
  | { name: 'destroying' };

export interface VmLife {
  phase: VmPhase;
  /** A new agent starts it again after a restart of the machine. */
  shouldRun: boolean;
}

export const NEW_VM: VmLife = { phase: { name: 'provisioning', by: 'create' }, shouldRun: false };

/** What callers ask for. With `idempotent` it is a success if the VM already is as they want it. */
export type VmCommand =
  | { type: 'boot'; idempotent?: boolean | undefined }
  | { type: 'shutdown' | 'reboot'; timeoutMs?: number | undefined; idempotent?: boolean | undefined }
  /** `signal` is a name, for example SIGKILL. */
  | { type: 'kill'; signal: string; idempotent?: boolean | undefined }
  | { type: 'rollback-snapshot'; snapshot: string }
  | { type: VmWork | 'destroy' };

/** Commands that lead to no other state, or tell of it by events of their own. */
export type VmWork = 'update' | 'reprovision' | 'create-snapshot' | 'delete-snapshot' | 'create-image';

export type VmEvent =
  | VmCommand
  /** The container of the VM is created. */
  | { type: 'provisioned'; isStarted: boolean }
  /** A reprovision has the new image, and removes the container next. */
  | { type: 'replacing' }
  /** The work that was begun cannot be completed. `reason` is a sentence. */
  | { type: 'failed'; reason: string }
  | { type: 'start-failed' }
  /** A reboot has stopped it. */
  | { type: 'halted' }
  /** A reboot has ended, well or not. */
  | { type: 'rebooted' }
  | { type: 'rolled-back' }
  /** The container of the VM has stopped. It may run again by now. */
  | { type: 'stopped' }
  /** Nothing of it is left but its record. */
  | { type: 'removed' }
  /** A new agent has read its record. */
  | { type: 'recovered'; autoboot: boolean };

export type VmEffect =
  /** Do what the command asks for. */
  | { do: 'work' }
  | { do: 'start' }
  | { do: 'stop'; timeoutMs: number }
  /** Stop it, then comes `halted`; at the end comes `rebooted`. */
  | { do: 'restart'; timeoutMs: number }
  | { do: 'kill'; signal: string }
  /** Stop it and restore the snapshot; then comes `rolled-back` or `failed`. */
  | { do: 'roll-back'; snapshot: string }
  /** Remove everything that it has; then comes `removed`. */
  | { do: 'remove' }
  /** Give the container the recorded properties, which a killed agent may not have applied. */
  | { do: 'reconcile' };

type VmStep =
  /** `state` is undefined when the VM is gone. */
  { state: VmLife | undefined; effects: readonly VmEffect[] } | { refusal: VmErrorCode };

/** The VM received an event that its state cannot have. */
export class VmTransitionError extends Error {
  constructor({ phase }: VmLife, event: VmEvent) {
    super(`A VM that is ${phase.name} cannot have the event ${event.type}`);
    this.name = 'VmTransitionError';
  }
}

/**
 * What the agent knows of the container of a VM. `unreadable`: its record cannot be read.
 * `shouldRun` is what the record of the VM says, and the best guess; placement counts the memory of
 * such a VM.
 */
export type VmContainerState = ContainerState | { name: 'unreadable'; reason: string; shouldRun: boolean };

/** The state that callers see. */
export function shownState(phase: VmPhase, container: VmContainerState | undefined): VmState {
  switch (phase.name) {
    case 'provisioning':
    case 'failed':
    case 'destroying':
      return phase.name;
    case 'provisioned':
    case 'rebooting':
    case 'rolling-back':
      return stateOfContainer(container);
    default:
      return phase satisfies never;
  }
}

function stateOfContainer(container: VmContainerState | undefined): VmState {
  switch (container?.name) {
    case undefined:
    case 'failed':
      return 'failed';
    case 'unreadable':
      return container.shouldRun ? 'running' : 'stopped';
    case 'creating':
      return 'provisioning';
    case 'created':
    case 'starting':
    case 'stopped':
      return 'stopped';
    case 'running':
    case 'stopping':
      return container.name;
    case 'deleting':
      return 'destroying';
    default:
      return container satisfies never;
  }
}

export const ZONE_STATES: Readonly<Record<VmState, string>> = {
  provisioning: 'incomplete',
  running: 'running',
  stopping: 'shutting_down',
  stopped: 'installed',
  failed: 'configured',
  destroying: 'down',
};

/** `already`: done if the caller says `idempotent`, else an error. */
type Rule = 'do' | 'busy' | 'failed' | { already: VmErrorCode };

const needsRunning: Rule = { already: 'VmNotRunning' };
const needsStopped: Rule = { already: 'VmAlreadyRunning' };
const withBusyStates = (rules: { running: Rule; stopping: Rule; stopped: Rule }): Readonly<Record<VmState, Rule>> => ({
  provisioning: 'busy',
  failed: 'failed',
  destroying: 'busy',
  ...rules,
});

const RULES: Readonly<Record<VmCommand['type'], Readonly<Record<VmState, Rule>>>> = {
  boot: withBusyStates({ running: needsStopped, stopping: 'busy', stopped: 'do' }),
  shutdown: withBusyStates({ running: 'do', stopping: 'do', stopped: needsRunning }),
  reboot: withBusyStates({ running: 'do', stopping: 'do', stopped: needsRunning }),
  kill: withBusyStates({ running: 'do', stopping: 'do', stopped: needsRunning }),
  update: withBusyStates({ running: 'do', stopping: 'do', stopped: 'do' }),
  reprovision: { ...withBusyStates({ running: 'do', stopping: 'do', stopped: 'do' }), failed: 'do' },
  destroy: {
    provisioning: 'do',
    running: 'do',
    stopping: 'do',
    stopped: 'do',
    failed: 'do',
    destroying: 'do',
  },
  'create-snapshot': withBusyStates({ running: 'do', stopping: 'busy', stopped: 'do' }),
  'rollback-snapshot': withBusyStates({ running: 'do', stopping: 'do', stopped: 'do' }),
  'delete-snapshot': withBusyStates({ running: 'do', stopping: 'do', stopped: 'do' }),
  'create-image': withBusyStates({ running: { already: 'VmAlreadyRunning' }, stopping: 'busy', stopped: 'do' }),
};

/**
 * Does not modify `life`. A command that changes nothing, because the VM is as it asks, has no
 * effects.
 */
export function stepVm(life: VmLife, event: VmEvent, container: VmContainerState | undefined): VmStep {
  const { phase } = life;
  switch (event.type) {
    case 'provisioned':
      if (phase.name !== 'provisioning') return illegal(life, event);
      return to({ phase: PROVISIONED, shouldRun: event.isStarted }, event.isStarted ? [{ do: 'start' }] : []);
    case 'replacing':
      if (phase.name !== 'provisioned' && phase.name !== 'failed') return illegal(life, event);
      return to({ ...life, phase: { name: 'provisioning', by: 'reprovision' } });
    case 'failed':
      if (!['provisioning', 'provisioned', 'rolling-back'].includes(phase.name)) return illegal(life, event);
      return failed(event.reason);
    case 'start-failed':
      if (phase.name !== 'provisioned' && phase.name !== 'rebooting') return illegal(life, event);
      return to({ ...life, shouldRun: false });
    case 'halted':
      if (phase.name !== 'rebooting') return illegal(life, event);
      return to({ ...life, shouldRun: true }, [{ do: 'start' }]);
    case 'rebooted':
      return phase.name === 'rebooting' ? to({ ...life, phase: PROVISIONED }) : illegal(life, event);
    case 'rolled-back':
      if (phase.name !== 'rolling-back') return illegal(life, event);
      return to({ ...life, phase: PROVISIONED }, life.shouldRun ? [{ do: 'start' }] : []);
    case 'stopped':
      return to(hasStopped(phase, container) ? { ...life, shouldRun: false } : life);
    case 'removed':
      return phase.name === 'destroying' ? to(undefined) : illegal(life, event);
    case 'recovered':
      return onRecovered(life, event, container);
    default:
      return onCommand(life, event, container);
  }
}

const PROVISIONED: VmPhase = { name: 'provisioned' };

const to = (state: VmLife | undefined, effects: readonly VmEffect[] = []): VmStep => ({ state, effects });

const failed = (reason: string): VmStep => to({ phase: { name: 'failed', reason }, shouldRun: false });

/** A stop while the container is replaced does not count. */
const hasStopped = (phase: VmPhase, container: VmContainerState | undefined): boolean =>
  phase.name === 'provisioned' && container?.name === 'stopped';

function illegal(life: VmLife, event: VmEvent): never {
  throw new VmTransitionError(life, event);
}

function onCommand(life: VmLife, command: VmCommand, container: VmContainerState | undefined): VmStep {
  const { phase } = life;
  const rule = RULES[command.type][shownState(phase, container)];
  if (rule === 'busy') return { refusal: 'VmIsBusy' };
  if (rule === 'failed') return { refusal: 'VmHasFailed' };
  if (rule !== 'do') {
    const isIdempotent = 'idempotent' in command && command.idempotent === true;
    return isIdempotent ? to(life) : { refusal: rule.already };
  }
  const isBetween = phase.name === 'rebooting' || phase.name === 'rolling-back';
  if (isBetween && command.type !== 'kill' && command.type !== 'destroy') return { refusal: 'VmIsBusy' };
  switch (command.type) {
    case 'boot':
      return to({ ...life, shouldRun: true }, [{ do: 'start' }]);
    case 'shutdown':
      return to({ ...life, shouldRun: false }, [{ do: 'stop', timeoutMs: command.timeoutMs ?? VM_STOP_MS }]);
    case 'reboot':
      return restarting(life, command.timeoutMs);
    case 'kill':
      return to(life, [{ do: 'kill', signal: command.signal }]);
    case 'rollback-snapshot':
      return rollingBack(life, command.snapshot, container);
    case 'destroy':
      return to({ phase: { name: 'destroying' }, shouldRun: false }, [{ do: 'remove' }]);
    case 'update':
    case 'reprovision':
    case 'create-snapshot':
    case 'delete-snapshot':
    case 'create-image':
      return to(life, [{ do: 'work' }]);
    default:
      return command satisfies never;
  }
}

const restarting = (life: VmLife, timeoutMs = VM_STOP_MS): VmStep =>
  to({ ...life, phase: { name: 'rebooting' } }, [{ do: 'restart', timeoutMs }]);

/** A VM that ran is started again afterwards. */
function rollingBack({ shouldRun }: VmLife, snapshot: string, container: VmContainerState | undefined): VmStep {
  const isRunning = container?.name === 'running' || container?.name === 'stopping';
  const state: VmLife = { phase: { name: 'rolling-back', snapshot }, shouldRun: shouldRun || isRunning };
  return to(state, [{ do: 'roll-back', snapshot }]);
}

/**
 * A VM that should run is started again if the end of its run was not seen, as after a restart of
 * the machine. One whose program has exited stays stopped. While the record of its container is
 * unreadable, that of the VM is left as it is too: when it is repaired, the next agent continues.
 */
function onRecovered(
  life: VmLife,
  { autoboot }: Extract<VmEvent, { type: 'recovered' }>,
  container: VmContainerState | undefined,
): VmStep {
  const { phase, shouldRun } = life;
  if (container?.name === 'unreadable' || phase.name === 'failed') return to(life);
  if (phase.name === 'destroying') return to(life, [{ do: 'remove' }]);
  if (phase.name === 'provisioning') return failed(`The agent ended during the ${phase.by} of the VM`);
  if (container === undefined) return failed('The container of the VM no longer exists');
  switch (phase.name) {
    case 'rebooting':
      return to(life, [{ do: 'reconcile' }, { do: 'restart', timeoutMs: VM_STOP_MS }]);
    case 'rolling-back':
      return rollingBack(life, phase.snapshot, container);
    case 'provisioned':
      if (container.name === 'failed') return failed(container.reason);
      if (shouldRun && autoboot && hasVanished(container)) return to(life, [{ do: 'reconcile' }, { do: 'start' }]);
      return to(hasStopped(phase, container) ? { ...life, shouldRun: false } : life, [{ do: 'reconcile' }]);
    default:
      return phase satisfies never;
  }
}

const hasVanished = (container: ContainerState): boolean =>
  container.name === 'created' || (container.name === 'stopped' && 'unknown' in container.exit);
