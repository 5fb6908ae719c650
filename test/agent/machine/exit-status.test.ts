import t from 'tap';
import { signalOfStatus, statusOfSignal } from '../../../lib/agent/machine/exit-status.ts';

t.test('a signal with several names has its usual name', async (t) => {
  t.same(
    [6, 9, 15, 29].map((signal) => signalOfStatus(128 + signal)),
    ['SIGABRT', 'SIGKILL', 'SIGTERM', 'SIGIO'],
  );
  t.same([statusOfSignal('SIGABRT'), signalOfStatus(1)], [134, undefined]);
});
