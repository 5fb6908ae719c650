import t from 'tap';
import type { LogEntry } from '../../../../lib/agent/containers/logs/log-parser.ts';
import { splitIntoPieces } from '../../../../lib/agent/containers/logs/log-pieces.ts';

const entry = (stream: LogEntry['stream'], text: string, isPartial = false): LogEntry => ({
  at: 0,
  stream,
  text,
  isPartial,
});
const texts = (entries: LogEntry[]) => splitIntoPieces(entries).map(({ stream, bytes }) => [stream, String(bytes)]);

t.test('the pieces of a log', (t) => {
  t.same(texts([]), []);
  t.same(
    texts([entry('stdout', 'a'), entry('stdout', ''), entry('stderr', 'b', true), entry('stdout', 'c')]),
    [
      ['stdout', 'a\n\n'],
      ['stderr', 'b'],
      ['stdout', 'c\n'],
    ],
    'lines keep their order, and what continues has no newline',
  );
  const empty = Array.from({ length: 10_000 }, () => entry('stdout', ''));
  t.same(texts(empty), [['stdout', '\n'.repeat(10_000)]], 'many lines are one piece');
  const mixed = Array.from({ length: 10_000 }, (_, index) => entry(index % 2 === 0 ? 'stdout' : 'stderr', `${index}`));
  const pieces = splitIntoPieces(mixed);
  t.ok(pieces.length <= 64, 'streams that alternate are a bounded number of pieces');
  for (const stream of ['stdout', 'stderr'] as const) {
    const own = pieces.filter((piece) => piece.stream === stream).map(({ bytes }) => String(bytes));
    const wanted = mixed.filter((one) => one.stream === stream).map(({ text }) => `${text}\n`);
    t.equal(own.join(''), wanted.join(''), `all of ${stream}, in order`);
  }
  t.end();
});
