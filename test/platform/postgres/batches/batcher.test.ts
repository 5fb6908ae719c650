import t from 'tap';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { Batcher, LOCKED } from '../../../../lib/platform/postgres/batches/batcher.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

interface Statement {
  questions: readonly string[];
  answer(): void;
  fail(error: Error): void;
}

/**
 * A batcher whose statements the test answers itself, each question with itself in capitals; `gap`
 * lets the gap pass.
 */
function newBatcher({ maxBatch = 10, concurrency = 1 } = {}) {
  const clock = new ManualClock();
  const statements: Statement[] = [];
  const ask = (questions: readonly string[]) => {
    const { promise, resolve, reject } = Promise.withResolvers<Map<string, string | typeof LOCKED>>();
    const known = questions.filter((one) => one !== 'unknown');
    const answer = () => resolve(new Map(known.map((one) => [one, one === 'held' ? LOCKED : one.toUpperCase()])));
    statements.push({ questions, answer, fail: reject });
    return promise;
  };
  const batcher = new Batcher<string, string>({
    clock,
    log: silentLogger,
    database: { query: () => Promise.reject(new Error('the test answers by itself')) },
    what: 'questions of a test',
    keyOf: (one) => one,
    ask,
    maxBatch,
    concurrency,
  });
  const gap = async () => {
    await turn();
    await clock.advance(20);
  };
  return { statements, batcher, clock, gap };
}

const turn = () => new Promise<void>((resolve) => setImmediate(resolve));
const locked = () => new DatabaseBusyError('locked');
const lost = () => new DatabaseUnavailableError(new Error('Connection terminated'));

t.test('the first question is asked at once, and those that come within the gap together', async (t) => {
  const { batcher, statements, gap } = newBatcher({ concurrency: 2 });
  const answers = ['a', 'b', 'unknown'].map((one) => batcher.ask(one));
  t.same(statements.at(-1)?.questions, ['a']);
  statements[0]?.answer();
  t.equal(await answers[0], 'A');
  await turn();
  t.equal(statements.length, 1, 'even if it is answered before the gap is over');
  await gap();
  t.same(statements[1]?.questions, ['b', 'unknown']);
  statements[1]?.answer();
  t.same(await Promise.all(answers), ['A', 'B', undefined], 'each gets its own answer');
  await gap();
  void batcher.ask('c');
  t.same(statements[2]?.questions, ['c'], 'after a quiet moment a question is asked at once again');
});

t.test('the number of concurrent statements and their size are limited', async (t) => {
  const { batcher, statements, gap } = newBatcher({ maxBatch: 2, concurrency: 2 });
  const answers = ['a', 'b', 'c', 'd', 'e', 'f'].map((one) => batcher.ask(one));
  await gap();
  await gap();
  t.same(
    statements.map(({ questions }) => questions),
    [['a'], ['b', 'c']],
  );
  statements[1]?.answer();
  await gap();
  t.same(statements[2]?.questions, ['d', 'e']);
  for (let each = 0; each < 3; each++) {
    for (const statement of statements) statement.answer();
    await gap();
  }
  t.same(await Promise.all(answers), ['A', 'B', 'C', 'D', 'E', 'F']);
});

t.test('a key is in one statement at a time, and its questions keep their order', async (t) => {
  const { batcher, statements, gap } = newBatcher();
  const order: string[] = [];
  void batcher.ask('other');
  for (const which of ['first', 'second']) void batcher.ask('same').then(() => order.push(which));
  statements[0]?.answer();
  await gap();
  t.same(statements[1]?.questions, ['same']);
  statements[1]?.answer();
  await gap();
  t.same(order, ['first']);
  t.same(statements[2]?.questions, ['same']);
  statements[2]?.answer();
  await turn();
  t.same(order, ['first', 'second']);
});

t.test('no question fails because of another in the same statement', async (t) => {
  const { batcher, statements, clock, gap } = newBatcher();
  void batcher.ask('before');
  const good = batcher.ask('good');
  const bad = batcher.ask('bad');
  bad.catch(() => undefined);
  statements[0]?.answer();
  await gap();
  t.same(statements[1]?.questions, ['good', 'bad']);
  statements[1]?.fail(locked());
  await turn();
  t.same(statements[2]?.questions, ['good']);
  statements[2]?.answer();
  t.equal(await good, 'GOOD');
  await turn();
  t.same(statements[3]?.questions, ['bad']);
  const after = batcher.ask('after');
  await gap();
  t.same(statements[4]?.questions, ['after'], 'a new question does not wait for it');
  statements[4]?.answer();
  t.equal(await after, 'AFTER');
  for (let tries = 0; tries < 10; tries += 1) {
    for (const { questions, fail } of statements) if (questions[0] === 'bad') fail(locked());
    await turn();
    await clock.advance(1_000);
  }
  await t.rejects(bad, DatabaseBusyError, 'it was retried for a moment');
});

t.test('a question that is answered with LOCKED is retried for a moment, and then fails', async (t) => {
  const { batcher, statements, clock, gap } = newBatcher();
  const answers = [batcher.ask('before'), batcher.ask('held'), batcher.ask('good')];
  statements[0]?.answer();
  await gap();
  statements[1]?.answer();
  t.equal(await answers[2], 'GOOD');
  let isOver = false;
  answers[1]?.catch(() => {
    isOver = true;
  });
  for (let tries = 0; tries < 10 && !isOver; tries += 1) {
    await turn();
    await clock.advance(1_000);
    t.same(statements.at(-1)?.questions, ['held']);
    statements.at(-1)?.answer();
    await turn();
  }
  await t.rejects(answers[1] as Promise<unknown>, DatabaseBusyError);
});

t.test('a lost connection fails all questions of its statement at once', async (t) => {
  const { batcher, statements, gap } = newBatcher();
  void batcher.ask('before');
  const both = [batcher.ask('a'), batcher.ask('b')];
  for (const one of both) one.catch(() => undefined);
  statements[0]?.answer();
  await gap();
  statements[1]?.fail(lost());
  for (const one of both) await t.rejects(one, DatabaseUnavailableError);
  t.equal(statements.length, 2);
});
