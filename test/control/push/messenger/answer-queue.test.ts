/** Answers that the database refuses, and those for whose messages there is no room. */
import t from 'tap';
import {
  AnswerQueue,
  MAX_ANSWERS_PER_SERVER,
  MAX_WAITING_CHARS,
} from '../../../../lib/control/push/messenger/answer-queue.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';
import { until } from '../../../support/until.ts';

t.test('an answer that the database refuses takes no room of its server, and the others are stored', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const stored: string[] = [];
  const queue = new AnswerQueue({
    clock: systemClock,
    log: recordingLogger(logged),
    database: { query: async () => ({ rows: [], rowCount: 0 }) },
    what: 'answers of a test',
    async work(answers: readonly { jobId: string; serverUuid: string }[]) {
      if (answers.some(({ serverUuid }) => serverUuid === 'refused')) throw new Error('such a value');
      stored.push(...answers.map(({ serverUuid }) => serverUuid));
      return [];
    },
  });
  for (let job = 0; job < MAX_ANSWERS_PER_SERVER; job += 1)
    t.ok(queue.add({ jobId: String(job), serverUuid: 'refused' }));
  t.notOk(queue.add({ jobId: 'another', serverUuid: 'refused' }));
  t.ok(queue.add({ jobId: '0', serverUuid: 'other' }));
  await until(() => logged.length === MAX_ANSWERS_PER_SERVER && stored.length === 1, 'all to be tried');
  t.same(stored, ['other']);
  t.ok(queue.add({ jobId: 'another', serverUuid: 'refused' }), 'there is room again');
  t.same(await queue.finish(), []);
});

t.test('an answer for whose message there is no room is kept without it', async (t) => {
  const stored: (string | undefined)[] = [];
  const held = Promise.withResolvers<void>();
  const queue = new AnswerQueue({
    clock: systemClock,
    log: recordingLogger([]),
    database: { query: async () => ({ rows: [], rowCount: 0 }) },
    what: 'answers of a test',
    async work(answers: readonly { jobId: string; serverUuid: string; message?: string | undefined }[]) {
      await held.promise;
      stored.push(...answers.map(({ message }) => message));
      return [];
    },
  });
  const long = 'x'.repeat(MAX_WAITING_CHARS / 2);
  const add = (serverUuid: string, message: string | undefined) => queue.add({ jobId: 'one', serverUuid, message });
  for (const [server, message] of [
    ['a', long],
    ['b', 'short'],
    ['c', long],
    ['d', undefined],
    ['b', long],
    ['b', 'again'],
  ] as const)
    t.ok(add(server, message), server);
  held.resolve();
  await until(() => stored.length === 4, 'all to be stored');
  t.strictSame(stored, [long, 'again', undefined, undefined]);
  stored.length = 0;
  add('c', long);
  add('e', long);
  await until(() => stored.length === 2, 'both to be stored');
  t.strictSame(stored, [long, long], 'there is room again');
  t.same(await queue.finish(), []);
});
