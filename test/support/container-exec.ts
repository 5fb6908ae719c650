/** Runs prepared programs in containers, as the agent does for its tasks. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { ExecRequest, PreparedExec } from '../../lib/agent/containers/runtime.ts';
import { bootIdOf } from '../../lib/agent/machine/proc.ts';
import { streamCommand } from '../../lib/agent/machine/streamed-command.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';

interface RunOptions {
  /** Null: it stays open. */
  input?: string | null;
  signal?: AbortSignal;
  /** Receives the output as it comes. */
  output?: (text: string) => void;
}

/** A script that root runs in the directory /. */
export const scriptRequest = (script: string, change: Partial<ExecRequest> = {}): ExecRequest => ({
  args: ['/bin/sh', '-c', script],
  env: {},
  directory: '/',
  uid: 0,
  gid: 0,
  hasTerminal: false,
  ...change,
});

export async function runPrepared(exec: PreparedExec, options: RunOptions = {}) {
  const { input = '', signal = new AbortController().signal, output = () => undefined } = options;
  const directory = await mkdtemp(join(tmpdir(), 'cnapi-test-exec-'));
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    streams[name].on('data', (chunk: Buffer) => {
      said[name] += chunk;
      output(`${chunk}`);
    });
  if (input !== null) streams.stdin.end(input);
  const command = {
    program: { words: exec.words },
    env: {},
    streams,
    onResize: () => undefined,
    killFirst: () => exec.kill(),
  };
  const begin = async (group?: { pgid: number }) => void (group && exec.watch(group.pgid));
  try {
    const deps = { clock, directory, bootId: await bootIdOf() };
    const end = await streamCommand(deps, command, { id: 'exec', signal, begin });
    return { ...end, ...said, outcome: await exec.finish(end) };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
