/**
 * One set-up at a time for one checkout. A lock dies with its processes, so there is nothing to release.
 *
 * Lock files are numbered: `setup.lock.1`, `.2`, … The highest names the processes of the latest holder (itself, and the
 * npm it started, which may outlive it). When all of them are dead, whoever creates the next number holds the lock. The
 * highest is never removed, so numbers only rise, and a contender who looked long ago notices that it was overtaken.
 */
import { linkSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { failure } from './failure.mjs';
import { describeProcess, isAlive } from './processes.mjs';

const pollMs = 200;

/** Resolves once this process holds the lock in `folder`; calls `onWait(pid)` once when it has to wait. */
export async function takeLock(folder, onWait) {
  try {
    mkdirSync(folder, { recursive: true });
    let waiting = false;
    for (;;) {
      const latest = highest(folder);
      const holder = latest === 0 ? undefined : livingHolder(folder, latest);
      if (holder === undefined) {
        if (tryCreate(folder, latest + 1)) return new Lock(folder, latest + 1);
        continue;
      }
      if (!waiting) onWait(holder.pid);
      waiting = true;
      await new Promise((resolve) => setTimeout(resolve, pollMs));
    }
  } catch (error) {
    throw failure('taking the set-up lock', error.message);
  }
}

class Lock {
  constructor(folder, number) {
    this.folder = folder;
    this.number = number;
  }

  /** Names a child that must end, too, before another set-up may begin. */
  add(pid) {
    const target = file(this.folder, this.number);
    writeWhole(`${target}.new`, [describeProcess(process.pid), describeProcess(pid)]);
    renameSync(`${target}.new`, target);
  }
}

/** Creates lock `number` with its content in one step; false when somebody else was faster. */
function tryCreate(folder, number) {
  const draft = path.join(folder, `setup.draft.${process.pid}`);
  writeWhole(draft, [describeProcess(process.pid)]);
  try {
    linkSync(draft, file(folder, number));
  } catch (error) {
    if (error.code === 'EEXIST') return false;
    throw error;
  } finally {
    rmSync(draft, { force: true });
  }
  if (highest(folder) !== number) {
    rmSync(file(folder, number), { force: true });
    return false;
  }
  for (const older of numbers(folder)) if (older < number) rmSync(file(folder, older), { force: true });
  return true;
}

function livingHolder(folder, number) {
  try {
    return JSON.parse(readFileSync(file(folder, number), 'utf8')).find(isAlive);
  } catch (error) {
    if (error.code === 'ENOENT' || error instanceof SyntaxError) return undefined;
    throw error;
  }
}

function numbers(folder) {
  return readdirSync(folder)
    .map((name) => /^setup\.lock\.(\d+)$/.exec(name)?.[1])
    .filter((text) => text !== undefined)
    .map(Number);
}

function highest(folder) {
  return Math.max(0, ...numbers(folder));
}

function file(folder, number) {
  return path.join(folder, `setup.lock.${number}`);
}

function writeWhole(name, value) {
  writeFileSync(name, JSON.stringify(value));
}
