/**
 * A stream between a caller and an agent: what passes through an instance in a second, and how long
 * one byte takes there and back, compared with a relay that does nothing else. Both ends are the
 * same in both cases, and take turns.
 */
import { WebSocket } from 'ws';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { CHANNELS, MAX_STREAM_MESSAGE, streamMessage } from '../../../lib/protocol/streams/stream.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { median, summarize } from '../statistics.ts';

export const stream: Figure = {
  name: 'stream',
  says: 'bytes per second and the round trip of a byte through a stream, compared with a bare relay',
  seconds: 30,
  measure,
};

interface Ends {
  caller: WebSocket;
  agent: WebSocket;
}

const PIECE = streamMessage(CHANNELS.stdout, Buffer.alloc(MAX_STREAM_MESSAGE - 1, 'x'));
const KEY = streamMessage(CHANNELS.stdin, 'x');
/** Unsent bytes at the sender. */
const AHEAD_BYTES = 1024 * 1024;

async function measure({ isQuick, startZone, startHelper }: BenchContext): Promise<readonly Result[]> {
  const [rounds, megabytes, trips] = isQuick ? [1, 10, 50] : [5, 400, 2_000];
  const zone = await startZone();
  await using relay = await startHelper({ name: 'bare-relay', file: 'tools/bench/programs/bare-relay.ts' });
  const own = await throughInstance(zone.instances[0]?.url ?? '');
  const bare = await throughRelay(await relay.ask<string>('url'));
  const rates: number[] = [];
  const floors: number[] = [];
  const times: number[] = [];
  const floorTimes: number[] = [];
  for (let round = 0; round < rounds; round += 1) {
    rates.push(await rateOf(own, megabytes));
    floors.push(await rateOf(bare, megabytes));
    times.push(...(await tripsOf(own, trips)));
    floorTimes.push(...(await tripsOf(bare, trips)));
  }
  for (const { caller, agent } of [own, bare]) for (const socket of [caller, agent]) socket.terminate();
  const [trip, floorTrip] = [summarize(times), summarize(floorTimes)];
  return [
    {
      what: 'a stream through an instance',
      value: median(rates),
      unit: 'MB/s',
      floor: { of: 'a bare relay', value: median(floors) },
      limit: { on: 'ratio', atLeast: 0.7 },
      notes: [`messages of 64 KiB, from the agent to the caller; median of ${rounds} × ${megabytes} MB`],
    },
    {
      what: 'one byte to the agent and back, beyond a bare relay',
      value: trip.median - floorTrip.median,
      unit: 'ms',
      limit: { on: 'value', atMost: 2 },
      notes: [
        `p50 ${trip.median.toFixed(3)} ms, p99 ${trip.p99.toFixed(3)} ms; bare relay ${floorTrip.median.toFixed(3)} and ` +
          `${floorTrip.p99.toFixed(3)} ms; ${trip.samples} bytes, one after the other`,
      ],
    },
  ];
}

async function throughInstance(url: string): Promise<Ends> {
  const server = systemRandom.uuid();
  const caller = new WebSocket(`${wsOf(url)}/servers/${server}/stream`, { perMessageDeflate: false });
  const [greeting] = await new Promise<[Buffer]>((resolve, reject) => {
    caller.once('message', (data) => resolve([data as Buffer]));
    caller.once('error', reject);
  });
  const { stream: name } = JSON.parse(greeting.toString()) as { stream: string };
  return { caller, agent: await opened(`${wsOf(url)}/agents/${server}/streams/${name}`) };
}

async function throughRelay(url: string): Promise<Ends> {
  return { caller: await opened(`${wsOf(url)}/pair`), agent: await opened(`${wsOf(url)}/pair`) };
}

/** Megabytes per second. */
async function rateOf({ caller, agent }: Ends, megabytes: number): Promise<number> {
  const wanted = megabytes * 1_000_000;
  const began = clock.now();
  const arrived = new Promise<void>((resolve) => {
    let bytes = 0;
    caller.on('message', function count(data: Buffer) {
      bytes += data.length;
      if (bytes < wanted) return;
      caller.off('message', count);
      resolve();
    });
  });
  for (let sent = 0; sent < wanted; sent += PIECE.length) {
    agent.send(PIECE, { binary: true });
    while (agent.bufferedAmount > AHEAD_BYTES) await new Promise<void>((resolve) => void clock.afterPoll(resolve));
  }
  await arrived;
  return megabytes / ((clock.now() - began) / 1000);
}

/** Milliseconds of each. */
async function tripsOf({ caller, agent }: Ends, trips: number): Promise<number[]> {
  const echo = (data: WebSocket.RawData) => agent.send(data as Buffer, { binary: true });
  agent.on('message', echo);
  const times: number[] = [];
  for (let trip = 0; trip < trips; trip += 1) {
    const began = clock.now();
    const back = new Promise((resolve) => caller.once('message', resolve));
    caller.send(KEY, { binary: true });
    await back;
    times.push(clock.now() - began);
  }
  agent.off('message', echo);
  return times;
}

async function opened(url: string): Promise<WebSocket> {
  const socket = new WebSocket(url, { perMessageDeflate: false });
  await new Promise((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
  });
  return socket;
}

const wsOf = (url: string): string => url.replace('http', 'ws');
