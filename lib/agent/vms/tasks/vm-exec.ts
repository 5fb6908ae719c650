/**
 * `vm_exec {uuid, stream?, args, env?, terminal?}` → `{exitCode, signal}`. A program in a VM whose
 * input and output is a stream, beside the VM's own program, as whose user and in whose directory
 * it runs. The first of `args` is the program. Without a stream it reads nothing, its output is
 * dropped, and nobody's connection limits how many there are, so the server has a maximum of its
 * own.
 */
import { z } from 'zod';
import { MAX_COMMAND_ARGS } from '../../../protocol/limits.ts';
import { streamPlace, terminal } from '../../../protocol/streams/stream.ts';
import { vmUuid } from '../../../protocol/vms.ts';
import type { ExecExit } from '../../containers/runtime.ts';
import { environment, MAX_WORD_CHARS, withoutNul } from '../../machine/environment.ts';
import { signalOfStatus } from '../../machine/exit-status.ts';
import { defineTask } from '../../runner/task-definition.ts';
import { runOnStream } from '../../streams/run-on-stream.ts';
import { discardingStream, type ExecStream, runStreamed } from '../../streams/run-streamed.ts';
import { TaskFailure } from '../../task-failure.ts';
import { vmStateError } from '../vm-errors.ts';
import { requireVms } from './vm-tasks.ts';

const params = z.object({
  uuid: vmUuid,
  stream: streamPlace.optional(),
  args: z.array(withoutNul.max(MAX_WORD_CHARS)).min(1, 'is empty').max(MAX_COMMAND_ARGS),
  env: environment.default({}),
  terminal: terminal.optional(),
});

/** How runc and crun report that a program does not exist. */
const MISSING = /no such file|not found/i;

export const vmExec = defineTask({
  lane: 'streams',
  startsItself: true,
  params,
  run({ uuid, stream: place, args, env, terminal }, context) {
    const { running } = requireVms(context);
    const work = async (stream: ExecStream, signal: AbortSignal) => {
      const term = terminal === undefined ? {} : { TERM: terminal.type };
      const request = { args, env: { ...term, ...env }, hasTerminal: terminal !== undefined };
      const exec = await running.prepareExec(uuid, request);
      let end: ExecExit & { signal: string | null } = { exitCode: null, signal: null, killed: true };
      let outcome: Awaited<ReturnType<typeof exec.finish>>;
      try {
        const command = { program: exec, env: {}, terminal, killFirst: () => exec.kill() };
        end = await runStreamed(command, stream, { ...context, signal });
      } finally {
        outcome = await exec.finish(end);
      }
      if (end.killed) throw signal.reason;
      if (outcome === 'container-ended') throw vmStateError(uuid, 'VmNotRunning');
      if ('notStarted' in outcome) throw notStarted(outcome.notStarted);
      const { exitCode } = outcome;
      return { exitCode, signal: exitCode === null ? end.signal : (signalOfStatus(exitCode) ?? null) };
    };
    if (place !== undefined) return runOnStream(place, context, work);
    return running.detached(() => work(discardingStream(), context.signal));
  },
});

const notStarted = (reason: string) =>
  new TaskFailure(
    MISSING.test(reason) ? 'NoSuchProgram' : 'SpawnFailed',
    `The program could not be started: ${reason}`,
  );
