/** How `cnapi exec` combines the live output of a command with the output in its result. */
import t from 'tap';
import { KeptOutput, OutputStreamer } from '../../../lib/agent/output/output.ts';
import { type OutputPiece, OutputSequence } from '../../../lib/cli/output/output-sequence.ts';
import { systemClock } from '../../../lib/platform/time/clock.ts';

const out = (offset: number, text: string) => ({ stream: 'stdout', offset, text });
const textOf = (pieces: readonly OutputPiece[]) => pieces.map((piece) => ('text' in piece ? piece.text : '')).join('');
const cutsOf = (pieces: readonly OutputPiece[]) => pieces.flatMap((piece) => ('cut' in piece ? [piece.cut] : []));

function played(live: readonly object[], result: unknown): OutputPiece[] {
  const sequence = new OutputSequence();
  const pieces = live.flatMap((data) => sequence.write(data as Record<string, unknown>, 1));
  return [...pieces, ...sequence.end(result)];
}

t.test('live output and result combine into the whole output, and missing bytes are counted', async (t) => {
  const latin = Buffer.from('gr\xfc\xdfe, ', 'latin1').toString();
  const rows: [string, object[], unknown, string, (number | null)[]][] = [
    ['all live', [out(0, 'one '), out(4, 'two')], { stdout: 'one two' }, 'one two', []],
    ['nothing live', [], { stdout: 'one two' }, 'one two', []],
    [
      'the middle only in the result',
      [out(0, 'one '), out(8, 'three')],
      { stdout: 'one two three' },
      'one two three',
      [],
    ],
    ['the beginning only in the result', [out(4, 'two')], { stdout: 'one two' }, 'one two', []],
    ['stored twice', [out(0, 'äö'), out(0, 'äö'), out(2, 'ö!'), out(5, '?')], { stdout: 'äö!?' }, 'äö!?', []],
    ['twice, then a gap', [out(0, 'one'), out(0, 'one'), out(6, '3')], { stdout: 'one...3' }, 'one...3', []],
    ['a gap, and no result', [out(0, 'one'), out(6, '3'), out(9, '4')], undefined, 'one34', [3, 2]],
    ['a gap, and a result without it', [out(0, 'one'), out(6, '3')], { truncated: true }, 'one3', [3]],
    ['not UTF-8', [out(0, latin), out(7, latin)], { stdout: latin + latin }, latin + latin, []],
    [
      'not UTF-8, with a gap',
      [out(0, latin), out(21, 'end')],
      { stdout: `${latin.repeat(3)}end` },
      `${latin.repeat(3)}end`,
      [],
    ],
    ['half a character before a gap', [out(0, 'a\ufffd'), out(9, 'b')], { stdout: 'a€€--b' }, 'a€€--b', []],
    ['half a character at the end', [out(0, 'a\ufffd')], { stdout: 'a\ufffd' }, 'a\ufffd', []],
    ['half a character, and no result', [out(0, 'a\ufffd')], undefined, 'a\ufffd', []],
    ['another text in the result', [out(0, 'one')], { stdout: 'two' }, 'one', [null]],
    ['a result with its middle cut', [], { stdout: 'head\n[… 9 bytes cut …]\ntail' }, 'headtail', [9]],
    [
      'all live, and a result with its middle cut',
      [out(0, 'head123456789tail')],
      { stdout: 'head\n[… 9 bytes cut …]\ntail' },
      'head123456789tail',
      [],
    ],
    [
      'the end not live, and a result with its middle cut',
      [out(0, 'head123')],
      { stdout: 'head\n[… 9 bytes cut …]\ntail' },
      'head123tail',
      [6],
    ],
    [
      'gaps on both sides of the cut',
      [out(0, 'he'), out(5, '23')],
      { stdout: 'head\n[… 9 bytes cut …]\ntail' },
      'head23tail',
      [1, 6],
    ],
    [
      'a cut mark that the command itself wrote',
      [],
      { stdout: 'head of it\n[… 9 bytes cut …]\n' },
      'head of it\n[… 9 bytes cut …]\n',
      [],
    ],
  ];
  const marks = '\n[… 1 bytes cut …]\n'.repeat(45_000);
  rows.push(['nothing but cut marks that the command wrote', [], { stdout: marks }, marks, []]);
  for (const [what, live, result, text, cuts] of rows) {
    const pieces = played(live, result);
    t.equal(textOf(pieces), text, what);
    t.strictSame(cutsOf(pieces), cuts, `${what}: missing bytes`);
  }
  t.strictSame(played([out(0, 'one'), out(6, '3')], { stdout: 'one...3' }).at(-1), out(3, '...3'), 'with its offset');
  const shown = new OutputSequence();
  shown.write(out(0, 'one'), 1);
  shown.write(out(6, '3'), 1);
  t.strictSame(cutsOf(shown.goOn('stdout')), [3]);
  shown.write(out(9, '5'), 1);
  t.strictSame(shown.end({ stdout: 'one...3..5!' }), [out(7, '..5!')], 'output after a gap that was already shown');
  const again = new OutputSequence();
  again.write(out(0, 'first'), 1);
  t.equal(textOf(again.write(out(0, 'second'), 2)), 'second', 'a new attempt starts again at 0');
});

