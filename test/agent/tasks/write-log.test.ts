import { Writable } from 'node:stream';
import t from 'tap';
import type { LogEntry } from '../../../lib/agent/containers/logs/log-parser.ts';
import { writeLog } from '../../../lib/agent/tasks/write-log.ts';
import { uuidOf } from '../../support/vm-rig.ts';

const entry = (stream: LogEntry['stream'], text: string): LogEntry => ({ at: 0, stream, text, isPartial: false });

/** What a caller gets who has received these bytes of each before. */
async function rest(received: { stdout: number; stderr: number }): Promise<{ stdout: string; stderr: string }> {
  const got = { stdout: '', stderr: '' };
  const output = (name: keyof typeof got) =>
    new Writable({
      write: (bytes: Buffer, _encoding, done) => {
        got[name] += bytes.toString();
        done();
      },
    });
  const vms = {
    async *readLog() {
      yield [entry('stdout', 'ab'), entry('stderr', 'xy'), entry('stdout', 'cd')];
      yield [entry('stdout', 'ef')];
    },
  };
  const log = { vms, uuid: uuidOf(1), signal: new AbortController().signal, received };
  await writeLog({ stdout: output('stdout'), stderr: output('stderr') }, log, {});
  return got;
}

t.test('a caller that continues gets what it has not received, of each output', async (t) => {
  t.same(await rest({ stdout: 0, stderr: 0 }), { stdout: 'ab\ncd\nef\n', stderr: 'xy\n' });
  t.same(await rest({ stdout: 1, stderr: 0 }), { stdout: 'b\ncd\nef\n', stderr: 'xy\n' });
  t.same(await rest({ stdout: 7, stderr: 3 }), { stdout: 'f\n', stderr: '' });
});
