/** Pure. Which trees of control groups are mounted, from /proc/self/mountinfo (proc(5)). */

export interface Hierarchy {
  directory: string;
  version: 1 | 2;
  /** Only version 1 has controllers here; for example `cpu` and `cpuacct`, or `name=systemd`. */
  controllers: readonly string[];
}

const OPTIONS = new Set(['rw', 'ro', 'xattr', 'noprefix', 'clone_children']);

/** A tree that is mounted twice counts once. */
export function parseHierarchies(mountInfo: string): Hierarchy[] {
  const found = new Map<string, Hierarchy>();
  for (const line of mountInfo.split('\n')) {
    const [mount = '', fileSystem = ''] = line.split(' - ');
    const [, , device = '', , directory] = mount.split(' ');
    const [type, , options = ''] = fileSystem.split(' ');
    if (directory === undefined || (type !== 'cgroup' && type !== 'cgroup2') || found.has(device)) continue;
    const controllers = type === 'cgroup2' ? [] : options.split(',').filter((option) => !OPTIONS.has(option));
    found.set(device, { directory, version: type === 'cgroup2' ? 2 : 1, controllers });
  }
  return [...found.values()];
}
