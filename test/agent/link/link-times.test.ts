import t from 'tap';
import { limitsOf, reconnectMaxMsOf } from '../../../lib/agent/link/link-times.ts';
import { DEFAULT_LINK_TIMES, MAX_FRAME_BYTES } from '../../../lib/protocol/limits.ts';
import type { WelcomeFrame } from '../../../lib/protocol/link/frames.ts';

const welcome = (fields: Partial<WelcomeFrame>): WelcomeFrame => ({
  type: 'welcome',
  version: 1,
  capabilities: [],
  cnapiUuid: '10000000-0000-4000-8000-000000000000',
  epoch: 1,
  ...DEFAULT_LINK_TIMES,
  maxFrameBytes: MAX_FRAME_BYTES,
  addresses: [],
  sendSysinfo: false,
  ...fields,
});

t.test('the periods in a welcome are clamped to what an agent can work with', async (t) => {
  const rows: [string, Partial<WelcomeFrame>, object][] = [
    ['the defaults are unchanged', {}, { heartbeatMs: 1000, serverSilenceMs: 3000 }],
    ['lower bounds', { heartbeatMs: 1, serverSilenceMs: 1 }, { heartbeatMs: 100, serverSilenceMs: 500 }],
    ['silence is at least two heartbeats', { heartbeatMs: 5000 }, { heartbeatMs: 5000, serverSilenceMs: 10_000 }],
    [
      'upper bounds',
      { heartbeatMs: 86_400_000, serverSilenceMs: 86_400_000 },
      { heartbeatMs: 60_000, serverSilenceMs: 600_000 },
    ],
    ['frames have at most the agreed size', { maxFrameBytes: 2 ** 40 }, { maxFrameBytes: MAX_FRAME_BYTES }],
  ];
  for (const [name, fields, limits] of rows) t.match(limitsOf(welcome(fields)), limits, name);
});

t.test('the longest reconnect pause is between one second and one minute', async (t) => {
  t.equal(reconnectMaxMsOf(welcome({ reconnectMaxMs: 1 })), 1000);
  t.equal(reconnectMaxMsOf(welcome({})), 8000);
  t.equal(reconnectMaxMsOf(welcome({ reconnectMaxMs: 86_400_000 })), 60_000);
});
