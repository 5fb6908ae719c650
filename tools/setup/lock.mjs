/**
 * Locks that need no release, because they end with the processes that hold them: one set-up at a
 * time for a checkout, one supervisor at a time for a data directory.
 *
 * Lock files are numbered: `NAME.lock.1`, `.2`, … The highest names the processes of the latest
 * holder (the process itself, and during set-up the npm it started, which may outlive it). When all
 * of them have ended, the process that creates the next number holds the lock. The highest file is
 * never removed, so numbers only rise, and a process that read the files earlier notices that
 * another one was faster.
 */
import { linkSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describeProcess, isAlive } from './processes.mjs';

const pollMs = 200;

/**
 * Resolves when this process holds lock `name` in `folder`; calls `onWait(pid)` once if it has to
 * wait.
 */
export async function takeLock(folder, name, onWait) {
  for (let waiting = false; ; waiting = true) {
    const { lock, holder } = tryLock(folder, name);
    if (lock) return lock;
    if (!waiting) onWait(holder.pid);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

/**
 * Returns { lock } if this process holds it now, otherwise { holder }: the running process that
 * holds it.
 */
export function tryLock(folder, name) {
  for (;;) {
    const latest = highest(folder, name);
    const holder = livingHolder(folder, name, latest);
    if (holder !== undefined) return { holder };
    if (tryCreate(folder, name, latest + 1)) return { lock: new Lock(file(folder, name, latest + 1)) };
  }
}

/** Returns the running process that holds lock `name` in `folder`, if there is one. */
export function lockHolder(folder, name) {
  return livingHolder(folder, name, highest(folder, name));
}

class Lock {
  constructor(target) {
    this.target = target;
  }

  /** Adds a child that must also end before the lock counts as free. */
  add(pid) {
    writeFileSync(`${this.target}.new`, JSON.stringify([describeProcess(process.pid), describeProcess(pid)]));
    renameSync(`${this.target}.new`, this.target);
  }
}

/**
 * Creates lock `number` with its content in one step. Returns false when another process was
 * faster.
 */
function tryCreate(folder, name, number) {
  const draft = path.join(folder, `${name}.draft.${process.pid}`);
  writeFileSync(draft, JSON.stringify([describeProcess(process.pid)]));
  try {
    linkSync(draft, file(folder, name, number));
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  if (highest(folder, name) !== number) {
    rmSync(file(folder, name, number), { force: true });
    return false;
  }
  for (const older of numbers(folder, name)) {
    if (older < number) rmSync(file(folder, name, older), { force: true });
  }
  return true;
}

function livingHolder(folder, name, number) {
  if (number === 0) return undefined;
  try {
    return JSON.parse(readFileSync(file(folder, name, number), 'utf8')).find(isAlive);
  } catch (error) {
    if (error.code === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function highest(folder, name) {
  return Math.max(0, ...numbers(folder, name));
}

function numbers(folder, name) {
  const prefix = `${name}.lock.`;
  return list(folder)
    .filter((entry) => entry.startsWith(prefix) && /^\d+$/.test(entry.slice(prefix.length)))
    .map((entry) => Number(entry.slice(prefix.length)));
}

function list(folder) {
  try {
    return readdirSync(folder);
  } catch (error) {
    if (error.code === 'ENOENT') return [];
    throw error;
  }
}

function file(folder, name, number) {
  return path.join(folder, `${name}.lock.${number}`);
}
