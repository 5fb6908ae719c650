import t from 'tap';
import { countTick, endSilence, isOverdue } from '../../../../lib/control/roster/sessions/silence.ts';

const limits = { probeMs: 1250, silenceMs: 2000 };

t.test('a quiet session is probed once, then silent', async (t) => {
  const silence = { quietMs: 0, isProbed: false };
  const seen = Array.from({ length: 9 }, () => countTick(silence, 250, limits));
  t.same(seen, ['nothing', 'nothing', 'nothing', 'nothing', 'probe', 'nothing', 'nothing', 'nothing', 'silent']);
});

t.test('a session is not silent before silenceMs have passed since its last byte', async (t) => {
  const silence = { quietMs: 0, isProbed: false };
  const afterMs = (ticks: number) => (ticks - 1) * 250;
  const at = Array.from({ length: 12 }, (_, tick) => tick + 1).find(() => countTick(silence, 250, limits) === 'silent');
  t.equal(afterMs(at ?? 0), limits.silenceMs);
});

t.test('any byte restarts the count and puts off the next probe', async (t) => {
  const silence = { quietMs: 0, isProbed: false };
  for (let tick = 0; tick < 6; tick += 1) countTick(silence, 250, limits);
  endSilence(silence);
  const seen = Array.from({ length: 5 }, () => countTick(silence, 250, limits));
  t.same(seen, ['nothing', 'nothing', 'nothing', 'nothing', 'probe']);
});

t.test('a heartbeat that arrives just after a tick instead of just before it is not overdue', async (t) => {
  const silence = { quietMs: 0, isProbed: false };
  const seen = Array.from({ length: 6 }, () => {
    countTick(silence, 250, limits);
    return isOverdue(silence, 250, limits);
  });
  t.same(seen, [false, false, false, false, false, true], 'after six ticks at least 1,250 ms have passed');
});