t.test('a gap that was reported is filled from the result', async (t) => {
  const rows: [string, { stdout?: string }, string[], boolean][] = [
    ['the result has it', { stdout: 'one..3.five' }, ['..', '.'], true],
    ['the result has only its tail', { stdout: '\n[… 5 bytes cut …]\n3.five' }, ['.'], false],
    ['the result was cut within a gap', { stdout: 'one.\n[… 1 bytes cut …]\n3.five' }, ['.', '.'], false],
    ['the result is not UTF-8', { stdout: 'one.\ufffd3.five' }, [], false],
    ['there is no output in the result', {}, [], false],
  ];
  for (const [what, result, texts, isWhole] of rows) {
    const sequence = new OutputSequence();
    for (const data of [out(0, 'one'), out(5, '3'), out(7, 'five')]) {
      sequence.write(data, 1);
      sequence.goOn('stdout');
    }
    sequence.end(result);
    const filled = sequence.fillGaps(result);
    t.strictSame([filled.pieces.map((piece) => 'text' in piece && piece.text), filled.isWhole], [texts, isWhole], what);
  }
  const again = new OutputSequence();
  again.write(out(3, 'first'), 1);
  again.goOn('stdout');
  again.write(out(0, 'second'), 2);
  again.end({ stdout: 'second' });
  t.strictSame(again.fillGaps({ stdout: 'second' }), { pieces: [], isWhole: false }, 'not of an earlier attempt');
});

t.test('held-back output is bounded, and released when the result cannot fill the gap', async (t) => {
  const sequence = new OutputSequence();
  const piece = 'x'.repeat(16_000);
  const pieces: OutputPiece[] = [];
  for (let at = 5; at < 3_000_000; at += piece.length) pieces.push(...sequence.write(out(at, piece), 1));
  t.strictSame(cutsOf(pieces), [5]);
  t.ok(textOf(pieces).length > 2_900_000, 'live output continues');
  sequence.write(out(3_200_000, 'end'), 1);
  t.ok(sequence.isHolding('stdout'));
  t.strictSame(sequence.goOn('stdout').at(-1), out(3_200_000, 'end'));
});

t.test('with random losses and repetitions, the pieces make up the output that the agent kept', async (t) => {
  const random = numbers(7);
  for (let run = 0; run < 60; run++) {
    const isText = run % 2 === 0;
    const { written, kept, live } = agentsAccount(random, isText);
    const said = live.flatMap((data) => (random() < 0.1 ? [] : random() < 0.1 ? [data, data] : [data]));
    const pieces = played(said, { stdout: kept });
    const name = `run ${run}, ${written.length} bytes`;
    if (kept.includes('bytes cut')) checkPlaces(t, pieces, { written, isText, name });
    else t.ok(textOf(pieces) === kept || cutsOf(pieces).includes(null), name);
    if (isText && !kept.includes('bytes cut')) t.strictSame(cutsOf(pieces), [], `${name}: nothing is missing`);
  }
});

/** Checks that each piece is at its offset and that the gaps between them are reported. */
function checkPlaces(
  t: Tap,
  pieces: readonly OutputPiece[],
  about: { written: Buffer; isText: boolean; name: string },
) {
  if (!about.isText) return;
  let at = 0;
  for (const piece of pieces) {
    if (piece.offset !== at) return t.fail(`${about.name}: a piece at ${piece.offset} follows ${at}`);
    const bytes = 'text' in piece ? Buffer.from(piece.text) : undefined;
    if (bytes !== undefined && !bytes.equals(about.written.subarray(at, at + bytes.length)))
      return t.fail(`${about.name}: wrong text at ${at}`);
    at += bytes?.length ?? ('cut' in piece ? (piece.cut ?? 0) : 0);
  }
  return t.equal(at, about.written.length, about.name);
}
type Tap = Pick<typeof t, 'fail' | 'equal'>;

const WORDS = ['one line\n', 'grüße ', '€', '😀', '日本\n', '\0'];
const WRONG = [Buffer.from([0xff]), Buffer.from([0xe2, 0x82]), Buffer.from([0xf0, 0x9f, 0x98]), Buffer.from([0x80])];

/** A command's output through the agent's own code: what it sends live and what it keeps. */
function agentsAccount(random: () => number, isText: boolean) {
  const due: (() => void)[] = [];
  const after = (_: number, fire: () => void) => {
    due.push(fire);
    return { cancel: () => void due.splice(0) };
  };
  const clock = { ...systemClock, after };
  const said: object[] = [];
  const live = new OutputStreamer(clock, (stream, offset, text) => said.push({ stream, offset, text }));
  const kept = new KeptOutput();
  const chunks: Buffer[] = [];
  const size = random() < 0.3 ? 2_500_000 : 300_000;
  for (let bytes = 0; bytes < size * random() || chunks.length === 0; ) {
    const word = pick(WORDS, random).repeat(Math.ceil(8_000 * random() ** 4));
    const chunk = !isText && random() < 0.3 ? pick(WRONG, random) : Buffer.from(word);
    chunks.push(chunk);
    bytes += chunk.length;
  }
  const written = Buffer.concat(chunks);
  for (let at = 0; at < written.length; ) {
    // Chunks may also begin inside a character.
    const chunk = written.subarray(at, at + 1 + Math.floor(65_536 * random()));
    at += chunk.length;
    kept.add(chunk);
    live.add('stdout', chunk);
    if (random() < 0.5) for (const fire of due.splice(0)) fire();
  }
  live.end();
  return { written, kept: kept.text(), live: said };
}

function pick<Value>(values: readonly Value[], random: () => number): Value {
  return values[Math.floor(values.length * random())] as Value;
}

/** The same numbers each time. */
function numbers(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
