/**
 * An agent can parse whatever an instance sends: no input of REST or the configuration leads to an
 * invalid frame.
 */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import t from 'tap';
import { parseConfig } from '../../../lib/control/config.ts';
import { requestIdOf } from '../../../lib/control/http/answer/request-id.ts';
import { MAX_BODY_BYTES, parseBody } from '../../../lib/control/http/request/body.ts';
import { mergeParams } from '../../../lib/control/http/request/params.ts';
import { beginDrain, stepDrain } from '../../../lib/control/roster/relocation/drain.ts';
import { contractList } from '../../../lib/protocol/api/contracts.ts';
import { MAX_FRAME_BYTES } from '../../../lib/protocol/limits.ts';
import { encodeFrame, parseInstanceFrame } from '../../../lib/protocol/link/codec.ts';
import type { InstanceFrame, TaskFrame, WelcomeFrame } from '../../../lib/protocol/link/frames.ts';

const DAY_MS = 86_400_000;
const ids = { id: randomUUID(), attempt: 1, epoch: 1 };
const task: TaskFrame = { type: 'task', ...ids, name: 'nop', params: {}, timeoutMs: 1 };

/** The parameters that a route makes of this body; undefined when it refuses it. */
function taken(name: string, body: Record<string, unknown>): Record<string, unknown> | undefined {
  const route = contractList.find((contract) => contract.name === name);
  const params = mergeParams({ path: { server_uuid: randomUUID() }, query: '', body });
  return route?.params.safeParse({ ...params }).data;
}

const candidates: Record<string, { values: unknown[]; frame: (value: never) => Partial<TaskFrame>; refused: number }> =
  {
    timeout_ms: {
      values: [1, DAY_MS, DAY_MS + 1, 24 * DAY_MS, 2 ** 31 - 1, 2 ** 53],
      frame: (timeoutMs) => ({ timeoutMs }),
      refused: 4,
    },
    task: { values: ['x', 'x'.repeat(100), 'ü'.repeat(100), 'x'.repeat(101)], frame: (name) => ({ name }), refused: 1 },
    params: {
      values: [{}, { a: [{ b: null }], '': '' }, JSON.parse('{"__proto__":{"a":1}}'), { constructor: 1 }],
      frame: (params) => ({ params }),
      refused: 0,
    },
  };

for (const [field, { values, frame, refused }] of Object.entries(candidates)) {
  t.test(`each ${field} that REST accepts fits a frame`, async (t) => {
    let count = 0;
    for (const value of values) {
      const found = taken('CreateTask', { task: 'nop', [field]: value });
      if (found === undefined) count += 1;
      else t.ok(parseInstanceFrame(encodeFrame({ ...task, ...frame(found[field] as never) })), JSON.stringify(value));
    }
    t.equal(count, refused);
  });
}

t.test('each request id that REST accepts fits a frame', async (t) => {
  const known = [1, 100, 101, 200, 201].flatMap((length) => {
    const request = { headers: { 'x-request-id': 'x'.repeat(length) } } as unknown as IncomingMessage;
    return requestIdOf(request) ?? [];
  });
  t.equal(known.length, 2);
  for (const requestId of known) t.ok(parseInstanceFrame(encodeFrame({ ...task, requestId })));
});

t.test('a body that grows most when it is encoded again fits a frame', async (t) => {
  const head = 'script=';
  const form = parseBody(head + '\u0001'.repeat(MAX_BODY_BYTES - head.length), 'application/x-www-form-urlencoded');
  // The number of values is nearly the maximum of a body.
  const numbers = Array.from({ length: 49_000 }, () => '9e20').join();
  const json = parseBody(`{"task":"nop","params":{"numbers":[${numbers}]}}`, 'application/json');
  const frames = [
    { ...task, params: { script: taken('CommandExecute', form)?.script } },
    { ...task, params: taken('CreateTask', json)?.params as TaskFrame['params'] },
  ];
  for (const frame of frames) {
    const bytes = Buffer.byteLength(encodeFrame(frame));
    t.ok(bytes > MAX_BODY_BYTES && bytes < MAX_FRAME_BYTES, `${bytes} bytes`);
  }
});

t.test('a welcome and a goaway with the largest configured values are valid frames', async (t) => {
  const most = {
    ...{ heartbeatMs: DAY_MS / 2, silenceMs: DAY_MS, serverSilenceMs: DAY_MS, reconnectMaxMs: DAY_MS },
    ...{ startGraceMs: DAY_MS, drainAgentsMs: DAY_MS, drainWaitsMs: DAY_MS },
  };
  const url = 'postgres://localhost/cnapi';
  const config = parseConfig({
    databaseUrl: url,
    advertiseHost: 'h'.repeat(255),
    cnapiUuid: randomUUID().toUpperCase(),
    ...most,
  });
  const { cnapiUuid: uuid = '', advertiseHost: host = '', heartbeatMs, serverSilenceMs, reconnectMaxMs } = config;
  t.throws(() => parseConfig({ databaseUrl: url, advertiseHost: 'h'.repeat(256) }));
  t.throws(() => parseConfig({ databaseUrl: url, host: 'h'.repeat(256) }));
  const addresses = [{ uuid, host, port: 65_535 }];
  const welcome: WelcomeFrame = {
    ...{ type: 'welcome', version: 1, capabilities: [], cnapiUuid: uuid, epoch: Number.MAX_SAFE_INTEGER },
    ...{ heartbeatMs, serverSilenceMs, reconnectMaxMs, maxFrameBytes: MAX_FRAME_BYTES, addresses, sendSysinfo: true },
  };
  t.ok(parseInstanceFrame(encodeFrame(welcome)));
  const announced = stepDrain(beginDrain(0).state, { type: 'announced', answer: 'draining' }, 0, config).state;
  const view = { others: 1, agents: 1, unanswered: 0 };
  const [effect] = stepDrain(announced, { type: 'tick', view }, 100, config).effects;
  const withinMs = effect?.do === 'ask-agents' ? effect.withinMs : undefined;
  const goaway: InstanceFrame = { type: 'goaway', reason: 'it leaves', addresses, ...(withinMs && { withinMs }) };
  t.match(parseInstanceFrame(encodeFrame(goaway)), { withinMs: 3_600_000 }, 'at most an hour');
});
