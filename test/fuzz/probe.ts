/**
 * Preloaded (`--import`) into a process under test: asked over IPC, it tells what the process holds after a forced
 * collection. It looks from outside: no code of the product knows of it.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { Session } from 'node:inspector/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/** What a process holds that it could leak. Bytes, or counts. */
export interface Vitals {
  heapBytes: number;
  /** Buffers and what else lies beside the heap. */
  externalBytes: number;
  residentBytes: number;
  /** Open files of the system, sockets among them. */
  files: number;
  timers: number;
  sockets: number;
  /** In all maps and sets together. */
  entries: number;
}

/** What a process has used so far. */
export interface Usage {
  /** Of user and system, by the system's own account. */
  cpuMs: number;
  residentBytes: number;
  /** The most that was resident since this was asked last. */
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

/** The inspector finds every map and set that is alive, whoever holds it. */
async function countEntries(): Promise<number> {
  const session = new Session();
  session.connect();
  try {
    let entries = 0;
    for (const prototype of ['Map.prototype', 'Set.prototype']) {
      const { result } = await session.post('Runtime.evaluate', { expression: prototype, objectGroup: 'vitals' });
      const query = { prototypeObjectId: String(result.objectId), objectGroup: 'vitals' };
      // The type declarations do not know that it answers.
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

/** The most since it was asked before; undefined where the system does not tell. */
function peakBytes(): number | undefined {
  try {
    const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))?.[1];
    // Begins anew: proc(5), "clear_refs".
    writeFileSync('/proc/self/clear_refs', '5');
    return peak === undefined ? undefined : Number(peak) * 1024;
  } catch {
    return undefined;
  }
}
