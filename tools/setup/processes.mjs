/**
 * Recognizes whether a process recorded earlier is still running, although pids are reused. Used by
 * the set-up lock and `npm start`.
 */
import { readFileSync } from 'node:fs';

/** Returns the pid with its start time. Without /proc the time is '', and the pid alone decides. */
export function describeProcess(pid) {
  return { pid, start: startTime(pid) ?? '' };
}

/** Whether the process described by `describeProcess` is still running. */
export function isAlive({ pid, start }) {
  if (!signalReaches(pid)) return false;
  return start === '' || startTime(pid) === start;
}

/**
 * Returns the clock ticks from boot to the start of the process (field 22 of /proc/PID/stat);
 * undefined when it is gone or a zombie.
 */
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
