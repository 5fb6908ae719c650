/**
 * Finds an OCI runtime that works on this machine: each that is installed must set up a container
 * as the agent's are, except that its program does not exist. A runtime that complains about
 * anything before it misses the program does not work here; what it says is kept for people.
 */

import { chmod, chown, mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { MIB } from '../../../platform/byte-units.ts';
import type { RunCgroups } from '../cgroups/run-cgroups.ts';
import { ContainerError } from '../container-errors.ts';
import { runtimeRoot } from '../linux/container-paths.ts';
import { findProgram, runToEnd } from '../linux/programs.ts';
import { buildOciConfig, type MachineFacts } from './oci-config.ts';
import { deleteOci, lastMessageOf, type OciRuntime, reasonOfEnd } from './oci-runtime.ts';

interface ProbeDeps {
  /** The directory of all containers; the probe makes a directory there and removes it. */
  directory: string;
  cgroups: RunCgroups;
  facts: MachineFacts;
}

/**
 * The first that works is used. Most tests run runc, which works with groups of both versions.
 */
const RUNTIMES = ['runc', 'crun'] as const;
/** Not a possible name of a run. */
const PROBE = 'probe';
const MISSES_PROGRAM = /\/probe\b.*(no such file|not found)/i;
const PROBE_MS = 20_000;

/** @throws ContainerError with the reason why each does not work */
export async function chooseRuntime(deps: ProbeDeps, names: readonly string[] = RUNTIMES): Promise<OciRuntime> {
  const reasons: string[] = [];
  for (const name of names) {
    const found = await findProgram(name);
    const file = found !== undefined && name === 'crun' ? await wrapCrun(found, deps) : found;
    const reason = file === undefined ? 'it is not installed' : await probe(runtimeAt(file, deps), deps);
    if (file !== undefined && reason === undefined) return runtimeAt(file, deps);
    reasons.push(`${name}: ${reason}`);
  }
  throw new ContainerError(`No container runtime works here; install runc or crun (${reasons.join('; ')})`);
}

function runtimeAt(file: string, { directory }: ProbeDeps): OciRuntime {
  const root = runtimeRoot(directory);
  return { file, args: ['--root', root], root };
}

/**
 * Some versions of crun (1.8.1 of Debian 12) make the user of the container the owner of its
 * standard input. If that is /dev/null, which monitors and programs without input have, it is the
 * device of the machine, whose owner may then close it to everybody. So crun gets an empty pipe
 * instead. runc leaves /dev/null as it is. @returns the path of the program that does that
 */
async function wrapCrun(file: string, { directory }: ProbeDeps): Promise<string> {
  const wrapper = join(directory, 'crun');
  const script = `#!/bin/sh
if [ /proc/self/fd/0 -ef /dev/null ]; then : | exec '${file}' "$@"; else exec '${file}' "$@"; fi
`;
  await writeFile(wrapper, script, { mode: 0o700 });
  return wrapper;
}

/** Why it does not work; undefined if it does. */
async function probe(runtime: OciRuntime, { directory, cgroups, facts }: ProbeDeps): Promise<string | undefined> {
  const bundle = join(directory, PROBE);
  const log = join(bundle, 'log');
  try {
    await writeProbe(bundle, { cgroups, facts });
    const logged = ['--log', log, '--log-format', 'json'];
    const args = [...logged, ...runtime.args, 'create', '--bundle', bundle, PROBE];
    const end = await runToEnd(runtime.file, args, { timeoutMs: PROBE_MS });
    const reason = (await lastMessageOf(log)) ?? reasonOfEnd(end);
    return MISSES_PROGRAM.test(reason) ? undefined : reason;
  } finally {
    await deleteOci(runtime, PROBE).catch(() => undefined);
    await cgroups.remove(PROBE).catch(() => undefined);
    await rm(bundle, { recursive: true, force: true });
  }
}

async function writeProbe(bundle: string, { cgroups, facts }: Omit<ProbeDeps, 'directory'>): Promise<void> {
  const root = join(bundle, 'root');
  await rm(bundle, { recursive: true, force: true });
  await mkdir(root, { recursive: true });
  const { first } = facts.uidRange;
  for (const path of [bundle, root]) {
    await chown(path, first, first);
    await chmod(path, 0o755);
  }
  const cgroup = cgroups.noLimitsReason === undefined ? cgroups.pathOf(PROBE) : undefined;
  await writeFile(
    join(bundle, 'config.json'),
    JSON.stringify(buildOciConfig(probeSpec, { ...facts, root, files: {}, cgroup })),
  );
}

const probeSpec = {
  id: PROBE,
  hostname: PROBE,
  root: { layers: [], isReadOnly: false },
  process: { args: ['/probe'], env: {}, directory: '/', uid: 0, gid: 0 },
  limits: { memoryBytes: 64 * MIB, cpuPercent: 100, processes: 16 },
  mounts: [],
  nics: [],
  resolvers: [],
  metadata: {},
  log: { maxBytes: MIB, maxFiles: 1 },
};
