/**
 * Sees to it that what this process spawned, and the folders it made for a while, go with it, however it ends: a shell of
 * its own knows them, and when its stdin closes it kills and removes those that are left.
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

/** `child` is killed when this process is gone; until it has exited by itself. */
export function guard(child: ChildProcess): void {
  const { pid } = child;
  if (pid === undefined) return;
  tell(`+ ${pid}`);
  child.once('exit', () => tell(`- ${pid}`));
}

/** The one folder of this process that is removed when it is gone. */
export function guardFolder(folder: string): void {
  tell(`folder ${folder}`);
}

function tell(line: string): void {
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
