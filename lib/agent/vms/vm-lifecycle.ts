/**
 * The states of a VM, which action is allowed in which, and what a new agent does with a VM that an
 * earlier one left. Pure; vms.ts drives it.
 *
 * The record on disk has the phase. In the phase `provisioned` the VM runs if its container runs:
 *
 *     provisioning ──────────────► provisioned ◄──────► rebooting, rolling-back
 *          │   ▲  reprovision ────────┘
 *          ▼   │
 *        failed ── destroy, from every phase ──► destroying ──► gone
 */
import type { VmErrorCode, VmState } from '../../protocol/vms.ts';
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

/**
 * What the agent knows of the container of a VM. `unreadable`: its record cannot be read. `shouldRun`
 * is what the record of the VM says, and the best guess; placement counts the memory of such a VM.
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

export type VmAction =
  | 'boot'
  | 'shutdown'
  | 'reboot'
  | 'kill'
  | 'update'
  | 'reprovision'
  | 'destroy'
  | 'create-snapshot'
  | 'rollback-snapshot'
  | 'delete-snapshot'
  | 'create-image';

/** `done`: the VM is already in the state that the action produces. */
type Decision = 'do' | 'done' | VmErrorCode;

/** `already`: done if the caller says `idempotent`, else an error. */
type Rule = 'do' | 'busy' | 'failed' | { already: VmErrorCode };

const needsRunning: Rule = { already: 'VmNotRunning' };
const needsStopped: Rule = { already: 'VmAlreadyRunning' };
const whileThere = (rules: { running: Rule; stopping: Rule; stopped: Rule }): Readonly<Record<VmState, Rule>> => ({
  provisioning: 'busy',
  failed: 'failed',
  destroying: 'busy',
  ...rules,
});

const RULES: Readonly<Record<VmAction, Readonly<Record<VmState, Rule>>>> = {
  boot: whileThere({ running: needsStopped, stopping: 'busy', stopped: 'do' }),
  shutdown: whileThere({ running: 'do', stopping: 'do', stopped: needsRunning }),
  reboot: whileThere({ running: 'do', stopping: 'do', stopped: needsRunning }),
  kill: whileThere({ running: 'do', stopping: 'do', stopped: needsRunning }),
  update: whileThere({ running: 'do', stopping: 'do', stopped: 'do' }),
  reprovision: { ...whileThere({ running: 'do', stopping: 'do', stopped: 'do' }), failed: 'do' },
  destroy: {
    provisioning: 'do',
    running: 'do',
    stopping: 'do',
    stopped: 'do',
    failed: 'do',
    destroying: 'do',
  },
  'create-snapshot': whileThere({ running: 'do', stopping: 'busy', stopped: 'do' }),
  'rollback-snapshot': whileThere({ running: 'do', stopping: 'do', stopped: 'do' }),
  'delete-snapshot': whileThere({ running: 'do', stopping: 'do', stopped: 'do' }),
  'create-image': whileThere({ running: { already: 'VmAlreadyRunning' }, stopping: 'busy', stopped: 'do' }),
};

/** Actions for which `idempotent` counts. */
const REPEATABLE: ReadonlySet<VmAction> = new Set(['boot', 'shutdown', 'reboot', 'kill']);

export function decideVm(action: VmAction, state: VmState, { idempotent }: { idempotent: boolean }): Decision {
  const rule = RULES[action][state];
  if (rule === 'do') return 'do';
  if (rule === 'busy') return 'VmIsBusy';
  if (rule === 'failed') return 'VmHasFailed';
  return idempotent && REPEATABLE.has(action) ? 'done' : rule.already;
}

/** What a new agent does with a VM. */
type VmRecovery =
  | { do: 'nothing' }
  /** Leave the record as it is too: when that of the container is repaired, the next agent continues. */
  | { do: 'wait' }
  | { do: 'start' }
  | { do: 'restart' }
  | { do: 'roll-back'; snapshot: string }
  | { do: 'destroy' }
  | { do: 'fail'; reason: string };

/**
 * `shouldRun`: the VM was running, and nobody has stopped it. It is started again if the end of its
 * run was not seen, as after a restart of the machine. A VM whose program has exited stays stopped.
 */
export function recoverVm(
  phase: VmPhase,
  container: VmContainerState | undefined,
  { shouldRun, autoboot }: { shouldRun: boolean; autoboot: boolean },
): VmRecovery {
  if (container?.name === 'unreadable') return { do: 'wait' };
  switch (phase.name) {
    case 'failed':
      return { do: 'nothing' };
    case 'destroying':
      return { do: 'destroy' };
    case 'provisioning':
      return { do: 'fail', reason: `The agent ended during the ${phase.by} of the VM` };
    case 'rebooting':
      return container === undefined ? gone : { do: 'restart' };
    case 'rolling-back':
      return container === undefined ? gone : { do: 'roll-back', snapshot: phase.snapshot };
    case 'provisioned': {
      if (container === undefined) return gone;
      if (container.name === 'failed') return { do: 'fail', reason: container.reason };
      return shouldRun && autoboot && hasVanished(container) ? { do: 'start' } : { do: 'nothing' };
    }
    default:
      return phase satisfies never;
  }
}

const gone: VmRecovery = { do: 'fail', reason: 'The container of the VM no longer exists' };

const hasVanished = (container: ContainerState): boolean =>
  container.name === 'created' || (container.name === 'stopped' && 'unknown' in container.exit);
