/** Runs prepared programs in containers, as the agent does for its tasks. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import type { ExecRequest, PreparedExec } from '../../lib/agent/containers/runtime.ts';
import { bootIdOf } from '../../lib/agent/machine/proc.ts';
import { streamCommand } from '../../lib/agent/machine/streamed-command.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { Terminal } from '../../lib/protocol/streams/stream.ts';

interface RunOptions {
  /** Null: it stays open. */
  input?: string | null;
  signal?: AbortSignal;
  terminal?: Terminal;
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
  const { input = '', signal = new AbortController().signal, output = () => undefined, terminal } = options;
  const directory = await mkdtemp(join(tmpdir(), 'cnapi-test-exec-'));
  const streams = { stdin: new PassThrough(), stdout: new PassThrough(), stderr: new PassThrough() };
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    streams[name].on('data', (chunk: Buffer) => {
      said[name] += chunk;
      output(`${chunk}`);
    });
  if (input !== null) streams.stdin.end(input);
  const killFirst = () => exec.kill();
  const command = { program: exec, env: {}, streams, terminal, onResize: () => undefined, killFirst };
  try {
    const deps = { clock, directory, bootId: await bootIdOf() };
    const end = await streamCommand(deps, command, { id: 'exec', signal, begin: async () => undefined });
    return { ...end, ...said, outcome: await exec.finish(end) };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}
