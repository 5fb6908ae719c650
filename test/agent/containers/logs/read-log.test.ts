import { appendFile, mkdir, readdir, readlink, rename, rm, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { LogFiles } from '../../../../lib/agent/containers/logs/log-files.ts';
import type { LogEntry } from '../../../../lib/agent/containers/logs/log-parser.ts';
import { LogWatch } from '../../../../lib/agent/containers/logs/log-watch.ts';
import { type ReadOptions, readContainerLog } from '../../../../lib/agent/containers/logs/read-log.ts';
import { systemClock } from '../../../../lib/platform/time/clock.ts';
import { HANG_MS } from '../../../support/patience.ts';
import { until } from '../../../support/until.ts';

const START = Date.parse('2026-11-27T09:00:00Z');
/** Line n was written n seconds after the start. */
const line = (n: number, { tag = 'F', text = `line ${n}` } = {}) =>
  `${new Date(START + n * 1000).toISOString().replace('Z', '000000+00:00')} stdout ${tag} ${text}\n`;
const lines = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, at) => from + at);
const textOf = (from: number, to: number) =>
  lines(from, to)
    .map((n) => line(n))
    .join('');

/** Writes as the monitor does. */
class Writer {
  readonly files: LogFiles;
  readonly watch: LogWatch;

  private constructor(directory: string) {
    this.files = new LogFiles(directory, join(directory, 'ctl'));
    // Only the watch can notice a change while the test waits.
    this.watch = new LogWatch({ clock: systemClock, files: this.files, slowPollMs: 2 * HANG_MS });
  }

  static async open(t: Test): Promise<Writer> {
    const directory = join(t.testdir({}), 'logs');
    await mkdir(directory);
    return new Writer(directory);
  }

  write(text: string): Promise<void> {
    return appendFile(join(this.files.directory, 'current'), text);
  }

  async replace(): Promise<void> {
    const draft = join(this.files.directory, 'current.tmp');
    await writeFile(draft, '');
    await rename(draft, join(this.files.directory, 'current'));
  }

  /** Several files, each linked as by the agent. */
  async fill(...texts: string[]): Promise<void> {
    for (const [index, text] of texts.entries()) {
      if (index > 0) await this.replace();
      await this.write(text);
      await this.files.adopt();
    }
  }

  async read(options: ReadOptions = {}): Promise<string[]> {
    return (await Array.fromAsync(readContainerLog({ files: this.files }, options))).flat().map(({ text }) => text);
  }

  /** What has been read while following; `ended` ends it. */
  follow(options: ReadOptions = {}): { seen: string[]; ended: AbortController; done: Promise<void> } {
    const ended = new AbortController();
    const seen: string[] = [];
    const entries = readContainerLog(
      { files: this.files, follow: { watch: this.watch, ended: ended.signal } },
      options,
    );
    const done = collect(entries, seen);
    return { seen, ended, done };
  }
}

async function collect(entries: AsyncGenerator<LogEntry[]>, seen: string[]): Promise<void> {
  for await (const some of entries) for (const { text } of some) seen.push(text);
}

const named = (from: number, to: number) => lines(from, to).map((n) => `line ${n}`);

t.test('reads all files in their order, and gives the current one a number', async (t) => {
  const log = await Writer.open(t);
  t.same(await log.read(), []);
  await log.fill(textOf(1, 3), textOf(4, 4), textOf(5, 6));
  await log.replace();
  await log.write(textOf(7, 8));
  t.same(await log.read(), named(1, 8));
  t.same(await log.files.numbers(), [1, 2, 3, 4]);
  await log.files.prune(2);
  t.same(await log.read(), named(5, 8));
});

t.test('a log that does not exist is empty', async (t) => {
  const log = await Writer.open(t);
  await rm(log.files.directory, { recursive: true });
  t.same(await log.read(), []);
  t.same(await log.read({ from: { lines: 3 } }), []);
});

