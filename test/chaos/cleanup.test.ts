/**
 * However a run ends, none of its processes survives it: everything that it starts inherits a mark
 * in its environment.
 */
import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import t from 'tap';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';

const main = path.resolve(import.meta.dirname, 'main.ts');

t.test('a killed run leaves no process behind', { skip: noRedisServer, timeout: FILE_TIMEOUT_MS }, async (t) => {
  const out = mkdtempSync(path.join(os.tmpdir(), 'cnapi-chaos-test-'));
  // Processes that have ended may still be releasing their files.
  t.teardown(() => rmSync(out, { recursive: true, force: true, maxRetries: 20, retryDelay: 100 }));
  const mark = `CHAOS_MARK=${randomUUID()}`;
  const env = { ...process.env, CHAOS_MARK: mark.slice('CHAOS_MARK='.length) };
  const args = [main, '--minutes', '5', '--only', 'Postgres frozen', '--only', 'agent frozen', '--out', out];
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.on('data', (text) => {
    output += text;
  });
  await until(() => /^ +1 /m.test(output), 'the first fault to end', FILE_TIMEOUT_MS);
  t.ok(marked(mark).length > 10, `${marked(mark).length} processes`);
  child.kill('SIGKILL');
  await once(child, 'exit');
  await until(() => marked(mark).length === 0, 'all of them to be gone');
  t.same(marked(mark), []);
});

function marked(mark: string): number[] {
  const pids = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return pids.map(Number).filter((pid) => {
    try {
      return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0').includes(mark);
    } catch {
      return false;
    }
  });
}
