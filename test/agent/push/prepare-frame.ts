/** A push_prepare for tests. */
import { systemRandom as random } from '../../../lib/platform/random.ts';
import type { PushPrepareFrame } from '../../../lib/protocol/link/frames.ts';

export const prepareFrame = (fields: Partial<PushPrepareFrame> = {}): PushPrepareFrame => ({
  type: 'push_prepare',
  job: random.uuid(),
  command: 'echo hello',
  capture: true,
  readyMs: 60_000,
  ...fields,
});
