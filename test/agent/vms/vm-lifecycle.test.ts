import t from 'tap';
import type { ContainerState } from '../../../lib/agent/containers/lifecycle.ts';
import {
  decideVm,
  recoverVm,
  shownState,
  type VmAction,
  type VmContainerState,
  type VmPhase,
  ZONE_STATES,
} from '../../../lib/agent/vms/vm-lifecycle.ts';
import { VM_STATES, type VmState } from '../../../lib/protocol/vms.ts';

const PROVISIONED: VmPhase = { name: 'provisioned' };
const stopped: ContainerState = { name: 'stopped', run: 1, exit: { code: 0 } };
const lost: ContainerState = { name: 'stopped', run: 1, exit: { unknown: 'The machine restarted while it ran' } };
const running: ContainerState = { name: 'running', run: 1 };
const unreadable = (shouldRun: boolean) => ({ name: 'unreadable', reason: 'why', shouldRun }) as const;

t.test('what is allowed in which state', (t) => {
  // In the order of VM_STATES; with `idempotent` after a slash.
  const rows: [VmAction, Record<VmState, string>][] = [
    ['boot', row('VmIsBusy', 'VmAlreadyRunning/done', 'VmIsBusy', 'do', 'VmHasFailed')],
    ['shutdown', row('VmIsBusy', 'do', 'do', 'VmNotRunning/done', 'VmHasFailed')],
    ['reboot', row('VmIsBusy', 'do', 'do', 'VmNotRunning/done', 'VmHasFailed')],
    ['kill', row('VmIsBusy', 'do', 'do', 'VmNotRunning/done', 'VmHasFailed')],
    ['update', row('VmIsBusy', 'do', 'do', 'do', 'VmHasFailed')],
    ['reprovision', row('VmIsBusy', 'do', 'do', 'do', 'do')],
    ['destroy', row('do', 'do', 'do', 'do', 'do', 'do')],
    ['create-snapshot', row('VmIsBusy', 'do', 'VmIsBusy', 'do', 'VmHasFailed')],
    ['rollback-snapshot', row('VmIsBusy', 'do', 'do', 'do', 'VmHasFailed')],
    ['delete-snapshot', row('VmIsBusy', 'do', 'do', 'do', 'VmHasFailed')],
    ['create-image', row('VmIsBusy', 'VmAlreadyRunning', 'VmIsBusy', 'do', 'VmHasFailed')],
  ];
  for (const [action, wanted] of rows)
    for (const state of VM_STATES) {
      const [plain, idempotent = plain] = wanted[state].split('/');
      t.equal(decideVm(action, state, { idempotent: false }), plain, `${action} while ${state}`);
      t.equal(decideVm(action, state, { idempotent: true }), idempotent, `${action} while ${state}, idempotent`);
    }
  t.end();
});

function row(...answers: string[]): Record<VmState, string> {
  const [provisioning = '', runs = '', stopping = '', isStopped = '', failed = '', destroying = 'VmIsBusy'] = answers;
  return { provisioning, running: runs, stopping, stopped: isStopped, failed, destroying };
}

t.test('the state that callers see', (t) => {
  const rows: [string, VmPhase, VmContainerState | undefined, VmState][] = [
    ['being created', { name: 'provisioning', by: 'create' }, undefined, 'provisioning'],
    ['being created, and running already', { name: 'provisioning', by: 'create' }, running, 'provisioning'],
    ['running', PROVISIONED, running, 'running'],
    ['never started', PROVISIONED, { name: 'created' }, 'stopped'],
    ['starting', PROVISIONED, { name: 'starting', run: 1 }, 'stopped'],
    ['ended by itself', PROVISIONED, stopped, 'stopped'],
    ['being stopped', { name: 'rebooting' }, { name: 'stopping', run: 1, killAt: 1 }, 'stopping'],
    ['rolled back', { name: 'rolling-back', snapshot: 'a' }, stopped, 'stopped'],
    ['without a container', PROVISIONED, undefined, 'failed'],
    ['with a container that failed', PROVISIONED, { name: 'failed', reason: 'why' }, 'failed'],
    ['with a record of its container that cannot be read', PROVISIONED, unreadable(true), 'running'],
    ['the same, after it was stopped', PROVISIONED, unreadable(false), 'stopped'],
    ['failed', { name: 'failed', reason: 'why' }, running, 'failed'],
    ['being destroyed', { name: 'destroying' }, running, 'destroying'],
  ];
  for (const [name, phase, container, wanted] of rows) t.equal(shownState(phase, container), wanted, name);
  for (const state of VM_STATES) t.ok(ZONE_STATES[state], state);
  t.end();
});

t.test('what a new agent does with a VM', (t) => {
  const wanted = { shouldRun: true, autoboot: true };
  const rows: [string, VmPhase, VmContainerState | undefined, { shouldRun: boolean; autoboot: boolean }, object][] = [
    ['half created', { name: 'provisioning', by: 'create' }, running, wanted, { do: 'fail' }],
    ['half reprovisioned', { name: 'provisioning', by: 'reprovision' }, undefined, wanted, { do: 'fail' }],
    ['half destroyed', { name: 'destroying' }, undefined, wanted, { do: 'destroy' }],
    ['rebooting', { name: 'rebooting' }, stopped, wanted, { do: 'restart' }],
    ['rebooting without a container', { name: 'rebooting' }, undefined, wanted, { do: 'fail' }],
    ['rolling back', { name: 'rolling-back', snapshot: 'a' }, stopped, wanted, { do: 'roll-back', snapshot: 'a' }],
    ['running', PROVISIONED, running, wanted, { do: 'nothing' }],
    ['lost in a restart of the machine', PROVISIONED, lost, wanted, { do: 'start' }],
    ['lost, and not to start by itself', PROVISIONED, lost, { shouldRun: true, autoboot: false }, { do: 'nothing' }],
    ['lost after it was stopped', PROVISIONED, lost, { shouldRun: false, autoboot: true }, { do: 'nothing' }],
    ['its program exited', PROVISIONED, stopped, wanted, { do: 'nothing' }],
    ['not started yet', PROVISIONED, { name: 'created' }, wanted, { do: 'start' }],
    ['without a container', PROVISIONED, undefined, wanted, { do: 'fail' }],
    ['failed', { name: 'failed', reason: 'why' }, undefined, wanted, { do: 'nothing' }],
    ['with a record of its container that cannot be read', PROVISIONED, unreadable(true), wanted, { do: 'wait' }],
    ['the same, half destroyed', { name: 'destroying' }, unreadable(true), wanted, { do: 'wait' }],
    ['the same, half created', { name: 'provisioning', by: 'create' }, unreadable(true), wanted, { do: 'wait' }],
  ];
  for (const [name, phase, container, intent, recovery] of rows)
    t.match(recoverVm(phase, container, intent), recovery, name);
  t.end();
});
