/**
 * Keeps Node from changing the terminal of a shell that runs it in the background (`cnapi … &`).
 * tools/run preloads it when one of the standard streams is a terminal.
 *
 * Node saves the modes of the terminal at its start and restores them at its end (ResetStdio in
 * src/node.cc, https://github.com/nodejs/node/issues/35536). When a background job starts, the
 * shell's line editor may hold the terminal in raw mode; restored later, that mode leaves the shell
 * without echo. Node restores no stream that has become another file since the start, so each
 * stream that is the terminal is opened again as /dev/tty. Runs on Node 18.
 */
const { closeSync, fstatSync, openSync, readFileSync } = require('node:fs');

leaveTerminalAlone();
// The shell may also have moved it to the background later (Ctrl-Z, bg).
process.on('exit', leaveTerminalAlone);

function leaveTerminalAlone() {
  try {
    const { terminal, isForeground } = controllingTerminal();
    if (terminal === 0 || isForeground) return;
    const kept = openSync('/dev/tty', 'r+');
    for (const fd of [0, 1, 2]) if (isDevice(fd, terminal)) openAgain(fd);
    closeSync(kept);
  } catch {
    // There is no /proc or no /dev/tty: the streams stay as they are.
  }
}

/** Its device number; 0: this process has none. From proc_pid_stat(5). */
function controllingTerminal() {
  const stat = readFileSync('/proc/self/stat', 'utf8');
  const [, , group, , terminal, foregroundGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return { terminal: Number(terminal), isForeground: group === foregroundGroup };
}

function isDevice(fd, device) {
  try {
    return fstatSync(fd).rdev === device;
  } catch {
    return false;
  }
}

/** The new file gets the lowest number that is free: the one that was closed. */
function openAgain(fd) {
  closeSync(fd);
  openSync('/dev/tty', 'r+');
}
