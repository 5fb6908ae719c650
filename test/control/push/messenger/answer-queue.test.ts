/** Answers that the database refuses. */
import t from 'tap';
import { AnswerQueue, MAX_OF_A_SERVER } from '../../../../lib/control/push/messenger/answer-queue.ts';
import { systemClock } from '../../../../lib/platform/clock.ts';
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
    async work(answers: readonly { job: string; serverUuid: string }[]) {
      if (answers.some(({ serverUuid }) => serverUuid === 'refused')) throw new Error('such a value');
      stored.push(...answers.map(({ serverUuid }) => serverUuid));
      return [];
    },
  });
  for (let job = 0; job < MAX_OF_A_SERVER; job += 1) t.ok(queue.add({ job: String(job), serverUuid: 'refused' }));
  t.notOk(queue.add({ job: 'another', serverUuid: 'refused' }));
  t.ok(queue.add({ job: '0', serverUuid: 'other' }));
  await until(() => logged.length === MAX_OF_A_SERVER && stored.length === 1, 'all to be tried');
  t.same(stored, ['other']);
  t.ok(queue.add({ job: 'another', serverUuid: 'refused' }), 'there is room again');
  t.same(await queue.finish(), []);
});
