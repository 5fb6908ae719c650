import { randomUUID } from 'node:crypto';
import fc from 'fast-check';
import t from 'tap';
import { MAX_RESULT_VALUES, OTHER_AGENT_FRAME_LIMITS } from '../../../lib/protocol/limits.ts';
import {
  encodeFrame,
  encodeHeartbeat,
  FrameError,
  parseAgentFrame,
  parseInstanceFrame,
} from '../../../lib/protocol/link/codec.ts';
import { agentFrames, type HelloFrame } from '../../../lib/protocol/link/frames.ts';

const hello: HelloFrame = {
  type: 'hello',
  version: 1,
  capabilities: ['task:nop'],
  serverUuid: randomUUID(),
  incarnation: randomUUID(),
  conn: 1,
  journalId: randomUUID(),
  epoch: 0,
  bootId: 'b',
  agentVersion: '0.1.0',
  sysinfoDigest: 'd',
};

t.test('a frame is parsed as it was encoded', async (t) => {
  t.same(parseAgentFrame(encodeFrame(hello)), hello);
  t.same(parseAgentFrame(encodeHeartbeat(7)), { type: 'heartbeat', sequence: 7 });
  t.equal(encodeHeartbeat(7), encodeFrame({ type: 'heartbeat', sequence: 7 }));
  t.same(
    parseInstanceFrame('{"sequence":3,"type":"heartbeat"}'),
    { type: 'heartbeat', sequence: 3 },
    'with its keys in any order',
  );
});

t.test('unknown keys are dropped, so that a newer peer can send more', async (t) => {
  t.same(parseAgentFrame(JSON.stringify({ ...hello, later: true })), hello);
});

const bad: { name: string; text: string; code: FrameError['code']; message: RegExp }[] = [
  { name: 'no JSON', text: '{', code: 'json', message: /JSON/ },
  { name: 'not an object', text: '[1]', code: 'json', message: /object/ },
  { name: 'null', text: 'null', code: 'json', message: /object/ },
  { name: 'a missing type', text: '{}', code: 'type', message: /type/ },
  { name: 'a type of a later version', text: '{"type":"dance"}', code: 'type', message: /dance/ },
  {
    name: 'a type that is the name of a prototype property',
    text: '{"type":"constructor"}',
    code: 'type',
    message: /constructor/,
  },
  { name: 'a type of the other side', text: '{"type":"welcome"}', code: 'type', message: /welcome/ },
  { name: 'a missing field', text: '{"type":"task_end"}', code: 'fields', message: /task_end\.id/ },
  {
    name: 'a sequence that is not a number',
    text: '{"type":"heartbeat","sequence":"1"}',
    code: 'fields',
    message: /sequence/,
  },
  { name: 'a sequence below zero', text: '{"type":"heartbeat","sequence":-1}', code: 'fields', message: /sequence/ },
  {
    name: 'a sequence above the safe integers',
    text: '{"type":"heartbeat","sequence":99999999999999999}',
    code: 'fields',
    message: /sequence/,
  },
  {
    name: 'a uuid in upper case',
    text: JSON.stringify({ ...hello, serverUuid: hello.serverUuid.toUpperCase() }),
    code: 'fields',
    message: /serverUuid/,
  },
];
for (const { name, text, code, message } of bad) {
  t.test(`${name} is a frame error that names the place`, async (t) => {
    t.throws(() => parseAgentFrame(text), { name: 'FrameError', code, message });
  });
}

t.test('an end whose result is too large is accepted without the result', async (t) => {
  const id = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
  const many = { list: Array(MAX_RESULT_VALUES).fill(0) };
  const others = { list: Array(OTHER_AGENT_FRAME_LIMITS.values).fill(0) };
  const end = { type: 'task_end', id, attempt: 3, outcome: 'complete', result: many, reportedAt: 'now' };
  t.match(parseAgentFrame(JSON.stringify(end)), {
    ...{ id, attempt: 3, outcome: 'complete', error: undefined },
    result: {
      truncated: true,
      message: `the result was not kept: task_end frame holds more than ${MAX_RESULT_VALUES} values`,
    },
  });
  const failure = JSON.stringify({ ...end, outcome: 'failure', error: { code: 'Why', message: 'so' } });
  t.match(parseAgentFrame(failure), { id, outcome: 'failure', error: { code: 'ResultTooLarge' } });
  const deep = `{"type":"task_end","id":"${id}","attempt":3,"outcome":"complete","result":${'{"a":'.repeat(5_000)}`;
  t.match(
    parseAgentFrame(deep),
    { id, result: { truncated: true } },
    'also when it breaks off, because the rest is not read',
  );
  t.throws(() => parseAgentFrame(deep.replace(id, 'x'.repeat(36))), { code: 'fields' });
  t.throws(
    () => parseAgentFrame(JSON.stringify({ ...others, ...end })),
    { code: 'limit' },
    'with its keys in another order',
  );
});

