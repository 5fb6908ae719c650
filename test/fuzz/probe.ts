/**
 * Preloaded (`--import`) into a process under test: on request over IPC, it reports what the
 * process holds after a forced garbage collection. It works from outside: no code of the product
 * knows of it.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** Resources of a process that could leak, as bytes or counts. */
export interface Vitals {
  heapBytes: number;
  /** Buffers and other memory outside the heap. */
  externalBytes: number;
  residentBytes: number;
  /** Open files of the system, including sockets. */
  files: number;
  timers: number;
  sockets: number;
  /** Entries of all maps and sets together. */
  entries: number;
}

/** What a process has used so far. */
export interface Usage {
  /** User and system time, as the system counts it. */
  cpuMs: number;
  residentBytes: number;
  /** The maximum of resident memory since the last request. */
  peakBytes: number;
}

interface Found {
  objects: { objectId: string };
}

export async function takeVitals(): Promise<Vitals> {
  const entries = await countEntries();
  collectGarbage();
  const { heapUsed, external, arrayBuffers, rss } = process.memoryUsage();
  const resources = process.getActiveResourcesInfo();
  const count = (name: RegExp) => resources.filter((one) => name.test(one)).length;
  return {
    heapBytes: heapUsed,
    externalBytes: external + arrayBuffers,
    residentBytes: rss,
    files: readdirSync('/proc/self/fd').length,
    timers: count(/^(Timeout|Immediate)$/),
    sockets: count(/^(TCP|UDP|Pipe)/),
    entries,
  };
}

function readUsage(): Usage {
  const { user, system } = process.cpuUsage();
  const residentBytes = process.memoryUsage.rss();
  return { cpuMs: (user + system) / 1000, residentBytes, peakBytes: peakBytes() ?? residentBytes };
}

function collectGarbage(): void {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  for (let each = 0; each < 3; each++) collect();
}

/** The inspector finds every live map and set, whatever holds it. */
async function countEntries(): Promise<number> {
  const session = new Session();
  session.connect();
  try {
    let entries = 0;
    for (const prototype of ['Map.prototype', 'Set.prototype']) {
      const { result } = await session.post('Runtime.evaluate', { expression: prototype, objectGroup: 'vitals' });
      const query = { prototypeObjectId: String(result.objectId), objectGroup: 'vitals' };
      // The type declarations do not know that it returns a value.
      const { objects } = (await session.post('Runtime.queryObjects', query)) as unknown as Found;
      const sum = await session.post('Runtime.callFunctionOn', {
        objectId: objects.objectId,
        functionDeclaration:
          'function () { let sum = 0; for (const one of this) try { sum += one.size; } catch {} return sum; }',
        returnByValue: true,
      });
      entries += Number(sum.result.value);
    }
    return entries;
  } finally {
    await session.post('Runtime.releaseObjectGroup', { objectGroup: 'vitals' });
    session.disconnect();
  }
}

if (process.send !== undefined) {
  process.on('message', (message) => {
    if (message === 'vitals') void takeVitals().then((vitals) => process.send?.({ vitals }));
    if (message === 'usage') process.send?.({ usage: readUsage() });
  });
  process.channel?.unref();
}

/** The maximum since the last request; undefined where the system does not report it. */
function peakBytes(): number | undefined {
  try {
    const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
    // Restarts the count: proc(5), "clear_refs".
    writeFileSync('/proc/self/clear_refs', '5');
    return peak === undefined ? undefined : Number(peak) * 1024;
  } catch {
    return undefined;
  }
}
