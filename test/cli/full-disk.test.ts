/** What a command says and returns when its output cannot be written, as on a full disk. */
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import t, { type Test } from 'tap';
import { pushJobContracts } from '../../lib/protocol/api/push/jobs.ts';
import { json, scripted } from '../client/rig.ts';
import { Cli } from './rig.ts';

const SERVER = '564d5b45-3a8c-4c1f-9d0a-0123456789ab';
const ID = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
const NO_SPACE = 'cnapi: cannot write the output: no space left on device\n';

const TASK = {
  ...{ id: ID, task: 'command_execute', server_uuid: SERVER, status: 'complete', params: {}, attempt: 1 },
  ...{ timeout_ms: 1000, idempotent: false, cancel_requested: false, timestamp: '2030-01-01T00:00:00Z', history: [] },
};
const TOKEN = {
  ...{ uuid: ID, name: 'deploy', role: 'operator', token: 'secret', server_uuid: null, created_by: 'admin' },
  ...{ created_at: TASK.timestamp, expires_at: null, last_used_at: null, revoked_at: null },
};
const JOB = pushJobContracts.CreatePushJob.responses[201];

const EVENTS = [
  ['output', { stream: 'stdout', offset: 0, text: 'one\n' }],
  ['end', { status: 'complete', result: { exitCode: 0, stdout: 'one\n' } }],
].map(([name, data], seq) => ({ seq, name, timestamp: TASK.timestamp, attempt: 1, data }));

/** Two servers; one task, and one push job, that succeed. */
async function fleet(t: Test) {
  return scripted(t, (response, { method, path: asked }) => {
    if (asked.startsWith('/servers')) {
      const each = ['web-0', 'web-1'].map((hostname, at) => ({
        uuid: SERVER.slice(0, -1) + at,
        hostname,
        status: 'running',
      }));
      const isExact = asked.includes('hostname=web-0');
      return json(response, 200, method === 'GET' ? (isExact ? each.slice(0, 1) : each) : { id: ID });
    }
    if (asked.startsWith('/tokens')) return json(response, 201, TOKEN);
    if (asked.startsWith('/push-jobs')) return json(response, 201, { ...JOB.example, id: ID });
    if (!asked.includes('/events')) return json(response, 200, TASK);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(EVENTS.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
  });
}

t.test('output that cannot be written is an error, and what it would have named is named', async (t) => {
  const cli = new Cli(t, [(await fleet(t)).url]);
  const full = path.join(cli.home, 'full');
  writeFileSync(full, '#!/bin/sh\nexec "$@" >/dev/full\n', { mode: 0o755 });
  const rows: [what: string, args: string[], code: number, stderr: string][] = [
    ['a list', ['servers'], 1, NO_SPACE],
    ['a help text', ['--help'], 1, NO_SPACE],
    ['exec', ['exec', 'web-0', '--', 'x'], 4, NO_SPACE],
    ['exec --detach', ['exec', '-d', 'web-0', '--', 'x'], 4, `${NO_SPACE}cnapi: started task ${ID}\n`],
    [
      'exec --detach on several servers',
      ['exec', '-d', '--all', '--', 'x'],
      4,
      `${NO_SPACE}cnapi: started push job ${ID}\n`,
    ],
    ['task --follow', ['task', ID, '--follow'], 4, `cnapi: command_execute succeeded\n${NO_SPACE}`],
    ['cancel, which continues', ['cancel', ID, ID], 1, NO_SPACE],
    [
      'token create',
      ['token', 'create', 'deploy', '--role', 'operator', '--quiet'],
      1,
      `${NO_SPACE}cnapi: the secret of token ${ID} (deploy) is lost: it was not written; revoke it: cnapi token revoke ${ID}\n`,
    ],
  ];
  for (const [what, args, code, stderr] of rows) {
    const ran = await cli.start(args, { under: [full] }).ended;
    t.strictSame([ran.code, ran.stderr], [code, stderr], what);
  }
});
