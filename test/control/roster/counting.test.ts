import t from 'tap';
import { LeaseObserver } from '../../../lib/control/roster/membership/lease.ts';
import { Orphans } from '../../../lib/control/roster/sessions/orphans.ts';
import { countTick, endSilence, isOverdue } from '../../../lib/control/roster/sessions/silence.ts';
import { matchLists } from '../../support/match-lists.ts';

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

t.test('a beat lapses only at a read, after it has not moved for a lease of healthy ticks', async (t) => {
  const observer = new LeaseObserver(1000);
  t.same(observer.readBeats([{ run: 'a', beat: 1 }]), [], 'the first sight proves nothing');
  observer.countHealthyTick(999);
  t.same(observer.readBeats([{ run: 'a', beat: 1 }]), []);
  t.equal(observer.ageMs('a'), 999);
  observer.countHealthyTick(1);
  t.same(observer.readBeats([{ run: 'a', beat: 1 }]), [{ run: 'a', beat: 1 }]);
});

t.test('a moved beat, a failed read and a run that came back each restart the lease', async (t) => {
  const observer = new LeaseObserver(1000);
  observer.readBeats([{ run: 'a', beat: 1 }]);
  observer.countHealthyTick(5000);
  t.same(observer.readBeats([{ run: 'a', beat: 2 }]), [], 'moved');
  observer.countHealthyTick(5000);
  observer.readFailed();
  t.same(observer.readBeats([{ run: 'a', beat: 2 }]), [], 'failed read');
  observer.countHealthyTick(5000);
  observer.readBeats([]);
  t.equal(observer.ageMs('a'), undefined, 'it is no longer watched');
  t.same(observer.readBeats([{ run: 'a', beat: 2 }]), [], 'it counts as new');
});

t.test('a row is due once it was ownerless under one run and epoch for the whole grace', async (t) => {
  const row = { serverUuid: 's', run: 'r', epoch: 3 };
  const orphans = new Orphans(1000);
  t.same(orphans.readRows([row]), []);
  orphans.countHealthyTick(1000);
  matchLists(t, orphans.readRows([row]), [row]);
  t.same(orphans.readRows([{ ...row, epoch: 4 }]), [], 'another epoch restarts the grace');
  orphans.countHealthyTick(1000);
  orphans.readFailed();
  t.same(orphans.readRows([{ ...row, epoch: 4 }]), [], 'a failed read restarts the grace');
  orphans.countHealthyTick(1000);
  t.same(orphans.readRows([]), []);
  t.same(orphans.readRows([{ ...row, epoch: 4 }]), [], 'an owner in between restarts the grace');
});
