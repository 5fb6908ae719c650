/**
 * What an input costs: the instance's CPU time and memory from before an input until it is dealt
 * with, against a bound. The bound is a multiple of what as many bytes of ordinary reports cost,
 * measured in the same run and the same process, and a constant; so it holds on a slow or busy
 * machine as well. An input is one request, flood or series of frames.
 */
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabase } from '../support/postgres.ts';
import { joinAgent, newMachine, type ScriptedAgent } from '../support/scripted-agent.ts';
import { until } from '../support/until.ts';
import {
  type CostInput,
  FLOODS,
  type FloodInput,
  FOUND,
  type FramesInput,
  inputs,
  LISTS,
  type ListsInput,
  MIB,
  manyOf,
  ORDINARY,
  type RequestInput,
} from './cost-inputs.ts';
import { feeder, type Part, Wrong } from './part.ts';
import type { Usage } from './probe.ts';
import { ANSWER_WITHIN_MS, type Target } from './target.ts';

/** A multiple of the cost of as many bytes of ordinary reports. */
const CPU_FACTOR = 1.5;
/** JSON.parse takes so much longer for an object with thousands of members. */
const WIDE_FACTOR = 3;
const CPU_FREE_MS = 120;
/**
 * The limit for a connection during a flood, however few bytes that takes: the cost of this many
 * bytes of ordinary reports.
 */
const FLOOD_WORTH_BYTES = 12 * MIB;
/** A text is held as bytes and as characters, in addition to its parsed values. */
const MEMORY_FACTOR = 8;
const MEMORY_FREE_BYTES = 192 * MIB;
/**
 * The limit for lists, however large their answers: twelve histories with 178 MiB of answers took
 * 164 to 187 MiB, garbage included.
 */
const LISTS_FREE_BYTES = 224 * MIB;
const STOCK = { tasks: 1_000, taskBytes: 15 * 1024, servers: 400, sysinfoBytes: 45 * 1024 };
/** A cost counts as a finding only if every try exceeds the limit. */
const TRIES = 3;
/** The minimum duration of a measured flood; data that is not read by then is not read fast. */
const FLOOD_MS = 3_000;

export const costPart: Part = {
  name: 'cost',
  about: 'what requests, frames and floods cost an instance, against as many bytes of ordinary reports',
  share: 2,
  quick: 8,
  async open(start) {
    const target = await start();
    const gauge = new Gauge(target, await stock(target));
    await gauge.calibrate();
    return feeder<CostInput>({
      arbitrary: inputs,
      examples: FOUND,
      lanes: 1,
      batch: 6,
      slack: { entries: 500, heapBytes: 16 * MIB, externalBytes: 64 * MIB },
      async feed(input) {
        await target.revive();
        await gauge.judge(input);
        return 1;
      },
      vitals: () => target.instance.vitals(),
      inspect: () => target.inspect(),
      close: () => target.stop(),
    });
  },
};

interface Spent {
  bytes: number;
  cpuMs: number;
  memoryBytes: number;
}

class Gauge {
  readonly #target: Target;
  readonly #stocked: string;
  /** The cost of ordinary reports. */
  #cpuMsPerByte = 0;
  /** The cost of an idle instance. */
  #idleShare = 0;

  /** `stocked`: a server with many large tasks. */
  constructor(target: Target, stocked: string) {
    this.#target = target;
    this.#stocked = stocked;
  }

  async calibrate(): Promise<void> {
    for (let each = 0; each < 3; each++) await this.#feed(ORDINARY);
    this.#idleShare = await this.#idle();
    const costs: number[] = [];
    for (let each = 0; each < 5; each++) {
      const { cpuMs, bytes } = await this.#spentBy(ORDINARY);
      costs.push(cpuMs / bytes);
    }
    this.#cpuMsPerByte = costs.sort((a, b) => a - b)[2] ?? 0;
  }