t.test('an end with an invalid error is accepted as a failure that says so', async (t) => {
  const id = '4f7d3c52-3b5e-4a44-9f5d-2f5d3a7a6b11';
  const end = { type: 'task_end', id, attempt: 3, outcome: 'failure', reportedAt: 'now' };
  const errors: [name: string, error: unknown, place: RegExp][] = [
    ['no code', { code: '', message: 'so' }, /task_end\.error\.code/],
    ['a code of 5,000 characters', { code: 'x'.repeat(5_000), message: 'so' }, /task_end\.error\.code/],
    ['a number for a code', { code: 7, message: 'so' }, /task_end\.error\.code/],
    ['a message of 5,000 characters', { code: 'Why', message: 'x'.repeat(5_000) }, /task_end\.error\.message/],
    ['a text for an error', 'so', /task_end\.error/],
  ];
  for (const [name, error, message] of errors)
    t.match(
      parseAgentFrame(JSON.stringify({ ...end, error })),
      { type: 'task_end', id, attempt: 3, outcome: 'failure', error: { code: 'BadAgentAnswer', message } },
      name,
    );
  const complete = parseAgentFrame(JSON.stringify({ ...end, outcome: 'complete', result: 7 }));
  t.match(complete, { outcome: 'complete', result: { truncated: true, message: /task_end\.result/ } });
  t.throws(() => parseAgentFrame(JSON.stringify({ ...end, attempt: 0 })), { code: 'fields', message: /attempt/ });
});

t.test('values are consumed before they are parsed, and heartbeats cost none', async (t) => {
  const charged: number[] = [];
  const budget = { consumeValues: (values: number) => charged.push(values) };
  parseAgentFrame(encodeHeartbeat(7), budget);
  t.throws(() => parseAgentFrame('{"a":[1,2,3', budget), { code: 'json' });
  t.same(charged, [6]);
});

t.test('a frame is limited by its type before it is parsed, and by the type that it really has', async (t) => {
  const members = (count: number) => `{${Array.from({ length: count }, (_, at) => `"k${at}":0`).join(',')}}`;
  const charged: number[] = [];
  const budget = { consumeValues: (values: number) => charged.push(values) };
  const refused = (text: string) => {
    charged.length = 0;
    t.throws(() => parseAgentFrame(text, budget), { code: 'limit' }, text.slice(0, 60));
    return charged.length === 0;
  };
  const wide = members(60_000);
  t.ok(refused(`{"type":"task_end","id":"unknown","result":${wide}}`), 'an end is not parsed');
  t.ok(refused(`{"type":"hello","later":${wide}}`), 'nor a hello');
  t.ok(refused(`{"type":"from-a-later-version","later":${wide}}`), 'nor a frame of an unknown type');
  t.ok(refused(`{ "type":"status","status":${wide}}`), 'nor one that does not begin with its type');
  t.notOk(refused(`{"type":"status","a":${members(30_000)},"type":"sysinfo","sysinfo":{}}`), 'a second type is found');
  t.ok(parseAgentFrame(`{"type":"status","status":${wide}}`));
});

t.test('the members of an object are not visited', async (t) => {
  let visited = 0;
  const visit = () => {
    visited += 1;
    return [];
  };
  const handler = { ownKeys: visit, getOwnPropertyDescriptor: () => void visit() };
  for (const [name, key] of [
    ['task_end', 'result'],
    ['sysinfo', 'sysinfo'],
    ['status', 'status'],
  ] as const) {
    const value = new Proxy({}, handler);
    const head = { id: hello.serverUuid, attempt: 1, outcome: 'complete', reportedAt: '', digest: 'd' };
    t.equal(agentFrames[name].safeParse({ type: name, ...head, [key]: value }).success, true);
    t.equal(agentFrames[name].safeParse({ type: name, ...head, [key]: [] }).success, false);
  }
  t.equal(visited, 0);
});

t.test('random text throws nothing but a frame error', async (t) => {
  const texts = fc.oneof(
    fc.string(),
    fc.json(),
    fc.json().map((json) => `{"type":"hello","version":${json}}`),
  );
  fc.assert(
    fc.property(texts, (text) => {
      try {
        parseAgentFrame(text);
      } catch (error) {
        if (!(error instanceof FrameError)) throw error;
      }
    }),
  );
  t.pass();
});
