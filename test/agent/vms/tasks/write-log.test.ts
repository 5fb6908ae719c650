import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import t, { type Test } from 'tap';
import type { LogPosition } from '../../../../lib/agent/containers/logs/last-lines.ts';
import { LogFiles } from '../../../../lib/agent/containers/logs/log-files.ts';
import type { LogEntry } from '../../../../lib/agent/containers/logs/log-parser.ts';
import { readContainerLog } from '../../../../lib/agent/containers/logs/read-log.ts';
import { writeLog } from '../../../../lib/agent/vms/tasks/write-log.ts';
import { uuidOf } from '../../../support/vm-rig.ts';

const entry = (stream: LogEntry['stream'], text: string): LogEntry => ({ at: 0, stream, text, isPartial: false });

type Outputs = Parameters<typeof writeLog>[0];

/** Takes what is written to both outputs. */
const outputsTo = (take: (name: 'stdout' | 'stderr', text: string) => void): Outputs => {
  const output = (name: 'stdout' | 'stderr') =>
    new Writable({
      write: (bytes: Buffer, _encoding, done) => {
        take(name, bytes.toString());
        done();
      },
    });
  return { stdout: output('stdout'), stderr: output('stderr') };
};

/** What a caller gets who has received these bytes of each before. */
async function rest(received: { stdout: number; stderr: number }): Promise<{ stdout: string; stderr: string }> {
  const got = { stdout: '', stderr: '' };
  const vms = {
    async *readLog() {
      yield [entry('stdout', 'ab'), entry('stderr', 'xy'), entry('stdout', 'cd')];
      yield [entry('stdout', 'ef')];
    },
  };
  const log = { vms, uuid: uuidOf(1), signal: new AbortController().signal, received };
  await writeLog(
    outputsTo((name, text) => {
      got[name] += text;
    }),
    log,
    {},
  );
  return got;
}

t.test('a caller that continues gets what it has not received, of each output', async (t) => {
  t.same(await rest({ stdout: 0, stderr: 0 }), { stdout: 'ab\ncd\nef\n', stderr: 'xy\n' });
  t.same(await rest({ stdout: 1, stderr: 0 }), { stdout: 'b\ncd\nef\n', stderr: 'xy\n' });
  t.same(await rest({ stdout: 7, stderr: 3 }), { stdout: 'f\n', stderr: '' });
});

/** Files of a log, each with its lines of the program, as the monitor writes them. */
async function logOf(t: Test, files: Record<number, string[]>): Promise<LogFiles> {
  const directory = join(t.testdir({}), 'logs');
  await mkdir(directory);
  for (const [number, texts] of Object.entries(files)) {
    const lines = texts.map((text) => `2026-11-27T09:00:00.000000000+00:00 ${text}\n`);
    await writeFile(join(directory, number), lines.join(''));
  }
  return new LogFiles(directory, join(directory, 'ctl'));
}

/** What a caller that continues from a position gets, and is told, in order. */
async function continued(
  files: LogFiles,
  { position, received, removed }: Continued,
): Promise<(string | LogPosition)[]> {
  const told: (string | LogPosition)[] = [];
  const outputs = outputsTo((name, text) => void told.push(`${name} ${text}`));
  const vms = {
    async *readLog(_uuid: string, request: Parameters<typeof readContainerLog>[1]) {
      for await (const entries of readContainerLog({ files }, request)) {
        yield entries;
        if (removed !== undefined) await files.prune(removed);
      }
    },
  };
  const log = { vms, uuid: uuidOf(1), signal: new AbortController().signal, received };
  await writeLog(outputs, log, { from: { position }, reached: (place) => void told.push(place) });
  return told;
}

interface Continued {
  position: LogPosition;
  received: { stdout: number; stderr: number };
  /** So many files are left after the first entries. */
  removed?: number;
}

const NOTE = (files: number) => `stderr cnapi: ${files} files of the log were removed unread\n`;
const startOf = (number: number) => ({ number, offset: 0 });

t.test('a caller whose place rotation has removed gets all that is left, after the note and a place', async (t) => {
  const files = await logOf(t, { 7: ['stdout F ab', 'stderr F xy'] });
  const received = { stdout: 500, stderr: 500 };
  const told = await continued(files, { position: startOf(4), received });
  t.same(told.slice(0, 4), [NOTE(3), startOf(7), 'stdout ab\n', 'stderr xy\n']);
});

t.test('a caller whose place is in an earlier log of the VM gets all of the present one', async (t) => {
  const files = await logOf(t, { 1: ['stdout F ab'] });
  const told = await continued(files, { position: startOf(4), received: { stdout: 500, stderr: 0 } });
  t.same(told.slice(0, 3), [NOTE(1), startOf(1), 'stdout ab\n']);
});

t.test('bytes that were received from a file that is removed meanwhile are not left out elsewhere', async (t) => {
  const files = await logOf(t, { 1: ['stdout F ab', 'stdout F cd'], 2: ['stdout F ef'], 3: ['stdout F gh'] });
  // It has received the first file and two bytes of the second.
  const told = await continued(files, { position: startOf(1), received: { stdout: 8, stderr: 0 }, removed: 1 });
  t.same(
    told.filter((each) => typeof each === 'string'),
    [NOTE(1), 'stdout gh\n'],
  );
  const beforeNote = told.slice(0, told.indexOf(NOTE(1)));
  t.notMatch(JSON.stringify(beforeNote), /"number":3/, 'no place of the new file before the note');
  t.same(told[told.indexOf(NOTE(1)) + 1], startOf(3));
});
