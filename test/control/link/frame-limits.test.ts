import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import t from 'tap';
import { AGENT_FRAME_LIMITS, MAX_FRAME_DEPTH } from '../../../lib/protocol/limits.ts';
import { freshZone } from '../../support/apps.ts';
import { joinAgent, newMachine, ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

t.test('frames that no database can store are refused with an error and harm no session', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine);
  const deep = `${'{"a":'.repeat(100)}1${'}'.repeat(100)}`;
  const deeper = `${'{"a":'.repeat(20_000)}1${'}'.repeat(20_000)}`;
  const ofSize = (values: number, bytes: number) => `{"vms":[${'[],'.repeat(values - 10)}"${'x'.repeat(bytes)}"]}`;
  const { status, sysinfo } = AGENT_FRAME_LIMITS as Record<'status' | 'sysinfo', { bytes: number; values: number }>;
  const texts: [name: string, text: string, error: object][] = [
    [
      'a sysinfo nested so deep that it cannot be written',
      `{"type":"sysinfo","digest":"x","sysinfo":${deep}}`,
      { code: 'not-kept' },
    ],
    ['a status nested just as deep', `{"type":"status","status":{"vms":${deep}}}`, { code: 'not-kept' }],
    ['a status with a NUL', '{"type":"status","status":{"vms":{"a":{"alias":"\\u0000"}}}}', { code: 'not-kept' }],
    [
      'a vote with a NUL',
      `{"type":"push_vote","job":"${randomUUID()}","ready":false,"message":"\\u0000"}`,
      { code: 'not-kept' },
    ],
    [
      'a vote with half of a surrogate pair',
      `{"type":"push_vote","job":"${randomUUID()}","ready":false,"reason":"\\ud800"}`,
      { code: 'not-kept' },
    ],
    [
      'a status nested deeper than any frame',
      `{"type":"status","status":{"vms":${deeper}}}`,
      { code: 'too-large', message: `status frame is nested more than ${MAX_FRAME_DEPTH} levels deep` },
    ],
    [
      'a status of too many values',
      `{"type":"status","status":${ofSize(status.values + 20, 0)}}`,
      { code: 'too-large', message: `status frame holds more than ${status.values} values` },
    ],
    [
      'a status of too many bytes',
      `{"type":"status","status":${ofSize(20, status.bytes)}}`,
      { code: 'too-large', message: `status frame is larger than ${status.bytes} bytes` },
    ],
    [
      'a sysinfo of too many values',
      `{"type":"sysinfo","digest":"x","sysinfo":${ofSize(sysinfo.values + 20, 0)}}`,
      { code: 'too-large', message: `sysinfo frame holds more than ${sysinfo.values} values` },
    ],
    [
      'a sysinfo of too many bytes',
      `{"type":"sysinfo","digest":"x","sysinfo":${ofSize(20, sysinfo.bytes)}}`,
      { code: 'too-large', message: `sysinfo frame is larger than ${sysinfo.bytes} bytes` },
    ],
    [
      'eight megabytes of empty arrays',
      `{"type":"status","status":{"vms":[${'[],'.repeat(2_700_000)}0]}}`,
      { code: 'too-large', message: `status frame holds more than ${status.values} values` },
    ],
  ];
  for (const [index, [name, text, error]] of texts.entries()) {
    agent.socket.send(text);
    const errors = () => agent.frames.filter(({ type }) => type === 'error');
    await until(() => errors().length === index + 1, name);
    t.match(errors().at(-1), error, name);
  }
  const metrics = await (await fetch(`${app.url}/metrics`)).text();
  t.match(metrics, /^cnapi_link_frames_refused_total 6$/m, 'they are counted');
  agent.send({ type: 'heartbeat', sequence: 4711 });
  await until(() => agent.frames.some((frame) => frame.type === 'heartbeat' && frame.sequence === 4711));
  t.equal(agent.closed, undefined, 'the session stays');
  agent.close();
});

/** Costs 85 MiB, far more than a burst. */
const PONGS = Buffer.concat(Array(10_900).fill(Buffer.from([0x8a, 0x80, 0, 0, 0, 0])));
const flood = ({ socket }: ScriptedAgent) => (socket as unknown as { _socket: Socket })._socket.write(PONGS);
const metric = async (url: string, name: string) => {
  const text = await (await fetch(`${url}/metrics`)).text();
  return Number(new RegExp(`^cnapi_${name} (.*)$`, 'm').exec(text)?.[1]);
};

t.test('pongs before the greeting end the connection and cost the other agents nothing', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = Array.from({ length: 8 }, () => new ScriptedAgent(app.url, newMachine()));
  for (const agent of agents) flood(await agent.open());
  for (const agent of agents) await agent.end();
  t.equal(await metric(app.url, 'link_cost_factor'), 1);
});

t.test('an agent that exceeded its burst may not connect again until its quota allows it', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const machine = newMachine();
  const { agent } = await joinAgent(app.url, machine);
  flood(agent);
  await until(async () => (await metric(app.url, 'link_reads_paused_total')) === 1, 'the instance to pause it');
  agent.socket.terminate();
  const again = new ScriptedAgent(app.url, machine);
  await again.end();
  t.equal(again.refusedWith, 429);
  t.ok((again.retryAfterSeconds ?? 0) >= 1);
  const { agent: other } = await joinAgent(app.url, newMachine());
  t.equal(other.closed, undefined, 'another agent may');
  other.close();
});
