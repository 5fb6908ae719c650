/** The question that Ctrl-C asks while a push job is followed. */
import t from 'tap';
import { askYesOrNo } from '../../../lib/cli/push-jobs/follow-job.ts';

t.test('only yes or no is an answer to whether a job is aborted', async (t) => {
  const rows: [answers: string[], isYes: boolean][] = [
    [['y'], true],
    [[' YES '], true],
    [['n'], false],
    [['No'], false],
    [[''], false],
    [['abort', 'yy', 'y'], true],
    [['cnapi job list', ''], false],
  ];
  for (const [answers, isYes] of rows) {
    const asked: string[] = [];
    const ask = async (text: string) => answers[asked.push(text) - 1] ?? '';
    t.equal(await askYesOrNo(ask), isYes, answers.join());
    t.equal(asked.length, answers.length);
    t.same(
      asked.map((text) => text.startsWith('answer y or n: ')),
      answers.map((_, at) => at > 0),
    );
  }
});
