import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { RotatingLog } from '../../../tools/start/rotating-log.ts';

function logFile(t: { teardown(work: () => void): void }): string {
  const folder = mkdtempSync(path.join(os.tmpdir(), 'cnapi-log-'));
  t.teardown(() => rmSync(folder, { recursive: true, force: true }));
  return path.join(folder, 'x.log');
}

const read = (file: string) => readFileSync(file, 'utf8');

t.test('a full log becomes .1, .1 becomes .2, and the oldest is deleted', async (t) => {
  const file = logFile(t);
  const log = new RotatingLog(file, { maxBytes: 10, keep: 2 });
  for (const line of ['aaaaaaa\n', 'bbbbbbb\n', 'ccccccc\n', 'ddddddd\n']) log.write(Buffer.from(line));
  log.close();
  t.strictSame(readdirSync(path.dirname(file)).sort(), ['x.log', 'x.log.1', 'x.log.2']);
  t.strictSame([read(file), read(`${file}.1`), read(`${file}.2`)], ['ddddddd\n', 'ccccccc\n', 'bbbbbbb\n']);
});

t.test('a chunk is split between lines, so that each file is readable by itself', async (t) => {
  const file = logFile(t);
  const log = new RotatingLog(file, { maxBytes: 12 });
  log.write(Buffer.from('one\n'));
  log.write(Buffer.from('two\nthree\nfour\n'));
  log.close();
  t.strictSame([read(`${file}.1`), read(file)], ['one\ntwo\n', 'three\nfour\n']);
});

t.test('a later start appends to the same file', async (t) => {
  const file = logFile(t);
  for (const line of ['first\n', 'second\n', 'third\n']) {
    const log = new RotatingLog(file, { maxBytes: 15 });
    log.write(Buffer.from(line));
    log.close();
  }
  t.strictSame([read(`${file}.1`), read(file)], ['first\nsecond\n', 'third\n']);
});

t.test('no file exceeds the limit, however the chunks arrive', async (t) => {
  const file = logFile(t);
  const log = new RotatingLog(file, { maxBytes: 1000, keep: 3 });
  for (let index = 0; index < 500; index++) log.write(Buffer.from(`${'x'.repeat(index % 90)}\n`));
  log.close();
  for (const name of readdirSync(path.dirname(file))) {
    t.ok(statSync(path.join(path.dirname(file), name)).size <= 1000, name);
  }
});

t.test('a log that cannot be written drops its input and counts it', async (t) => {
  const log = new RotatingLog('/proc/no/such/folder/x.log');
  log.write(Buffer.from('lost\n'));
  t.equal(log.dropped, 1);
  log.close();
});
