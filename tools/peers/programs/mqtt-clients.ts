/**
 * Hand-written MQTT 3.1.1 clients, because those of a library have timers of their own that would
 * use up the core. Each has a will that says `gone`, a retained birth message that says `here`,
 * both at QoS 1, and sends a PINGREQ each second. The observer is mqtt.js.
 */
import net from 'node:net';
import { connectAsync } from 'mqtt';
import { systemRandom } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { type Events, serveClients } from './clients.ts';

const KEEPALIVE_SECONDS = 1;
const BEAT_MS = 1_000;
const PINGREQ = Buffer.from([0xc0, 0]);
const CONNACK = 0x20;
const PUBACK = 0x40;
const PINGRESP = 0xd0;

serveClients({
  connect,
  async observe(url, onGone) {
    const client = await connectAsync(url);
    client.on('message', (topic, payload) => {
      if (payload.toString() === 'gone') onGone(topic.slice('presence/'.length));
    });
    await client.subscribeAsync('presence/+', { qos: 1 });
  },
});

function connect(url: string, id: string, events: Events): Promise<void> {
  const { hostname, port } = new URL(url);
  const socket = net.connect({ host: hostname, port: Number(port), noDelay: true });
  return new Promise((resolve, reject) => {
    socket.once('connect', () => socket.write(connectPacket(id)));
    socket.on('error', reject);
    socket.once('close', () => {
      events.lost();
      reject(new Error('closed before it was present'));
    });
    socket.on('data', (chunk) => {
      for (const type of typesIn(chunk)) {
        if (type === CONNACK) socket.write(birthPacket(id));
        else if (type === PINGRESP) events.beat();
        else if (type === PUBACK) resolve(beat(socket));
      }
    });
  });
}

/** Each starts at a random time, so that they are spread over the second. */
function beat(socket: net.Socket): void {
  clock.after(systemRandom.fraction() * BEAT_MS, () => {
    socket.write(PINGREQ);
    const timer = clock.every(BEAT_MS, () => socket.write(PINGREQ));
    socket.once('close', () => timer.cancel());
  });
}

/** All packets received have at most four bytes, so that in practice loopback never splits one. */
function* typesIn(chunk: Buffer): Generator<number> {
  for (let at = 0; at < chunk.length; at += 2 + (chunk[at + 1] ?? 0)) yield (chunk[at] ?? 0) & 0xf0;
}

function connectPacket(id: string): Buffer {
  const [clean, will, willAtLeastOnce, willRetained] = [0x02, 0x04, 0x08, 0x20];
  const flags = clean | will | willAtLeastOnce | willRetained;
  const head = [text('MQTT'), Buffer.from([4, flags, 0, KEEPALIVE_SECONDS])];
  return packet(0x10, [...head, text(id), text(`presence/${id}`), text('gone')]);
}

function birthPacket(id: string): Buffer {
  const publishAtLeastOnceRetained = 0x33;
  return packet(publishAtLeastOnceRetained, [text(`presence/${id}`), Buffer.from([0, 1]), Buffer.from('here')]);
}

function packet(first: number, parts: readonly Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  if (body.length > 127) throw new Error('longer packets are not needed here');
  return Buffer.concat([Buffer.from([first, body.length]), body]);
}

function text(value: string): Buffer {
  const bytes = Buffer.from(value);
  return Buffer.concat([Buffer.from([bytes.length >> 8, bytes.length & 0xff]), bytes]);
}