  /** @throws Wrong when it costs too much in each try */
  async judge(input: CostInput): Promise<void> {
    for (let tries = 1; ; tries++) {
      const complaint = this.#complaintOf(input, await this.#spentBy(input));
      if (complaint === undefined) return;
      if (tries === TRIES)
        throw new Wrong(`${JSON.stringify(input)} cost ${complaint}`, `${input.kind}: too expensive`);
      await this.calibrate();
    }
  }

  #complaintOf(input: CostInput, { bytes, cpuMs, memoryBytes }: Spent): string | undefined {
    const { kind } = input;
    const isWide = 'piece' in input && input.piece.includes('#');
    const ordinary = isWide ? WIDE_FACTOR * bytes : bytes;
    const worth = kind === 'flood' ? FLOOD_WORTH_BYTES : kind === 'lists' ? bytes + FLOOD_WORTH_BYTES : ordinary;
    const cpuBound = CPU_FREE_MS + CPU_FACTOR * this.#cpuMsPerByte * worth;
    const memoryBound = kind === 'lists' ? LISTS_FREE_BYTES : MEMORY_FREE_BYTES + MEMORY_FACTOR * bytes;
    if (cpuMs > cpuBound) return `${cpuMs.toFixed(0)} ms of CPU; ${cpuBound.toFixed(0)} are allowed for ${bytes} bytes`;
    if (memoryBytes > memoryBound)
      return `${(memoryBytes / MIB).toFixed(0)} MiB; ${(memoryBound / MIB).toFixed(0)} are allowed for ${bytes} bytes`;
    return undefined;
  }

  async #spentBy(input: CostInput): Promise<Spent> {
    const before = await this.#target.instance.usage();
    const begin = performance.now();
    const bytes = await this.#feed(input);
    const after = await this.#rested();
    const idleMs = this.#idleShare * (performance.now() - begin);
    const memoryBytes = after.peakBytes - before.residentBytes;
    return { bytes, cpuMs: after.cpuMs - before.cpuMs - idleMs, memoryBytes };
  }

  /** Resolves when the instance uses no more than an idle one, or after some seconds. */
  async #rested(): Promise<Usage> {
    let last = await this.#target.instance.usage();
    let { peakBytes } = last;
    for (let quiet = 0, looks = 0; quiet < 2 && looks < 40; looks++) {
      const at = performance.now();
      await sleep(200);
      const next = await this.#target.instance.usage();
      const isQuiet = next.cpuMs - last.cpuMs <= 2 * this.#idleShare * (performance.now() - at) + 5;
      quiet = isQuiet ? quiet + 1 : 0;
      last = next;
      peakBytes = Math.max(peakBytes, next.peakBytes);
    }
    return { ...last, peakBytes };
  }

  async #idle(): Promise<number> {
    const before = await this.#target.instance.usage();
    const begin = performance.now();
    await sleep(2_000);
    const after = await this.#target.instance.usage();
    return (after.cpuMs - before.cpuMs) / (performance.now() - begin);
  }

  /**
   * Resolves with the bytes that were sent, or for lists those of the answers, once they have been
   * handled.
   */
  #feed(input: CostInput): Promise<number> {
    switch (input.kind) {
      case 'request':
        return this.#request(input);
      case 'frames':
        return this.#frames(input);
      case 'flood':
        return this.#flood(input);
      case 'lists':
        return this.#lists(input);
      default:
        return input satisfies never;
    }
  }

  async #request({ method, path, field, piece, bytes, parallel }: RequestInput): Promise<number> {
    const others = path.endsWith('/execute') ? '"script":"true",' : '';
    const body = `{${others}"${field}":${manyOf(piece, bytes)}}`;
    const url = this.#target.url + path.replace('{server}', this.#target.bait(0));
    const headers = { 'content-type': 'application/json', 'content-length': String(body.length) };
    const asked = Array.from({ length: parallel }, async () => {
      const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
      // `fetch` sends no body with GET. A request that is refused midway does not matter here.
      const { promise, resolve } = Promise.withResolvers<void>();
      const sent = request(url, { method, headers, signal, agent: false }, (answer) => {
        answer.resume();
        answer.on('close', resolve);
      });
      sent.on('error', () => resolve());
      sent.end(body);
      await promise;
    });
    await Promise.all(asked);
    return parallel * body.length;
  }

  async #frames({ head, piece, bytes, count }: FramesInput): Promise<number> {
    const text = `${head}${manyOf(piece, bytes)}}}`;
    await this.#withAgent(async (agent) => {
      for (let each = 0; each < count; each++) agent.socket.send(text);
      await heard(agent, ANSWER_WITHIN_MS);
    });
    return count * text.length;
  }

  async #flood({ frame, count }: FloodInput): Promise<number> {
    const one = FLOODS[frame];
    const bytes = Buffer.alloc(one.length * count);
    for (let at = 0; at < bytes.length; at += one.length) one.copy(bytes, at);
    await this.#withAgent(async (agent) => {
      // Below `ws`, which would take longer to write them than the instance to read them.
      const { _socket: socket } = agent.socket as unknown as { _socket: Socket };
      socket.write(bytes);
      await heard(agent, FLOOD_MS);
    });
    return bytes.length;
  }

  async #lists({ list, parallel }: ListsInput): Promise<number> {
    const url = this.#target.url + LISTS[list].replace('{stocked}', this.#stocked);
    let bytes = 0;
    const signal = AbortSignal.timeout(ANSWER_WITHIN_MS);
    // A connection that breaks off, or takes too long on a busy machine, does not matter here.
    const answers = await Promise.allSettled(Array.from({ length: parallel }, () => fetch(url, { signal })));
    const read = async (body: Response['body']) => {
      for await (const chunk of body ?? []) bytes += chunk.length;
    };
    await Promise.allSettled(answers.map((answer) => answer.status === 'fulfilled' && read(answer.value.body)));
    return bytes;
  }

  async #withAgent(work: (agent: ScriptedAgent) => Promise<void>): Promise<void> {
    const { agent } = await joinAgent(this.#target.url, newMachine());
    try {
      await work(agent);
    } finally {
      agent.socket.terminate();
    }
  }
}

