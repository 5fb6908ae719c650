/**
 * The tour of docs/vms.md, line by line: `npm start` with containers, an image, and the life of a
 * VM.
 */
import { execFile } from 'node:child_process';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { lacksContainers } from '../support/container-machine.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { dataDirectory, freePorts, Start } from '../tools/start/support.ts';
import { readPage } from './page-steps.ts';

t.setTimeout(FILE_TIMEOUT_MS);

const tools = path.resolve(import.meta.dirname, '../../tools');
const [, tour = ''] = /^## Try it\n(.*?)^## /ms.exec(readPage('vms.md')) ?? [];
/** Without those that start everything, name places, or need a person at a terminal. */
const lines = [...tour.matchAll(/^ {4}(\S.*)$/gm)]
  .map(([, line = '']) => line)
  .filter((line) => !/^(npm start|PATH=|SERVER=|IMAGES=)| -it /.test(line));

t.test('the tour of the page about VMs works line by line', { skip: lacksContainers() }, async (t) => {
  const data = dataDirectory(t);
  const port = await freePorts(2);
  const start = new Start(t, [
    '--containers',
    '--agents',
    '0',
    '--instances',
    '1',
    '--port',
    String(port),
    '--data',
    data,
  ]);
  const ready = await start.ready();
  t.match(ready.agent?.containers, /^Containers run with /, 'npm start says that they run here');
  const directory = t.testdir();
  t.ok(lines.length > 15, `${lines.length} lines`);
  const { error, stdout, stderr } = await run(`set -ex\n${lines.join('\n')}`, directory, {
    PATH: `${tools}:${process.env.PATH}`,
    CNAPI_URL: ready.instances[0]?.url,
    CNAPI_TOKEN_FILE: ready.token_file,
    SERVER: ready.agent?.server_uuid,
    IMAGES: path.join(data, 'images'),
  });
  t.equal(error, null, stderr);
  t.match(stdout, / web +running /, 'the list');
  t.match(stdout, /^begun$/m, 'the log');
  t.match(stdout, /^bin$/m, 'the listing of the root directory');
  t.equal(readFileSync(path.join(directory, 'back.txt'), 'utf8'), 'hello\n', 'what the roll-back restored');
});

function run(script: string, cwd: string, env: NodeJS.ProcessEnv) {
  return new Promise<{ error: Error | null; stdout: string; stderr: string }>((resolve) => {
    execFile('sh', ['-c', script], { cwd, env: { ...process.env, ...env } }, (error, stdout, stderr) =>
      resolve({ error, stdout, stderr }),
    );
  });
}
