/** What needs no fleet: mistakes, help, the reference page, the scripts for shells. */
import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { parseOnly } from '../../lib/cli/invocation/command-runner.ts';
import { helpWidthOf, wrapped } from '../../lib/cli/invocation/help-text.ts';
import { allCommands, createProgram } from '../../lib/cli/program.ts';
import { cliPage } from '../../tools/docs/cli.ts';
import { refusing } from '../client/rig.ts';
import { Cli, CNAPI } from './rig.ts';

const program = () => createProgram(parseOnly);

t.test('a mistake on the command line is named, exits 2, and sends no request', async (t) => {
  const cli = new Cli(t, [await refusing()]);
  const mistakes: [string[], RegExp][] = [
    [['servres'], /unknown command 'servres'\n.*Did you mean servers/],
    [['servers', '--limit', '0'], /--limit 0 is not a whole number above 0/],
    [['servers', '--nope'], /unknown option '--nope'\n {2}Try cnapi servers --help\n/],
    [['schedule', 'create', '--nope'], /Try cnapi schedule create --help\n/],
    [['server'], /missing required argument 'server'/],
    [['servers', '--', 'x'], /servers takes nothing after --/],
    [['exec', 'web-1'], /Which command should run\?/],
    [['exec', '--', 'uptime'], /On which servers\?/],
    [['exec', 'web-1', '--all', '--', 'uptime'], /cannot be combined/],
    [['exec', 'web-1', '--timeout', 'soon', '--', 'x'], /--timeout soon is not a duration/],
    [['exec', 'web-1', '--timeout', '2d', '--', 'x'], /--timeout 2d is not between 1ms and 1d/],
    [['exec', 'web-1', '--script', '/nowhere'], /--script \/nowhere cannot be read/],
    [
      ['exec', 'web-1', 'uname', '-a'],
      /unknown option '-a'\n {2}Write the command to run after --: cnapi exec \[query\|server/,
    ],
    [['exec', '--all', 'uname', '-a'], /unknown option '-a'\n {2}Write the command to run after --: cnapi exec/],
    [['job', 'start', '--all', 'uname', '-a'], /'-a'\n {2}Write the command to run after --: cnapi job start \[query/],
    [['job', 'start', '--all', 'uptime'], /Which command should run\? Write it after --/],
    [['job', 'start', 'web-1', 'uptime'], /Which command should run\? Write it after --/],
    [['schedule', 'create', '--cron', '@daily', 'web-1', 'uptime'], /Which command should run\? Write it after --/],
    [['exec', '--nope', 'web-1'], /unknown option '--nope'\n {2}Try cnapi exec --help\n/],
    [['lock', 'web-1', 'vm', 'x'], /Write it after --/],
    [['lock', 'web-1', 'vm', 'x', 'ls', '-l'], /'-l'\n {2}Write the command to run after --: cnapi lock <server>/],
    [['lock', 'web-1', 'vm', 'x', 'ls'], /too many arguments.*\n {2}Write the command to run after --/],
    [['lock', 'web-1', 'vm', 'x', '--expires', '1s', '--', 'true'], /--expires 1s is not between/],
    [['events', '--kind', 'weather'], /--kind weather is not one of status, task, vm, ticket, instance/],
    [['token', 'create', 'x', '--role', 'king'], /'king' is invalid. Allowed choices are reader, operator/],
    [['completion', 'tcsh'], /Allowed choices are bash, zsh, fish/],
    [
      ['--url', 'cnapi:8080', 'servers'],
      /cnapi:8080 is not an address such as .*: write http:..cnapi:8080, or with TLS https:..cnapi:8080$/m,
    ],
    [['--dns', 'somewhere', 'servers'], /--dns somewhere is not the address of a name server/],
    [['--url', 'http://x', '--dns', '10.0.0.1:53', 'servers'], /--url cannot be combined with --dns/],
  ];
  const each = mistakes.map(async ([args, message]) => {
    const { code, stdout, stderr } = await cli.run(...args);
    t.equal(code, 2, args.join(' '));
    t.match(stderr, message);
    t.equal(stdout, '');
  });
  await Promise.all(each);
});

t.test('when no instance answers, the exit code is 3 and each address is named with its reason', async (t) => {
  const [one, two] = [await refusing(), await refusing()];
  const cli = new Cli(t, [one, two]);
  const { code, stderr } = await cli.run('instances');
  t.equal(code, 3);
  t.match(stderr, `${one}: connection refused; ${two}: connection refused`);
  t.match(stderr, /--url or CNAPI_URL/);
  const inJson = await cli.run('exec', 'web-1', '--json', '--', 'uptime');
  t.equal(inJson.code, 3);
  t.match(JSON.parse(inJson.stderr), { error: { code: 'NoAnswer' } });
  const locked = await cli.run('lock', 'default', 'a', 'b', '--', 'touch', 'ran');
  t.equal(locked.code, 3);
  t.throws(() => readFileSync(path.join(cli.home, 'ran')), { code: 'ENOENT' }, 'nothing was run');
});

t.test('a token file that others can read is refused by name', async (t) => {
  const cli = new Cli(t, [await refusing()]);
  mkdirSync(path.join(cli.home, '.config/cnapi'), { recursive: true });
  writeFileSync(path.join(cli.home, '.config/cnapi/token'), 'cnapi_hush', { mode: 0o644 });
  const { code, stderr } = await cli.run('servers');
  t.equal(code, 2);
  t.match(stderr, /\.config\/cnapi\/token has mode 0644: others may use it; run chmod 600/);
  t.notMatch(stderr, 'hush');
  t.match(await cli.run('completion', 'bash'), { code: 0 }, 'commands that send no request work without it');
  const created = await cli.run('token', 'create', 'x', '--role', 'admin', '--config', '/nowhere.json');
  t.match(created, { code: /[12]/, stderr: /nowhere/ });
  t.notMatch((await cli.run('doctor', '--config', '/nowhere.json')).stdout + created.stderr, /chmod/);
});

t.test('the program runs through a symbolic link from any directory', async (t) => {
  const cli = new Cli(t, [await refusing()]);
  const link = path.join(cli.home, 'cnapi');
  symlinkSync(CNAPI, link);
  const env = { PATH: process.env.PATH, HOME: cli.home, CNAPI_URL: 'http://127.0.0.1:1' };
  const { status, stdout } = spawnSync(link, ['version', '--json'], { cwd: cli.home, env, encoding: 'utf8' });
  t.equal(status, 0);
  t.match(JSON.parse(stdout), { cnapi: /^\d+\.\d+\.\d+/, instance: null });
  const script = spawnSync(link, ['exec', 'x', '--script', 'here.sh'], { cwd: cli.home, env, encoding: 'utf8' });
  t.match(script.stderr, /here.sh cannot be read: ENOENT/, 'files are relative to the current directory');
});

t.test('every command has examples', async (t) => {
  for (const command of allCommands(program())) {
    if (command.commands.length > 0 || ['help', '__complete'].includes(command.name())) continue;
    let help = '';
    const writeOut = (text: string) => {
      help += text;
    };
    command.configureOutput({ writeOut }).outputHelp();
    t.match(help, /Examples:\n {2}\$ /, command.name());
  }
  const cli = new Cli(t, []);
  t.match(await cli.run('lock', '--help'), { code: 0, stdout: /124 no lock within\s--wait/ });
  t.match(await cli.run(), { code: 2, stdout: /^Usage: cnapi/ });
});

t.test('help and the version are written to the streams of the call', async (t) => {
  const cli = new Cli(t, []);
  for (const words of [
    ['job', '--help'],
    ['job', 'list', '--help'],
    ['help', 'job'],
    ['job', 'help', 'list'],
  ])
    t.match(await cli.run(...words), { code: 0, stdout: /^Usage: cnapi job/ }, words.join(' '));
  t.match(await cli.run('--version'), { code: 0, stdout: /^\d+\.\d+\.\d+\n$/ });
});

t.test('no line of a help text is wider than the terminal', async (t) => {
  for (const width of [72, 80, 100]) {
    const program = createProgram(parseOnly, width);
    const tooWide = cliPage(program)
      .replace(/^[\s\S]*?\n## /, '')
      .split('\n')
      .filter((line) => line.length > width && (width >= 80 || !/^(Usage:| {2}\$) /.test(line)));
    t.strictSame(tooWide, [], `${width} columns`);
  }
  t.strictSame([undefined, 80, 100, 200, 10].map(helpWidthOf), [80, 80, 100, 100, 40]);
  t.equal(wrapped('  1. one two\nthree', 10), '  1. one\n     two\nthree');
  t.equal(wrapped('a-very-long-word b', 5), 'a-very-long-word\nb');
});

t.test('bash completion works with the generated script', async (t) => {
  const cli = new Cli(t, [await refusing()]);
  symlinkSync(CNAPI, path.join(cli.home, 'cnapi'));
  const completed = (...words: string[]) => {
    const script = `source <(cnapi completion bash)
      COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cnapi; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const env = { PATH: `${cli.home}:${process.env.PATH}`, HOME: cli.home };
    return execFileSync('bash', ['-c', script, 'bash', 'cnapi', ...words], { env, encoding: 'utf8' })
      .trim()
      .split('\n');
  };
  t.strictSame(completed('serv'), ['servers', 'server']);
  t.strictSame(completed('token', 'create', 'x', '--role', ''), ['reader', 'operator', 'admin', 'agent']);
  t.strictSame(completed('exec', 'web-1', '--', ''), [''], 'nothing is completed after --');
});
