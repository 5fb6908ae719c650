/** Work for many items, some of it ahead of its use. */
import t from 'tap';
import { readAhead } from '../../../lib/cli/invocation/read-ahead.ts';

const ITEMS = Array.from({ length: 20 }, (_, place) => place);

t.test('results come in order, whichever is ready first, and only so many are under way', async (t) => {
  const waiting: (() => void)[] = [];
  let running = 0;
  let most = 0;
  const work = async (item: number) => {
    running += 1;
    most = Math.max(most, running);
    await new Promise<void>((resolve) => waiting.push(resolve));
    running -= 1;
    return item;
  };
  const found: number[] = [];
  const all = (async () => {
    for await (const item of readAhead(ITEMS, { maxAhead: 4, work, isOverload: () => false })) found.push(item);
  })();
  while (found.length < ITEMS.length) {
    // The last one that began ends first.
    for (const end of waiting.splice(0).reverse()) end();
    await new Promise((resolve) => setImmediate(resolve));
  }
  await all;
  t.same(found, ITEMS);
  t.equal(most, 4);
});

t.test('the first failure ends it, and a later one disturbs nobody', async (t) => {
  const found: number[] = [];
  const work = async (item: number) => {
    if (item > 4) throw new Error(`item ${item}`);
    return item;
  };
  await t.rejects(
    (async () => {
      for await (const item of readAhead(ITEMS, { maxAhead: 4, work, isOverload: () => false })) found.push(item);
    })(),
    { message: 'item 5' },
  );
  t.same(found, [0, 1, 2, 3, 4]);
});

t.test('what fails because too much is under way is repeated alone, and the order stays', async (t) => {
  let running = 0;
  let most = 0;
  const work = async (item: number) => {
    running += 1;
    most = Math.max(most, running);
    const isTooMuch = item >= 5 && running > 2;
    await new Promise((resolve) => setImmediate(resolve));
    running -= 1;
    if (isTooMuch) throw new Error('overload');
    if (item === 5) most = 0;
    return item;
  };
  const found: number[] = [];
  const isOverload = ({ message }: Error) => message === 'overload';
  for await (const item of readAhead(ITEMS, { maxAhead: 4, work, isOverload: (error) => isOverload(error as Error) }))
    found.push(item);
  t.same(found, ITEMS);
  t.equal(most, 1, 'one at a time from then on');
});

t.test('an overload that is repeated alone and fails again ends it', async (t) => {
  const asked: number[] = [];
  const work = async (item: number) => {
    asked.push(item);
    throw new Error(`item ${item}`);
  };
  const all = readAhead(ITEMS, { maxAhead: 4, work, isOverload: () => true });
  await t.rejects(all.next(), { message: 'item 0' });
  t.same(asked, [0, 1, 2, 3, 0]);
});