t.test('reads the last lines, over files and blocks', async (t) => {
  const log = await Writer.open(t);
  const wide = 'y'.repeat(200_000);
  await log.fill(textOf(1, 2_500), textOf(2_501, 2_503), '', line(2_504, { text: wide }), textOf(2_505, 5_000));
  const all = await log.read();
  const whole = [...named(1, 2_503), wide, ...named(2_505, 5_000)];
  t.equal(all.join(''), whole.join(''));
  for (const count of [0, 1, 2, 1_300, 2_496, 2_497, 2_498, 2_500, 2_501, 3_700, 4_999, 5_000, 6_000]) {
    const read = await log.read({ from: { lines: count } });
    t.equal(read.join(), (count === 0 ? [] : all.slice(-read.length)).join(), `${count} are the end`);
    t.equal(read.join(''), count === 0 ? '' : whole.slice(-count).join(''), `${count} are exactly so many`);
  }
});

t.test('a line in parts counts once, and one that has not ended comes in addition', async (t) => {
  const log = await Writer.open(t);
  const parted = line(1, { tag: 'P', text: 'a' }) + line(1, { tag: 'P', text: 'b' }) + line(1, { text: 'c' });
  await log.fill(textOf(0, 0), `${parted}${line(2)}${line(3, { tag: 'P', text: 'begun' })}`);
  t.same(await log.read({ from: { lines: 1 } }), ['line 2', 'begun']);
  t.same(await log.read({ from: { lines: 2 } }), ['a', 'b', 'c', 'line 2', 'begun']);
  t.same(await log.read({ from: { lines: 3 } }), ['line 0', 'a', 'b', 'c', 'line 2', 'begun']);
});

t.test('a line in parts counts once wherever it lies in a block', async (t) => {
  const log = await Writer.open(t);
  const parted = (n: number) => line(n, { tag: 'P', text: 'a'.repeat(n % 90) }) + line(n, { text: `${n}` });
  await log.fill(lines(1, 20_000).map(parted).join(''));
  const wanted = lines(1, 20_000).map((n) => 'a'.repeat(n % 90) + n);
  for (const count of [700, 9_999, 19_999])
    t.ok((await log.read({ from: { lines: count } })).join('') === wanted.slice(-count).join(''), `the last ${count}`);
});

t.test('reads what is at the end within a number of bytes, over files and in whole entries', async (t) => {
  const log = await Writer.open(t);
  const part = line(5, { tag: 'P', text: 'drawn' });
  await log.fill(textOf(1, 3), textOf(4, 4), part.repeat(3));
  const [whole, one] = [line(1).length, part.length];
  const read = (bytes: number) => log.read({ from: { bytes } });
  t.same(await read(0), []);
  t.same(await read(one - 1), []);
  t.same(await read(one), ['drawn']);
  t.same(await read(3 * one - 1), ['drawn', 'drawn']);
  t.same(await read(3 * one), ['drawn', 'drawn', 'drawn']);
  t.same(await read(3 * one + 2 * whole), ['line 3', 'line 4', 'drawn', 'drawn', 'drawn']);
  t.equal((await read(1_000_000)).length, 7);
});

t.test('continues at each place that it has told, and after what rotation has removed', async (t) => {
  const log = await Writer.open(t);
  const cut = Buffer.from(line(3, { tag: 'P', text: 'é' })).subarray(0, -2);
  await log.fill(textOf(1, 2), `${cut}\n${line(3, { text: '' })}${line(4)}`);
  const all = await log.read();
  const places: { number: number; offset: number }[] = [];
  await log.read({ reached: (place) => void places.push(place) });
  t.same(places[0], { number: 1, offset: 0 });
  t.same(await log.read({ from: { position: { number: 1, offset: line(1).length } } }), all.slice(1));
  const last = places.at(-1) ?? { number: 0, offset: 0 };
  t.same(await log.read({ from: { position: last } }), []);
  await log.write(line(5));
  t.same(await log.read({ from: { position: last } }), ['line 5']);
  await log.files.prune(1);
  let skipped = 0;
  const left = await log.read({
    from: { position: { number: 1, offset: 0 } },
    skipped: (files) => {
      skipped += files;
    },
  });
  t.same([left.at(-1), skipped], ['line 5', 1]);
});

