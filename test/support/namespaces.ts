/**
 * Real network namespaces and bridges for tests. Each namespace is that of a process, which ends
 * with the test; bridges have names of their own and are removed at the end.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readlink } from 'node:fs/promises';
import type { Test } from 'tap';
import { lacks, programFile } from './debian-programs.ts';
import { until } from './until.ts';

let bridges = 0;

/** Why namespaces cannot be tested here; false if they can. */
export function lacksNamespaces(): string | false {
  if (process.geteuid?.() !== 0 && process.env.CNAPI_TEST_NO_SKIP !== '1') return 'network namespaces need root';
  return lacks('ip', 'nsenter', 'unshare', 'busybox');
}

/** Runs `ip` and returns its standard output. */
export function ip(...args: string[]): string {
  const { status, stdout, stderr } = spawnSync(programFile('ip'), args, { encoding: 'utf8' });
  if (status !== 0) throw new Error(`ip ${args.join(' ')}: ${stderr}`);
  return stdout;
}

export const linkNames = (): string[] =>
  JSON.parse(ip('-j', 'link', 'show')).map((link: { ifname: string }) => link.ifname);

/** A new bridge without an address. */
export function makeBridge(t: Test, mtu = 1500): string {
  bridges += 1;
  const name = `ct${process.pid.toString(36)}b${bridges}`;
  ip('link', 'add', 'dev', name, 'mtu', `${mtu}`, 'type', 'bridge');
  t.teardown(() => ip('link', 'delete', 'dev', name));
  ip('link', 'set', 'dev', name, 'up');
  return name;
}

export class Namespace {
  readonly pid: number;
  readonly #end: () => Promise<void>;

  private constructor(pid: number, end: () => Promise<void>) {
    this.pid = pid;
    this.#end = end;
  }

  static async make(t: Test): Promise<Namespace> {
    const child = spawn(programFile('unshare'), ['--net', programFile('busybox'), 'sleep', '3600'], {
      stdio: 'ignore',
    });
    const ended = once(child, 'exit');
    const end = async () => {
      child.kill('SIGKILL');
      await ended;
    };
    t.teardown(end);
    const pid = child.pid as number;
    const own = await readlink('/proc/self/ns/net');
    await until(async () => (await readlink(`/proc/${pid}/ns/net`)) !== own, 'the process has a namespace');
    return new Namespace(pid, end);
  }

  end(): Promise<void> {
    return this.#end();
  }

  run(...args: string[]): { status: number | null; stdout: string } {
    const enter = [`--net=/proc/${this.pid}/ns/net`, ...args];
    return spawnSync(programFile('nsenter'), enter, { encoding: 'utf8' });
  }

  /** What `ip -j` says about interfaces other than loopback. */
  links(): { ifname: string; address: string; mtu: number; operstate: string; addr_info: { local: string }[] }[] {
    const { stdout } = this.run(programFile('ip'), '-j', 'address', 'show');
    return JSON.parse(stdout).filter(({ ifname }: { ifname: string }) => ifname !== 'lo');
  }

  /** Whether it answers. The limit is long enough for a loaded machine; silence costs `withinS`. */
  reaches(address: string, withinS = 20): boolean {
    const family = address.includes(':') ? '-6' : '-4';
    return this.run(programFile('busybox'), 'ping', family, '-c', '1', '-W', `${withinS}`, address).status === 0;
  }
}
