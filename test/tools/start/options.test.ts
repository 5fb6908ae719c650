import t from 'tap';
import { parseOptions, refuseContainersWithoutRoot, UsageError } from '../../../tools/start/options.ts';

const defaults = {
  instances: 3,
  port: 8080,
  agents: 20,
  agent: true,
  containers: false,
  open: false,
  data: undefined,
  databaseUrl: undefined,
  redisUrl: undefined,
};

t.test('the command line is parsed into exact options', async (t) => {
  const rows: [string, string[], unknown][] = [
    ['nothing', [], { kind: 'start', options: defaults }],
    [
      'scale',
      ['--scale', '5'],
      { kind: 'operate', operation: { operation: 'scale', instances: 5 }, options: defaults },
    ],
    [
      'rolling restart',
      ['--rolling-restart'],
      { kind: 'operate', operation: { operation: 'rolling-restart' }, options: defaults },
    ],
    ['containers', ['--containers'], { kind: 'start', options: { ...defaults, containers: true } }],
    ['stop', ['--stop', '--data', 'd'], { kind: 'stop', options: { ...defaults, data: 'd' } }],
    [
      'all',
      '--instances 5 --port 9000 --agents 0 --no-agent --open --data=/x --database-url postgres://h/d --redis-url rediss://h'.split(
        ' ',
      ),
      {
        kind: 'start',
        options: {
          instances: 5,
          port: 9000,
          agents: 0,
          agent: false,
          containers: false,
          open: true,
          data: '/x',
          databaseUrl: 'postgres://h/d',
          redisUrl: 'rediss://h',
        },
      },
    ],
  ];
  for (const [name, args, expected] of rows) t.strictSame(parseOptions(args), expected, name);
});

t.test('a refused URL is not repeated, because it may hold a password', async (t) => {
  const refused = t.throws(() => parseOptions(['--database-url', 'mysql://u:secret@h/d'])) as Error;
  t.notMatch(refused.message, 'secret');
  t.match(refused.message, 'a URL like postgres://USER:PASSWORD@HOST');
});

t.test('an invalid option is refused by name', async (t) => {
  const rows: [string, string[]][] = [
    ['--frobnicate', ['--frobnicate']],
    ['extra', ['extra']],
    ['--instances', ['--instances', '0']],
    ['--instances', ['--instances', '1e1']],
    ['--scale', ['--scale', '0']],
    ['--scale', ['--scale', '17']],
    ['--scale', ['--scale', '3', '--stop']],
    ['--rolling-restart', ['--rolling-restart', '--scale', '3']],
    ['--port', ['--scale', '3', '--port', '9000']],
    ['--redis-url', ['--rolling-restart', '--redis-url', 'redis://h']],
    ['--no-agent', ['--stop', '--no-agent']],
    ['--no-agent', ['--containers', '--no-agent']],
    ['--containers', ['--stop', '--containers']],
    ['--open', ['--stop', '--open']],
    ['--port', ['--port', '80']],
    ['--port', ['--port', 'http']],
    ['--agents', ['--agents', '-1']],
    ['--data', ['--data']],
    ['--data', ['--data=']],
    ['--database-url', ['--database-url', 'mysql://h/d']],
    ['--database-url', ['--database-url', 'postgres']],
    ['--redis-url', ['--redis-url', 'localhost']],
  ];
  for (const [named, args] of rows) {
    const refused = t.throws(() => parseOptions(args), args.join(' ')) as Error;
    t.type(refused, UsageError);
    t.match(refused.message, named);
  }
});

t.test('containers are refused before anything starts unless the user is root', async (t) => {
  const withContainers = { ...defaults, containers: true };
  t.throws(() => refuseContainersWithoutRoot(withContainers, 1000), /--containers needs root/);
  t.throws(() => refuseContainersWithoutRoot(withContainers, undefined), /--containers needs root/);
  refuseContainersWithoutRoot(withContainers, 0);
  refuseContainersWithoutRoot(defaults, 1000);
});