t.test('reads from a time, without the files before', async (t) => {
  const log = await Writer.open(t);
  await log.fill('not read\n', textOf(10, 19), textOf(20, 29));
  await utimes(log.files.pathOf(1), new Date(START), new Date(START + 9_000));
  await utimes(log.files.pathOf(2), new Date(START), new Date(START + 19_000));
  t.same(await log.read({ from: { since: START + 18_000 } }), named(18, 29));
  t.same(await log.read({ from: { since: START + 40_000 } }), []);
});

t.test('follows over new files until the end, and reads what was written before it', async (t) => {
  const log = await Writer.open(t);
  await log.write(textOf(1, 2));
  const { seen, ended, done } = log.follow();
  await until(() => seen.length === 2);
  await log.write(textOf(3, 3));
  await until(() => seen.length === 3);
  await log.replace();
  await log.write(textOf(4, 5));
  await until(() => seen.length === 5);
  await log.write(textOf(6, 6));
  await log.files.adopt();
  await log.replace();
  await log.write(textOf(7, 7));
  ended.abort();
  await done;
  t.same(seen, named(1, 7));
  t.notOk(log.watch.isUsed);
});

t.test('follows a log that begins later, from its end', async (t) => {
  const log = await Writer.open(t);
  const late = log.follow();
  await log.write(textOf(1, 2));
  await until(() => late.seen.length === 2);
  const next = log.follow({ from: { lines: 1 } });
  await until(() => next.seen.length === 1);
  await log.write(textOf(3, 3));
  await until(() => next.seen.length === 2 && late.seen.length === 3);
  t.same(next.seen, named(2, 3));
  late.ended.abort();
  next.ended.abort();
  await Promise.all([late.done, next.done]);
});

t.test('ends immediately when it is aborted', async (t) => {
  const log = await Writer.open(t);
  await log.write(textOf(1, 2));
  const abort = new AbortController();
  const { seen, done } = log.follow({ signal: abort.signal });
  await until(() => seen.length === 2);
  abort.abort();
  await done;
  t.notOk(log.watch.isUsed);
  t.same(await log.read({ signal: abort.signal }), []);
});

t.test('reads no faster than its entries are taken, and says what rotation has removed', async (t) => {
  const log = await Writer.open(t);
  await log.fill(textOf(1, 20_000), textOf(20_001, 20_002), textOf(20_003, 20_004), textOf(20_005, 20_006));
  let skipped = 0;
  const entries = readContainerLog({ files: log.files }, { skipped: (files) => (skipped += files) });
  const begun: LogEntry[] = (await entries.next()).value ?? [];
  t.equal(begun[0]?.text, 'line 1');
  t.ok(begun.length < 2_000);
  await log.files.prune(1);
  const rest: string[] = [];
  await collect(entries, rest);
  t.same(rest, [...named(begun.length + 1, 20_000), ...named(20_005, 20_006)], 'an open file is read to its end');
  t.equal(skipped, 2);
});

t.test('a caller that takes no more closes the file', async (t) => {
  const log = await Writer.open(t);
  await log.write(textOf(1, 100));
  const follow = { watch: log.watch, ended: new AbortController().signal };
  for await (const entries of readContainerLog({ files: log.files, follow }, {})) if (entries.length > 0) break;
  t.notOk(log.watch.isUsed);
  const open = await readdir('/proc/self/fd');
  const paths = await Promise.all(open.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
  t.same(
    paths.filter((path) => path.startsWith(log.files.directory)),
    [],
  );
});
