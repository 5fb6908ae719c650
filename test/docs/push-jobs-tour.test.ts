/** The tour of docs/push-jobs.md kills the agent of its own data directory. */
import { execFileSync } from 'node:child_process';
import path from 'node:path';
import t from 'tap';
import { takeDataDirectory } from '../../lib/agent/data-directory.ts';
import { readPage } from './page-steps.ts';

t.test('the tour kills the agent that uses the data directory, and nothing else', async (t) => {
  const data = t.testdir();
  const held = await takeDataDirectory(path.join(data, 'agent'));
  t.teardown(() => held.release());
  const [, pids] = /^ {4}kill -9 (\$\(.*?\)) {2,}#/m.exec(readPage('push-jobs.md')) ?? [];
  const shown = execFileSync('sh', ['-c', `echo ${pids}`], { env: { ...process.env, DATA: data }, encoding: 'utf8' });
  t.equal(shown, `${process.pid}\n`);
});
