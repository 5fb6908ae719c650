/**
 * The floors with which latencies are compared, made of the same parts on an idle system in the
 * same run, one after the other. Each is measured back to back (`busy`) and after 8 ms of rest
 * (`rested`), because a processor that rested is slower. The two differ by a factor of two and
 * more, so a figure says which one it uses.
 */
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { Redis } from 'ioredis';
import pg from 'pg';
import { WebSocket } from 'ws';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { encodeHeartbeat } from '../../lib/protocol/link/codec.ts';
import { BenchCaller } from './caller.ts';
import type { BenchContext } from './figure.ts';
import type { Foundation } from './foundation.ts';
import { type Summary, summarize } from './statistics.ts';

export interface Floor {
  busy: Summary;
  rested: Summary;
}

export type FloorKey = 'N' | 'C' | 'H' | 'W' | 'F';
export type Floors = Record<FloorKey, Floor>;

export const floorKeys: readonly { key: FloorKey; says: string }[] = [
  { key: 'N', says: 'a restify no-op: GET of one byte, a process of its own' },
  { key: 'C', says: 'a commit: update of one row by pg' },
  { key: 'H', says: 'a bus hop: from publish to message' },
  { key: 'W', says: 'a WebSocket echo of a heartbeat, a process of its own' },
  { key: 'F', says: 'an fdatasync after an append of 200 bytes' },
];

/** One round trip; `stop` releases its resources. */
interface Part {
  once(): Promise<unknown>;
  stop(): unknown;
}

const REST_MS = 8;

export async function measureFloors(context: Omit<BenchContext, 'floors'>): Promise<Floors> {
  const samples = context.isQuick ? 100 : 1_000;
  const { foundation } = context;
  const measure = async (part: Promise<Part>) => measurePart(await part, samples);
  return {
    N: await measure(noop(context)),
    C: await measure(commit(foundation.databaseUrl)),
    H: await measure(foundation.redisUrl === undefined ? notice(foundation) : publish(foundation.redisUrl)),
    W: await measure(echo(context)),
    F: await measure(sync(foundation.directory)),
  };
}

async function measurePart(part: Part, samples: number): Promise<Floor> {
  try {
    // The first round warms up the code.
    await take(part, samples, 0);
    const busy = await take(part, samples, 0);
    return { busy, rested: await take(part, Math.ceil(samples / 3), REST_MS) };
  } finally {
    await part.stop();
  }
}

async function take(part: Part, samples: number, restMs: number): Promise<Summary> {
  const times: number[] = [];
  for (let each = 0; each < samples; each++) {
    if (restMs > 0) await clock.sleep(restMs);
    const startedAt = clock.now();
    await part.once();
    times.push(clock.now() - startedAt);
  }
  return summarize(times);
}

async function noop(context: Omit<BenchContext, 'floors'>): Promise<Part> {
  const helper = await context.startHelper({ name: 'floor-noop', file: 'tools/bench/programs/noop-server.ts' });
  const { url } = await helper.ask<{ url: string }>('listen');
  const caller = new BenchCaller();
  return {
    once: () => caller.get(url),
    stop: () => {
      caller.stop();
      return helper.stop();
    },
  };
}

async function commit(databaseUrl: string): Promise<Part> {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  await client.query('create table if not exists bench_floor (id int primary key, count bigint not null)');
  await client.query('insert into bench_floor values (1, 0) on conflict do nothing');
  const update = { name: 'floor', text: 'update bench_floor set count = count + 1 where id = $1', values: [1] };
  return {
    once: () => client.query(update),
    stop: async () => {
      await client.query('drop table bench_floor');
      await client.end();
    },
  };
}

async function publish(url: string): Promise<Part> {
  const [speaker, listener] = [new Redis(url), new Redis(url)];
  await listener.subscribe('bench-floor');
  let received: () => void = ignore;
  listener.on('message', () => received());
  return {
    once: () =>
      new Promise<void>((resolve) => {
        received = resolve;
        void speaker.publish('bench-floor', 'hop');
      }),
    stop: () => {
      speaker.disconnect();
      listener.disconnect();
    },
  };
}

async function notice({ databaseUrl }: Foundation): Promise<Part> {
  const [speaker, listener] = [0, 1].map(() => new pg.Client({ connectionString: databaseUrl })) as [
    pg.Client,
    pg.Client,
  ];
  await Promise.all([speaker.connect(), listener.connect()]);
  await listener.query('listen bench_floor');
  let received: () => void = ignore;
  listener.on('notification', () => received());
  // The notification may arrive before the answer to the statement that sent it, and a connection
  // that ends with a statement under way fails that statement.
  let sent: Promise<unknown> = Promise.resolve();
  return {
    once: () =>
      new Promise<void>((resolve) => {
        received = resolve;
        sent = speaker.query(`select pg_notify('bench_floor', 'hop')`);
      }),
    stop: async () => {
      await sent;
      await Promise.all([speaker.end(), listener.end()]);
    },
  };
}

async function echo(context: Omit<BenchContext, 'floors'>): Promise<Part> {
  const helper = await context.startHelper({ name: 'floor-echo', file: 'tools/bench/programs/bare-link.ts' });
  const { url } = await helper.ask<{ url: string }>('listen');
  const socket = new WebSocket(`${url.replace('http', 'ws')}/`, { perMessageDeflate: false });
  await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
  let received: () => void = ignore;
  socket.on('message', () => received());
  let sequence = 0;
  return {
    once: () =>
      new Promise<void>((resolve) => {
        received = resolve;
        socket.send(encodeHeartbeat(++sequence));
      }),
    stop: () => {
      socket.terminate();
      return helper.stop();
    },
  };
}

async function sync(directory: string): Promise<Part> {
  const file: FileHandle = await open(path.join(directory, 'floor'), 'a');
  const line = Buffer.alloc(200, 'x');
  return {
    async once() {
      await file.appendFile(line);
      await file.datasync();
    },
    stop: () => file.close(),
  };
}

function ignore(): void {}
