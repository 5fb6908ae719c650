/** What doctor says about the Node on the PATH. */
import { chmodSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { checkNode } from '../../../lib/control/doctor/machine.ts';

t.test('doctor says whether the Node on the PATH can run an instance', async (t) => {
  const program = path.join(t.testdir(), 'node');
  const cases: [version: string, level: string][] = [
    ['v20.20.2', 'warn'],
    ['v22.17.1', 'warn'],
    ['v22.18.0', 'ok'],
    ['v23.5.0', 'warn'],
    ['v24.21.0', 'ok'],
  ];
  for (const [version, level] of cases) {
    writeFileSync(program, `#!/bin/sh\necho ${version}\n`);
    chmodSync(program, 0o755);
    t.match(await checkNode(program), { part: 'node', level, found: `node on the PATH is ${version}` }, version);
  }
  const absent = await checkNode(`${program}-absent`);
  t.match(absent, { level: 'warn', found: 'there is no node on the PATH', todo: /22\.18.*sh tools\/run server\.ts/ });
});
