import t from 'tap';
import { beginWatch, checkSilence, isHeartbeatDue } from '../../../lib/agent/link/link-watch.ts';
import { DEFAULT_LINK_TIMES, MAX_FRAME_BYTES } from '../../../lib/protocol/limits.ts';

const welcome = {
  type: 'welcome' as const,
  version: 1,
  capabilities: [],
  cnapiUuid: '10000000-0000-4000-8000-000000000000',
  epoch: 1,
  ...DEFAULT_LINK_TIMES,
  maxFrameBytes: MAX_FRAME_BYTES,
  addresses: [],
  sendSysinfo: false,
};

const watched = () => {
  const socket = { bufferedBytes: 0, send: () => undefined, close: () => undefined, consumeValues: () => undefined };
  return beginWatch(1, { socket, welcome, now: 0 });
};

t.test('silence, its end and a dead session are each reported once', async (t) => {
  const session = watched();
  const heard = (ms: number, bytes = 0) => {
    session.hasReceived = bytes > 0;
    return checkSilence(session, ms);
  };
  t.same([heard(2750), heard(250), heard(250)], [undefined, 'silent', undefined]);
  t.same([heard(250, 1), heard(250, 1)], ['heard', undefined]);
  t.same([heard(3000), heard(2750), heard(250)], ['silent', undefined, 'dead']);
});

t.test('time that this process did not run does not count as silence', async (t) => {
  const session = watched();
  for (let tick = 0; tick < 100; tick++) t.equal(checkSilence(session, 0), undefined);
});

t.test('heartbeats keep their period, and missed ones are not sent after a pause', async (t) => {
  const session = watched();
  const due = [999, 1000, 1500, 2100, 3000, 9000, 9250, 9500, 10_400, 10_500].filter((now) =>
    isHeartbeatDue(session, now),
  );
  t.same(due, [1000, 2100, 3000, 9000, 9500, 10_500]);
});
