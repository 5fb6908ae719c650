import t from 'tap';
import { observeLeases } from '../../../../lib/control/roster/membership/lease.ts';

t.test('a beat lapses only at a read, after it has not moved for a lease of healthy ticks', async (t) => {
  const observer = observeLeases(1000);
  t.same(observer.read([{ run: 'a', beat: 1 }]), [], 'the first sight proves nothing');
  observer.countHealthyTick(999);
  t.same(observer.read([{ run: 'a', beat: 1 }]), []);
  t.equal(observer.unchangedMs('a'), 999);
  observer.countHealthyTick(1);
  t.same(observer.read([{ run: 'a', beat: 1 }]), [{ run: 'a', beat: 1 }]);
});

t.test('a moved beat, a failed read and a run that came back each restart the lease', async (t) => {
  const observer = observeLeases(1000);
  observer.read([{ run: 'a', beat: 1 }]);
  observer.countHealthyTick(5000);
  t.same(observer.read([{ run: 'a', beat: 2 }]), [], 'moved');
  observer.countHealthyTick(5000);
  observer.readFailed();
  t.same(observer.read([{ run: 'a', beat: 2 }]), [], 'failed read');
  observer.countHealthyTick(5000);
  observer.read([]);
  t.equal(observer.unchangedMs('a'), undefined, 'it is no longer watched');
  t.same(observer.read([{ run: 'a', beat: 2 }]), [], 'it counts as new');
});
