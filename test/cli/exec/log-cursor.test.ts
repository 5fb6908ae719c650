import t from 'tap';
import { LogCursor } from '../../../lib/cli/exec/log-cursor.ts';

t.test('a log continues at the last position, after the bytes that came then', async (t) => {
  const cursor = new LogCursor();
  cursor.received('stdout', 3);
  t.equal(cursor.resume, undefined, 'nobody has said where they were');
  cursor.reached({ number: 1, offset: 10 });
  t.same(cursor.resume, { position: { number: 1, offset: 10 }, stdout: 0, stderr: 0 });
  cursor.received('stdout', 3);
  cursor.received('stderr', 4);
  cursor.received('stdout', 2);
  t.same(cursor.resume, { position: { number: 1, offset: 10 }, stdout: 5, stderr: 4 });
  cursor.reached({ number: 2, offset: 0 });
  t.same(cursor.resume, { position: { number: 2, offset: 0 }, stdout: 0, stderr: 0 });
});

t.test('a stream that continues and first tells its place again does not lose what came after it', async (t) => {
  const cursor = new LogCursor();
  cursor.reached({ number: 1, offset: 10 });
  cursor.received('stdout', 3);
  const { arrived } = cursor;
  cursor.reached({ number: 1, offset: 10 });
  t.same(cursor.resume, { position: { number: 1, offset: 10 }, stdout: 3, stderr: 0 });
  t.equal(cursor.arrived, arrived, 'which is nothing new');
  cursor.reached({ number: 1, offset: 20 });
  t.ok(cursor.arrived > arrived);
});
