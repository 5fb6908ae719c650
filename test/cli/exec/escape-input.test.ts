import t from 'tap';
import { readEscapes } from '../../../lib/cli/exec/escape-input.ts';

/** The input comes in the given pieces. */
function read(...pieces: string[]) {
  let place: Parameters<typeof readEscapes>[0] = 'line-start';
  let text = '';
  for (const piece of pieces) {
    const step = readEscapes(place, Buffer.from(piece));
    place = step.place;
    text += step.passed;
    if (step.isLeft) return { text, isLeft: true };
  }
  return { text, isLeft: false };
}

t.test('the escape of a terminal', (t) => {
  for (const [name, pieces, text, isLeft] of [
    ['text passes', ['ls -l\r'], 'ls -l\r', false],
    ['~. leaves at the beginning', ['~.'], '', true],
    ['and in two pieces', ['~', '.'], '', true],
    ['and after Enter', ['sleep 5\r', '~', '.', 'more'], 'sleep 5\r', true],
    ['and after a line feed', ['a\n~.'], 'a\n', true],
    ['not within a line', ['cd ~.'], 'cd ~.', false],
    ['~~ is one ~', ['~~.\r'], '~.\r', false],
    ['~ and another byte pass', ['~', '/bin\r'], '~/bin\r', false],
    ['~ and Enter pass, and the next line begins', ['~\r~.'], '~\r', true],
    ['a report of the cursor before it is not typed', ['ls\r', '\x1b[24;3R', '~.'], 'ls\r\x1b[24;3R', true],
    ['a key that moves the cursor is', ['\x1b[A~.'], '\x1b[A~.', false],
  ] as const)
    t.same(read(...pieces), { text, isLeft }, name);
  t.end();
});
