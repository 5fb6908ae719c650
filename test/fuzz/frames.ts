/**
 * Frames of the agent link as texts: generated from the schemas that both ends parse with, and then
 * corrupted.
 */
import fc from 'fast-check';
import { z } from 'zod';
import { agentFrames, instanceFrames } from '../../lib/protocol/link/frames.ts';
import { brokenJson, deepJson, hostileJson, hostileName, objectText } from './hostile.ts';
import { jsonOf, type Schema } from './schema.ts';

/** Placeholders for ids that are known only at run time. */
export const FRAME_UUIDS = ['{server}', '{incarnation}', '{journal}', '{task}', '{unknown}'];

const OPTIONS = { hostileOneIn: 12, uuids: FRAME_UUIDS };

/** Frames that end in an object of any shape, which is stored, passed on, or given to a task. */
const OPEN_FRAMES = [
  '{"type":"sysinfo","digest":"x","sysinfo":',
  '{"type":"status","status":',
  '{"type":"task_end","id":"{task}","attempt":1,"outcome":"complete","reportedAt":"","result":',
  '{"type":"task","id":"{unknown}","attempt":1,"epoch":1,"name":"nop","timeoutMs":1000,"params":',
];

function frameTexts(frames: Record<string, z.ZodType>): fc.Arbitrary<string> {
  const own = Object.values(frames).map((schema) =>
    jsonOf(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as Schema, OPTIONS),
  );
  const unknownFrames = fc.constantFrom(
    '{"type":"from-the-future"}',
    '{"type":"__proto__"}',
    '{"type":"constructor"}',
    '{"type":"heartbeat","sequence":-1}',
    '{"type":"heartbeat","sequence":9007199254740993}',
    '{"type":"heartbeat","sequence":1e400}',
    '{"type":"heartbeat","sequence":00}',
    '{"type":"heartbeat","sequence":}',
    '{"type":["hello"]}',
    '{"type":"hello","type":"heartbeat","sequence":1}',
    '{"__proto__":{"type":"heartbeat"},"sequence":1}',
    '\ufeff{"type":"heartbeat","sequence":1}',
    ' {"type":"heartbeat","sequence":1} ',
    `{"type":"${'x'.repeat(10_000)}"}`,
  );
  const objects = fc.oneof(
    fc.array(fc.tuple(hostileName, hostileJson), { maxLength: 4 }).map(objectText),
    fc.tuple(hostileName, deepJson).map((member) => objectText([member])),
  );
  return fc.oneof(
    { weight: 14, arbitrary: fc.oneof(...own) },
    {
      weight: 2,
      arbitrary: fc.tuple(fc.constantFrom(...OPEN_FRAMES), objects).map(([head, object]) => `${head}${object}}`),
    },
    { weight: 3, arbitrary: fc.nat(1_000_000).map((sequence) => `{"type":"heartbeat","sequence":${sequence}}`) },
    { weight: 2, arbitrary: unknownFrames },
    { weight: 1, arbitrary: hostileJson },
    { weight: 1, arbitrary: brokenJson },
  );
}

/** Frames that an instance might receive. */
export const agentFrameTexts = frameTexts(agentFrames);
/** Frames that an agent might receive. */
export const instanceFrameTexts = frameTexts(instanceFrames);
