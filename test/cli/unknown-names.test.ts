/** What a command line names and does not exist: every command ends with the same exit code. */
import { readFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { parseOnly } from '../../lib/cli/invocation/command-runner.ts';
import { allCommands, createProgram } from '../../lib/cli/program.ts';
import { freshZone } from '../support/apps.ts';
import { startAgents } from '../support/simulated-agents.ts';
import { Cli } from './rig.ts';

const UNKNOWN = 'c0ffee00-1a2b-4c3d-8e4f-5a6b7c8d9e0f';
const COMMAND = ['--', 'true'];

t.test('an unknown name or id exits 2 in all commands, and the error names it', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const [agent] = await startAgents(t, [app], 1);
  const server = agent?.serverUuid ?? '';
  const cli = new Cli(t, [app.url]);
  const job = (await cli.run('job', 'start', server, '--detach', '--', 'sleep 600')).stdout.trim();
  await cli.run('org', 'create', 'acme');
  const known = { server, job, organization: 'acme' };

  /** `X` stands for each unknown name. */
  const lines: readonly string[][] = [
    ['server', 'X'],
    ['server', 'setup', 'X'],
    ['server', 'nics', 'X'],
    ['server', 'reboot', 'X'],
    ['server', 'factory-reset', 'X', '--yes'],
    ['server', 'pause', 'X'],
    ['server', 'resume', 'X'],
    ['server', 'delete', 'X', '--yes'],
    ['boot', 'show', 'X'],
    ['boot', 'set', 'X', '--serial', 'ttya'],
    ['boot', 'unset', 'X', '--arg', 'a'],
    ['agents', 'upgrade', 'X', '--package', '/cn-agent-9.0.0.tar'],
    ['agents', 'upgrade', '--group', 'X', '--package', '/cn-agent-9.0.0.tar'],
    ['platform', 'get', 'X'],
    ['platform', 'update', 'X', 'os=linux'],
    ['platform', 'delete', 'X'],
    ['tasks', 'X'],
    ['capacity', 'X'],
    ['allocate', 'ram=1', '--server', 'X'],
    ['tickets', 'X'],
    ['events', '--server', 'X'],
    ['exec', 'X', ...COMMAND],
    ['port-forward', 'X', ':80'],
    ['exec', '--group', 'X', ...COMMAND],
    ['lock', 'X', 'scope', 'id', ...COMMAND],
    ['node', 'status', 'X'],
    ['node', 'status', '--group', 'X'],
    ['job', 'start', 'X', ...COMMAND],
    ['job', 'start', '--group', 'X', ...COMMAND],
    ['job', 'start', '--from-job', 'X', ...COMMAND],
    ['job', 'start', known.server, '--ticket', 'a/b', '--ticket-server', 'X', ...COMMAND],
    ['job', 'status', 'X'],
    ['job', 'status', known.job, '--node', 'X'],
    ['job', 'watch', 'X'],
    ['job', 'output', 'X'],
    ['job', 'output', known.job, 'X'],
    ['job', 'retry', 'X'],
    ['job', 'change', 'X', '--timeout', '1h'],
    ['job', 'add', 'X', known.server],
    ['job', 'add', known.job, 'X'],
    ['job', 'abort', 'X'],
    ['job', 'abort', known.job, 'X'],
    ['job', 'delete', 'X'],
    ['schedule', 'create', '--cron', '@daily', '--group', 'X', ...COMMAND],
    ['schedule', 'create', '--cron', '@daily', 'X', ...COMMAND],
    ['schedule', 'get', 'X'],
    ['schedule', 'run', 'X'],
    ['schedule', 'update', 'X', '--cron', '@daily'],
    ['schedule', 'pause', 'X'],
    ['schedule', 'resume', 'X'],
    ['schedule', 'delete', 'X'],
    ['task', 'X'],
    ['workflow', 'list', '--server', 'X'],
    ['workflow', 'show', 'X'],
    ['workflow', 'wait', 'X'],
    ['workflow', 'cancel', 'X'],
    ['cancel', 'X'],
    ['unlock', 'X'],
    ['drain', 'X'],
    ['token', 'revoke', 'X'],
    ['group', 'get', 'X'],
    ['group', 'update', 'X', 'name=y'],
    ['group', 'delete', 'X'],
    ['group', 'create', 'name=y', 'servers=X'],
    ['zfs', 'list', 'X'],
    ['zfs', 'create', 'X', 'zones/one'],
    ['vm', 'exec', 'X', ...COMMAND],
    ['vm', 'logs', 'X'],
    ['vm', 'stop', 'X'],
    ['vm', 'snapshot', 'list', 'X'],
    ['vm', 'port-forward', 'X', ':80'],
    ['org', 'get', 'X'],
    ['org', 'delete', 'X'],
    ['org', 'user', 'delete', 'X'],
    ['org', 'client', 'list', 'X'],
    ['org', 'client', 'delete', known.organization, 'X'],
    ['org', 'group', 'list', 'X'],
    ['org', 'group', 'get', known.organization, 'X'],
    ['org', 'group', 'delete', known.organization, 'X'],
    ['org', 'key', 'list', 'X'],
    ['org', 'server', 'list', 'X'],
    ['org', 'server', 'add', known.organization, 'X'],
  ];
  for (const line of lines)
    for (const unknown of ['no-such-thing', 'c0ffee00', UNKNOWN]) {
      const args = line.map((word) => (word === 'X' ? unknown : word.replace('=X', `=${unknown}`)));
      const { code, stdout, stderr } = await cli.run(...args);
      t.match({ code, stdout }, { code: 2, stdout: '' }, args.join(' '));
      t.match(stderr, unknown, args.join(' '));
      if (line[0] === 'task' || line[0] === 'cancel')
        t.equal(stderr.includes('There is no task'), unknown !== 'no-such-thing', args.join(' '));
    }
  const here = new Set(lines.map((line) => line[0]));
  const takesNames = allCommands(createProgram(parseOnly)).filter(
    ({ registeredArguments, parent }) =>
      parent?.parent == null && registeredArguments.some((one) => /server|task|job|instance|ticket/.test(one.name())),
  );
  t.same(
    takesNames.map((command) => command.name()).filter((name) => !here.has(name)),
    [],
    'no command that takes names is left out',
  );
});

t.test(
  'of several objects those that exist are dealt with, and the exit code says that something was changed',
  async (t) => {
    const zone = await freshZone(t);
    const app = await zone.startApp();
    const cli = new Cli(t, [app.url]);
    const ticket = async (id: string) =>
      (await app.post<{ uuid: string }>('/servers/default/tickets', { scope: 'a', id, expires_in: 600 })).body.uuid;
    const [first, second] = [await ticket('1'), await ticket('2')];
    t.match(await cli.run('unlock', first, 'ffffffff', second), {
      code: 1,
      stdout: `deleted ${first}\ndeleted ${second}\n`,
      stderr: /There is no open ticket whose id begins with ffffffff/,
    });
    t.match(await cli.run('unlock', 'ffffffff', UNKNOWN), { code: 2, stdout: '' });
  },
);

t.test('the exit code of unknown names is documented', (t) => {
  const page = readFileSync(path.resolve(import.meta.dirname, '../../docs/cli.md'), 'utf8').replace(/\s+/g, ' ');
  t.match(
    page,
    '2 wrong usage: an option or a value in the command line is wrong, or a name or an id in it is unknown,',
  );
  t.end();
});
