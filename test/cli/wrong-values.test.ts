/**
 * Values that are wrong; most of them only an instance can check: every command ends with the same
 * exit code.
 */
import t from 'tap';
import { freshZone } from '../support/apps.ts';
import { startAgents } from '../support/simulated-agents.ts';
import { Cli } from './rig.ts';

const COMMAND = ['--', 'true'];

t.test('a wrong value exits 2 in all commands, and the error says why', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const [agent] = await startAgents(t, [app], 2);
  const server = agent?.serverUuid ?? '';
  const cli = new Cli(t, [app.url]);
  const schedule = (await cli.run('schedule', 'create', '--cron', '@daily', '--all', ...COMMAND)).stdout.trim();
  const job = (await cli.run('job', 'start', server, '--detach', '--', 'sleep 600')).stdout.trim();
  await cli.run('org', 'create', 'acme');

  const rows: readonly [line: readonly string[], why: RegExp][] = [
    [['schedule', 'create', '--cron', '61 2 * * *', '--all', ...COMMAND], /cron: /],
    [['schedule', 'create', '--cron', '@daily', '--time-zone', 'Europe/Berln', '--all', ...COMMAND], /time_zone: /],
    [['schedule', 'update', schedule, '--cron', '61 2 * * *'], /cron: /],
    [['job', 'start', '--all', '--env', '1A=b', ...COMMAND], /env/],
    [['job', 'start', '--all', '--user', 'x'.repeat(1000), ...COMMAND], /user/],
    [['job', 'change', job, '--timeout', '400d'], /timeout/],
    [['exec', server, '--env', '1A=b', ...COMMAND], /env/],
    [['exec', server, '--secret-env', '1A=b', ...COMMAND], /env/],
    [['exec', '--all', '--env', `A=${'x'.repeat(70_000)}`, ...COMMAND], /2 servers: env/],
    [['exec', '--all', '--timeout', '2d', ...COMMAND], /timeout/],
    [['lock', server, '', 'x', ...COMMAND], /scope/],
    [['lock', server, 'x'.repeat(10_000), 'x', ...COMMAND], /scope/],
    [['token', 'create', 'open', '--role', 'reader'], /name/],
    [['token', 'create', 'one', '--role', 'reader', '--expires', '100000d'], /expires_in/],
    [['group', 'create', 'name=x'], /either servers or where/],
    [['group', 'create', 'name=x/y', `servers=${server}`], /name/],
    [['org', 'create', 'x/y'], /name/],
    [['tasks', '--name', 'x'.repeat(1000)], /name/],
    [['tasks', '--name', 'x'.repeat(10_000)], /The URL is longer than/],
  ];
  for (const [args, why] of rows) {
    const { code, stdout, stderr } = await cli.run(...args);
    const label = args.join(' ').slice(0, 80);
    t.match({ code, stdout, stderr }, { code: 2, stdout: '', stderr: why }, label);
    t.notMatch(stderr, /failed validation|InvalidParameters|InvalidArgument/, label);
  }

  const none = (
    await cli.run('schedule', 'create', '--cron', '@daily', '--where', 'hostname=none', ...COMMAND)
  ).stdout.trim();
  t.match(
    await cli.run('schedule', 'run', none),
    { code: 1, stderr: /cannot start a job now: .* matches/ },
    'the value is in the schedule, not in the command line',
  );
});
