/** Frames of the agent link as texts: made of the schemas that both ends parse by, and then spoilt. */
import fc from 'fast-check';
import { z } from 'zod';
import { agentFrames, instanceFrames } from '../../lib/wire/frames.ts';
import { brokenJson, hostileJson } from './hostile.ts';
import { jsonOf, type Schema } from './schema.ts';

/** Stand for ids that are known only while it runs. */
export const FRAME_UUIDS = ['{server}', '{incarnation}', '{journal}', '{task}', '{stranger}'];

const OPTIONS = { hostileOneIn: 12, uuids: FRAME_UUIDS };

function frameTexts(frames: Record<string, z.ZodType>): fc.Arbitrary<string> {
  const own = Object.values(frames).map((schema) =>
    jsonOf(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as Schema, OPTIONS),
  );
  const strangers = fc.constantFrom(
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
  return fc.oneof(
    { weight: 14, arbitrary: fc.oneof(...own) },
    { weight: 3, arbitrary: fc.nat(1_000_000).map((sequence) => `{"type":"heartbeat","sequence":${sequence}}`) },
    { weight: 2, arbitrary: strangers },
    { weight: 1, arbitrary: hostileJson },
    { weight: 1, arbitrary: brokenJson },
  );
}

/** What an instance might be sent. */
export const agentFrameTexts = frameTexts(agentFrames);
/** What an agent might be sent. */
export const instanceFrameTexts = frameTexts(instanceFrames);
