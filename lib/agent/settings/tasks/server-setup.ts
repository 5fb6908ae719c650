/**
 * `server_setup {hostname?, postsetup_script?, nics?}` → `{hostname, exitCode?, stdout?, stderr?}`:
 * names the machine and runs the script on it, if the agent was started with --allow-setup. From
 * its success on, the sysinfo says that the server is set up. A set-up that failed can be repeated.
 */
import { z } from 'zod';
import { hostName } from '../../../protocol/host-name.ts';
import { nicChanges } from '../../../protocol/nics.ts';
import { DISK_PARAMS, MAX_SETUP_SCRIPT_CHARS } from '../../../protocol/server-setup.ts';
import { withoutNul } from '../../machine/environment.ts';
import type { CommandResult } from '../../machine/machine.ts';
import { notAllowed } from '../../runner/not-allowed.ts';
import { defineTask, type TaskContext } from '../../runner/task-definition.ts';
import { TaskFailure } from '../../task-failure.ts';
import { requireSettings } from './require-settings.ts';

const params = z.object({
  hostname: hostName().optional(),
  postsetup_script: withoutNul.min(1, 'is empty').max(MAX_SETUP_SCRIPT_CHARS).optional(),
  nics: nicChanges().optional(),
  ...Object.fromEntries(DISK_PARAMS.map((name) => [name, z.union([z.string(), z.number(), z.boolean()]).optional()])),
});

export const serverSetup = defineTask({
  lane: 'serial',
  startsItself: true,
  params,
  async run({ hostname, postsetup_script: script, nics, ...disks }, context) {
    const { machine, setupRules, begin } = context;
    const settings = requireSettings(context);
    refuseDisks(disks);
    const isRenamed = hostname !== undefined && hostname !== machine.hostname;
    if (setupRules?.allowsSetup !== true && (isRenamed || script !== undefined)) throw notAllowed('setup');
    if (nics !== undefined) await settings.changeNics('replace', nics, await machine.sysinfo());
    if (isRenamed) await machine.rename(hostname);
    const result = script === undefined ? await begin() : await runScript(script, context);
    await settings.setSetUp(true);
    return { hostname: machine.hostname, ...result };
  },
});

/** Most of them have no effect without a layout, but whoever names one expects an effect. */
function refuseDisks(disks: Record<string, string | number | boolean | undefined>): void {
  const named = Object.keys(disks).find(
    (name) => disks[name] !== undefined && !/^(false|0)$/.test(String(disks[name])),
  );
  if (named === undefined) return;
  const advice = `Create the zpool before the set-up, and leave ${named} out`;
  throw new TaskFailure('DiskLayoutNotSupported', `The agent of this server lays out no disks. ${advice}`);
}

async function runScript(script: string, { id, machine, signal, begin, output }: TaskContext) {
  const { killed, ...result } = await machine.execute({ script, args: [], env: {} }, { id, signal, begin, output });
  if (killed) throw new TaskFailure(signal.reason.code, signal.reason.message, { result });
  if (result.exitCode !== 0) throw failedScript('SetupScriptFailed', 'The post-setup script', result);
  return result;
}

const MAX_SHOWN_CHARS = 300;

/** `what` ended with another exit code than 0; the message has the end of what it has said. */
export function failedScript(code: string, what: string, result: Omit<CommandResult, 'killed'>): TaskFailure {
  const said = result.stderr.trim().slice(-MAX_SHOWN_CHARS);
  const message = `${what} failed with exit code ${result.exitCode}${said === '' ? '' : `: ${said}`}`;
  return new TaskFailure(code, message, { result });
}
