/**
 * The directory of one container as the OCI runtime reads it: the configuration, which holds
 * secrets and which only the agent may read, and the generated files of /etc.
 */
import { chmod, chown, mkdir, rename, writeFile } from 'node:fs/promises';
import type { ContainerSpec } from '../container.ts';
import { buildOciConfig, type MachineFacts } from '../oci/oci-config.ts';
import type { ContainerPaths } from './container-paths.ts';

interface BundleOptions {
  paths: ContainerPaths;
  facts: MachineFacts;
  root: string;
  /** Path of the control group in the form of the OCI runtime. */
  cgroup: string;
}

/**
 * Makes a directory that only the agent and the root user of the containers can traverse: the root
 * file systems lie below it, with programs that have the setuid bit.
 */
export async function makeTraversable(path: string, gid: number): Promise<void> {
  await mkdir(path, { recursive: true, mode: 0o700 });
  await chown(path, -1, gid);
  await chmod(path, 0o710);
}

/** Replaces the files of an earlier start. */
export async function writeBundle(spec: ContainerSpec, { paths, facts, root, cgroup }: BundleOptions): Promise<void> {
  const files = { '/etc/hosts': paths.hosts, '/etc/hostname': paths.hostname, '/etc/resolv.conf': paths.resolvers };
  await mkdir(paths.logs, { recursive: true, mode: 0o700 });
  await writeNew(paths.hosts, hostsOf(spec), 0o644);
  await writeNew(paths.hostname, `${spec.hostname}\n`, 0o644);
  await writeNew(paths.resolvers, spec.resolvers.map((address) => `nameserver ${address}\n`).join(''), 0o644);
  await writeNew(paths.config, JSON.stringify(buildOciConfig(spec, { ...facts, root, files, cgroup })), 0o600);
}

/** Writes new limits for a container that runs. @returns the path of the file */
export async function writeLimits({ limits }: ContainerPaths, resources: object): Promise<string> {
  await writeNew(limits, JSON.stringify(resources), 0o600);
  return limits;
}

function hostsOf({ hostname, nics }: ContainerSpec): string {
  const own = nics.flatMap(({ addresses }) => addresses.map((address) => address.replace(/\/\d+$/, '')));
  const lines = [
    '127.0.0.1 localhost',
    '::1 localhost ip6-localhost ip6-loopback',
    ...(own.length > 0 ? own : ['127.0.1.1']).map((address) => `${address} ${hostname}`),
  ];
  return `${lines.join('\n')}\n`;
}

/** Also sets the mode of an existing file. A crash leaves the old file or the new one. */
async function writeNew(path: string, text: string, mode: number): Promise<void> {
  const draft = `${path}.new`;
  await writeFile(draft, text, { mode });
  await chmod(draft, mode);
  await rename(draft, path);
}
