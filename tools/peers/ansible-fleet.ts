/**
 * Nodes for Ansible: one sshd on loopback that all of them are names of, and an inventory. Each
 * name has connections of its own, as different machines would. Keys and settings are in a folder
 * of the benchmark; the user's own are neither read nor changed.
 */
import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import type { BenchContext } from '../bench/figure.ts';
import { freePort, isListening } from '../start/ports.ts';
import { findProgram, whyNoProgram } from './find-program.ts';

const run = promisify(execFile);

export interface AnsibleFleet {
  /** Runs `true` on all nodes. @throws when it did not succeed on each */
  runTrue(options: { keepsConnections: boolean }): Promise<void>;
  stop(): Promise<void>;
}

const UP_WITHIN_MS = 10_000;
const LOOK_MS = 20;

export function whyNoAnsible(): string | undefined {
  return whyNoProgram('ansible', 'ansible-core') ?? whyNoProgram('sshd', 'openssh-server');
}

export async function startAnsibleFleet(context: BenchContext, nodes: number): Promise<AnsibleFleet> {
  const folder = path.join(context.directory, 'ansible');
  mkdirSync(folder, { mode: 0o700 });
  const file = (name: string) => path.join(folder, name);
  const port = await freePort(undefined);
  for (const key of ['host', 'user']) await run('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', file(key)]);
  const write = (name: string, lines: readonly string[]) =>
    writeFileSync(file(name), `${lines.join('\n')}\n`, { mode: 0o600 });
  write('sshd', [
    `ListenAddress 127.0.0.1:${port}`,
    `HostKey ${file('host')}`,
    `AuthorizedKeysFile ${file('user.pub')}`,
    `PidFile ${file('sshd.pid')}`,
    'PermitRootLogin prohibit-password',
    'PasswordAuthentication no',
    'StrictModes no',
    'UsePAM no',
    // Its defaults refuse some of fifty that sign in at the same moment.
    `MaxStartups ${2 * nodes}`,
  ]);
  write('ssh', [
    'Host node-*',
    '  HostName 127.0.0.1',
    `  Port ${port}`,
    `  User ${os.userInfo().username}`,
    `  IdentityFile ${file('user')}`,
    '  IdentitiesOnly yes',
    '  StrictHostKeyChecking no',
    `  UserKnownHostsFile ${file('known-hosts')}`,
    '  LogLevel ERROR',
  ]);
  write('inventory', ['[all]', ...Array.from({ length: nodes }, (_, at) => `node-${at}`)]);
  // sshd of a Debian that does not run it as a service lacks the folder.
  if (process.getuid?.() === 0) mkdirSync('/run/sshd', { recursive: true, mode: 0o755 });
  const sshd = context.startProgram({
    name: 'sshd',
    command: { file: findProgram('sshd') ?? 'sshd', args: ['-D', '-e', '-f', file('sshd')] },
  });
  for (const deadline = clock.now() + UP_WITHIN_MS; !(await isListening(port)); await clock.sleep(LOOK_MS))
    if (clock.now() > deadline || !sshd.isAlive) throw new Error('sshd does not listen');
  mkdirSync(file('cp'), { mode: 0o700 });
  return {
    async runTrue({ keepsConnections }) {
      const master = keepsConnections ? '-o ControlMaster=auto -o ControlPersist=300s' : '-o ControlMaster=no';
      const env = {
        PATH: process.env.PATH,
        HOME: folder,
        LC_ALL: 'C.UTF-8',
        ANSIBLE_SSH_ARGS: `-F ${file('ssh')} ${master}`,
        ANSIBLE_SSH_CONTROL_PATH_DIR: file('cp'),
        ANSIBLE_PYTHON_INTERPRETER: '/usr/bin/python3',
        ANSIBLE_LOCALHOST_WARNING: 'false',
      };
      const args = ['all', '-i', file('inventory'), '-f', String(nodes), '-o', '-m', 'command', '-a', 'true'];
      const { stdout } = await run('ansible', args, { env, maxBuffer: 16 * 1024 * 1024 });
      const done = stdout.split('\n').filter((line) => /^node-\d+ \| CHANGED \| rc=0/.test(line)).length;
      if (done !== nodes) throw new Error(`Ansible ran it on ${done} of ${nodes} nodes: ${stdout.slice(0, 400)}`);
    },
    async stop() {
      // The masters of kept connections are processes of their own.
      const exits = readdirSync(file('cp')).map((socket) =>
        run('ssh', ['-F', file('ssh'), '-O', 'exit', '-S', path.join(file('cp'), socket), 'node-0']),
      );
      await Promise.allSettled(exits);
      await sshd.kill();
    },
  };
}
