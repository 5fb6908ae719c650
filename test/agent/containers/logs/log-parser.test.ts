import fc from 'fast-check';
import t from 'tap';
import { type LogEntry, LogParser } from '../../../../lib/agent/containers/logs/log-parser.ts';

const TIME = '2026-11-27T09:44:28.360437505+01:00';
const at = Date.parse('2026-11-27T08:44:28.360Z');
const line = (tag: string, text: string | Buffer, stream = 'stdout') =>
  Buffer.concat([Buffer.from(`${TIME} ${stream} ${tag} `), Buffer.from(text), Buffer.from('\n')]);

function parse(...chunks: (Buffer | string)[]): LogEntry[] {
  const parser = new LogParser();
  return [...chunks.flatMap((chunk) => [...parser.push(Buffer.from(chunk))]), ...parser.end()];
}

const euro = Buffer.from('€');
const rows: Record<string, { bytes: Buffer; entries: LogEntry[] }> = {
  'a whole line': { bytes: line('F', 'a b '), entries: [{ at, stream: 'stdout', text: 'a b ', isPartial: false }] },
  'an empty line': { bytes: line('F', '', 'stderr'), entries: [{ at, stream: 'stderr', text: '', isPartial: false }] },
  'a part of a line and its rest': {
    bytes: Buffer.concat([line('P', 'a'), line('F', 'b')]),
    entries: [
      { at, stream: 'stdout', text: 'a', isPartial: true },
      { at, stream: 'stdout', text: 'b', isPartial: false },
    ],
  },
  'a character that is cut, with the other stream between': {
    bytes: Buffer.concat([line('P', euro.subarray(0, 2)), line('F', 'e', 'stderr'), line('F', euro.subarray(2))]),
    entries: [
      { at, stream: 'stderr', text: 'e', isPartial: false },
      { at, stream: 'stdout', text: '€', isPartial: false },
    ],
  },
  'what nobody wrote as a line of a log': {
    bytes: Buffer.concat([line('F', 'a'), Buffer.from('torn\n'), Buffer.from(`${TIME} stdout F last`)]),
    entries: [
      { at, stream: 'stdout', text: 'a', isPartial: false },
      { at, stream: 'stdout', text: 'torn', isPartial: false },
      { at, stream: 'stdout', text: 'last', isPartial: false },
    ],
  },
};

for (const [name, { bytes, entries }] of Object.entries(rows))
  t.test(`parses ${name}`, async (t) => t.strictSame(parse(bytes), entries));

t.test('a line of any length is given out in parts', async (t) => {
  const long = 'x'.repeat(300_000);
  const bytes = line('F', long, 'stderr');
  const chunks = Array.from({ length: 20 }, (_, index) => bytes.subarray(index * 16_384, (index + 1) * 16_384));
  const entries = parse(...chunks, line('F', 'next'));
  t.equal(entries.at(-1)?.text, 'next');
  const parts = entries.slice(0, -1);
  t.equal(parts.map(({ text }) => text).join(''), long);
  t.ok(parts.every(({ text, stream }) => text.length <= 80 * 1024 && stream === 'stderr'));
  t.same(
    parts.map(({ isPartial }) => isPartial),
    [...Array(parts.length - 1).fill(true), false],
  );
});

t.test('however the bytes arrive, the entries are the same', async (t) => {
  const piece = fc.record({
    tag: fc.constantFrom('F', 'P'),
    stream: fc.constantFrom('stdout', 'stderr'),
    text: fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\n', '')),
  });
  fc.assert(
    fc.property(fc.array(piece), fc.integer({ min: 1, max: 200 }), (pieces, step) => {
      const bytes = Buffer.concat(pieces.map(({ tag, text, stream }) => line(tag, text, stream)));
      const chunks = [];
      for (let from = 0; from < bytes.length; from += step) chunks.push(bytes.subarray(from, from + step));
      return JSON.stringify(parse(...chunks)) === JSON.stringify(parse(bytes));
    }),
  );
  t.pass();
});
