import t from 'tap';
import { Semaphore } from '../../../lib/platform/limiting/semaphore.ts';

/** Work that ends when the test says so. */
function controlled() {
  const begun: string[] = [];
  const ends = new Map<string, (error?: Error) => void>();
  const work = (name: string) => () =>
    new Promise<string>((resolve, reject) => {
      begun.push(name);
      ends.set(name, (error) => (error === undefined ? resolve(name) : reject(error)));
    });
  return { begun, work, end: (name: string, error?: Error) => ends.get(name)?.(error) };
}

t.test('a limited number run at once, the others in order of arrival, also after a failure', async (t) => {
  const { begun, work, end } = controlled();
  const semaphore = new Semaphore(2);
  const all = ['a', 'b', 'c', 'd'].map((name) => semaphore.run(work(name)));
  await Promise.resolve();
  t.same(begun, ['a', 'b']);
  end('b', new Error('failed'));
  await t.rejects(all[1] as Promise<string>, { message: 'failed' });
  t.same(begun, ['a', 'b', 'c']);
  for (const name of ['a', 'c']) end(name);
  await Promise.all([all[0], all[2]]);
  end('d');
  t.equal(await all[3], 'd');
  const last = semaphore.run(work('e'));
  end('e');
  t.equal(await last, 'e', 'no permit was lost');
});

t.test('work that leaves before its turn never runs', async (t) => {
  const semaphore = new Semaphore(2);
  const ran: number[] = [];
  const finish: (() => void)[] = [];
  const places = [0, 1, 2, 3, 4].map((number) =>
    semaphore.enter(() => {
      ran.push(number);
      return new Promise((done) => finish.push(done));
    }),
  );
  t.same(ran, [0, 1]);
  places[2]?.leave();
  t.equal(semaphore.waiting, 2, 'the one that left is not counted');
  for (const done of finish.splice(0)) done();
  await new Promise((done) => setImmediate(done));
  t.same(ran, [0, 1, 3, 4]);
  places[0]?.leave();
  t.equal(semaphore.waiting, 0);
});
