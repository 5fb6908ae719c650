/**
 * Sees to it that what a test process spawned dies with it, however it ends: a shell of its own knows their process ids, and
 * when its stdin closes it kills those that are left.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';

const script = `
wards=' '
while read -r sign pid; do
  case $sign in
    +) wards="$wards$pid " ;;
    -) wards="\${wards%% $pid *} \${wards#* $pid }" ;;
  esac
done
for pid in $wards; do kill -KILL $pid 2>/dev/null; done`;

let guardian: ChildProcess | undefined;

/** `child` is killed when this process is gone; until it has exited by itself. */
export function guard(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined) return;
  guardian ??= startGuardian();
  const { stdin } = guardian;
  stdin?.write(`+ ${pid}\n`);
  child.once('exit', () => stdin?.write(`- ${pid}\n`));
}

function startGuardian(): ChildProcess {
  const shell = spawn('sh', ['-c', script], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  shell.stdin?.on('error', () => undefined);
  shell.unref();
  (shell.stdin as Socket | null)?.unref();
  return shell;
}