/**
 * A server with a history of large tasks, whose uuid is returned, and servers with a large sysinfo.
 */
async function stock(target: Target): Promise<string> {
  const stocked = randomUUID();
  const database = openDatabase(target.databaseUrl);
  await database.query(
    `insert into cnapi_tasks (id, server_uuid, name, params, timeout_ms, idempotent, state, outcome, created_at, queued_at,
       ended_at, request_hash)
     select gen_random_uuid(), $1::uuid, 'nop', json_build_object('filler', repeat('x', $3::int)),
       1000, false, 'ended', 'complete', cnapi_now() - n * interval '1 s', cnapi_now(), cnapi_now(), ''
     from generate_series(1, $2::int) n`,
    [stocked, STOCK.tasks, STOCK.taskBytes],
  );
  await database.stop();
  const filler = Object.fromEntries(
    Array.from({ length: 50 }, (_, n) => [`k${n}`, 'x'.repeat(STOCK.sysinfoBytes / 50)]),
  );
  const uuids = [stocked, ...Array.from({ length: STOCK.servers }, () => randomUUID())];
  for (const uuid of uuids)
    await target.call('POST', `/servers/${uuid}/sysinfo`, { sysinfo: { UUID: uuid, Hostname: uuid, ...filler } });
  return stocked;
}

/** Everything it sent before has been read, or its time is over, or it was disconnected. */
async function heard(agent: ScriptedAgent, withinMs: number): Promise<void> {
  const sequence = 4711;
  agent.send({ type: 'heartbeat', sequence });
  const isHeard = () => agent.frames.some((frame) => frame.type === 'heartbeat' && frame.sequence === sequence);
  const end = performance.now() + withinMs;
  await until(() => isHeard() || agent.closed !== undefined || performance.now() > end, 'frames to be read');
}
