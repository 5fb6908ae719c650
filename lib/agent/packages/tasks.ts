/**
 * `agent_install` and `agents_uninstall`: signed packages of agents, under the names and parameters
 * of Triton's tasks. When a new version of this agent is installed, the task goes on in the next
 * process.
 */
import { z } from 'zod';
import { byteProgress, defineTask, type TaskContext, type TaskDefinitions } from '../runner/task-definition.ts';
import { TaskFailure } from '../task-failure.ts';
import type { PackageRemovals, Packages } from './packages.ts';

const name = z.string().min(1).max(64);
const MAX_SOURCE_CHARS = 4_000;
const MAX_NAMES = 100;

export const packageTasks = {
  agent_install: defineTask({
    lane: 'serial',
    continues: true,
    params: z.object({
      package_file: z.string().min(1).max(MAX_SOURCE_CHARS).optional(),
      package_name: name.optional(),
      downgrade: z.boolean().optional(),
      retry: z.boolean().optional(),
    }),
    async run({ package_file: source, package_name, downgrade = false, retry = false }, context) {
      const packages = packagesOf(context);
      if (source === undefined)
        throw new TaskFailure(
          'PackageSourceMissing',
          'Parameter package_file is missing: this agent knows no image server, so an image_uuid alone names no package',
        );
      const onProgress = byteProgress(context);
      const starts = context.starts();
      const asked = { source, name: package_name, allowDowngrade: downgrade, allowRetry: retry };
      return { ...(await packages.install({ ...callerOf(context), ...asked, starts, onProgress })) };
    },
  }),
  agents_uninstall: defineTask({
    lane: 'serial',
    params: z.object({ agents: z.array(name).min(1).max(MAX_NAMES) }),
    async run({ agents }, context) {
      const { signal } = context;
      const removals = await packagesOf(context).uninstall(agents, callerOf(context));
      const failures = [...(signal.aborted ? [signal.reason as TaskFailure] : []), ...removals.failed];
      const [first] = failures;
      if (first !== undefined)
        throw new TaskFailure(first.code, messageOfAll(failures, removals), { result: { ...removals } });
      const { removed, absent } = removals;
      return { removed, absent };
    },
  }),
} satisfies TaskDefinitions;

/** Callers of Triton's CNAPI see only the message of a failure, so it has each name. */
function messageOfAll(failures: readonly { message: string }[], { removed, absent }: PackageRemovals): string {
  const named = (what: string, names: readonly string[]) =>
    names.length === 0 ? [] : [`${what}: ${names.join(', ')}`];
  const messages = failures.map(({ message }) => message);
  return [...messages, ...named('removed', removed), ...named('not installed', absent)].join('; ');
}

const callerOf = ({ id: taskId, machine, signal, journalProcesses }: TaskContext) => ({
  taskId,
  machine,
  signal,
  journalProcesses,
});

function packagesOf({ packages }: TaskContext): Packages {
  if (packages !== undefined) return packages;
  throw new TaskFailure('PackagesNotAllowed', 'This agent was started without --package-key, so it installs nothing');
}
