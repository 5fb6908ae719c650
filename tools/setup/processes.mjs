/** Telling whether a process noted earlier still lives, in spite of reused pids. Used by the set-up lock and `npm start`. */
import { readFileSync } from 'node:fs';

/** The pid with its start time; the time is '' where there is no /proc, and then the pid alone decides. */
export function describeProcess(pid) {
  return { pid, start: startTime(pid) ?? '' };
}

/** Whether the very process described by `describeProcess` still runs. */
export function isAlive({ pid, start }) {
  if (!signalReaches(pid)) return false;
  return start === '' || startTime(pid) === start;
}

/** Clock ticks from boot to the start of the process (field 22 of /proc/PID/stat); undefined when gone or a zombie. */
function startTime(pid) {
  let stat;
  try {
    stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  } catch {
    return undefined;
  }
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return fields[0] === 'Z' || fields[0] === 'X' ? undefined : fields[19];
}

function signalReaches(pid) {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return error.code === 'EPERM';
  }
}
