/**
 * Ends the child processes and removes the temporary folder of this process when it ends, however
 * it ends. A separate shell has the list; when its stdin closes, it kills and removes what is left.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Socket } from 'node:net';

const script = `
wards=' '
folder=
while read -r sign ward; do
  case $sign in
    +) wards="$wards$ward " ;;
    -) wards="\${wards%% $ward *} \${wards#* $ward }" ;;
    folder) folder=$ward ;;
  esac
done
for pid in $wards; do kill -KILL $pid 2>/dev/null; done
[ -z "$folder" ] || { sleep 0.2; rm -rf "$folder"; }`;

let guardian: ChildProcess | undefined;

/** Kills `child` when this process has ended, unless it has exited before. */
export function guard(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined) return;
  send(`+ ${pid}`);
  child.once('exit', () => send(`- ${pid}`));
}

/** Removes this folder when this process has ended. A process has at most one. */
export function guardFolder(folder: string): void {
  send(`folder ${folder}`);
}

function send(line: string): void {
  guardian ??= startGuardian();
  guardian.stdin?.write(`${line}\n`);
}

function startGuardian(): ChildProcess {
  const shell = spawn('sh', ['-c', script], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] });
  shell.stdin?.on('error', () => undefined);
  shell.unref();
  (shell.stdin as Socket | null)?.unref();
  return shell;
}
