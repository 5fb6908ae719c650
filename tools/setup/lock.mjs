/**
 * Locks that die with the processes that hold them, so that there is nothing to release: one set-up at a time for a
 * checkout, one supervisor at a time for a data directory.
 *
 * Lock files are numbered: `NAME.lock.1`, `.2`, … The highest names the processes of the latest holder (itself, and with
 * set-up the npm it started, which may outlive it). When all of them are dead, whoever creates the next number holds the
 * lock. The highest is never removed, so numbers only rise, and a contender who looked long ago notices that it was
 * overtaken.
 */
import { linkSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describeProcess, isAlive } from './processes.mjs';

const pollMs = 200;

/** Resolves once this process holds lock `name` in `folder`; calls `onWait(pid)` once when it has to wait. */
export async function takeLock(folder, name, onWait) {
  for (let waiting = false; ; waiting = true) {
    const { lock, holder } = tryLock(folder, name);
    if (lock) return lock;
    if (!waiting) onWait(holder.pid);
    await new Promise((resolve) => setTimeout(resolve, pollMs));
  }
}

/** → { lock } when this process holds it now, else { holder }: a living process that does. */
export function tryLock(folder, name) {
  for (;;) {
    const latest = highest(folder, name);
    const holder = livingHolder(folder, name, latest);
    if (holder !== undefined) return { holder };
    if (tryCreate(folder, name, latest + 1)) return { lock: new Lock(file(folder, name, latest + 1)) };
  }
}

/** The living process that holds lock `name` in `folder`, if there is one. */
export function lockHolder(folder, name) {
  return livingHolder(folder, name, highest(folder, name));
}

class Lock {
  constructor(target) {
    this.target = target;
  }

  /** Names a child that must end, too, before the lock counts as free. */
  add(pid) {
    writeFileSync(`${this.target}.new`, JSON.stringify([describeProcess(process.pid), describeProcess(pid)]));
    renameSync(`${this.target}.new`, this.target);
  }
}

/** Creates lock `number` with its content in one step; false when somebody else was faster. */
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
