import t from 'tap';
import { parseAgentOptions } from '../../lib/cn-agent/options.ts';

t.test('a command line says where instances are and where the data is', async (t) => {
  t.match(parseAgentOptions(['--dns', '127.0.0.1:53', '--data', 'd']), {
    discovery: { dns: '127.0.0.1:53', datacenter: 'local', domain: 'cnapi.internal' },
    data: 'd',
    allowReboot: false,
    logLevel: 'info',
  });
  t.match(parseAgentOptions(['--url', 'http://h:81', '--url', 'http://[::1]', '--data', 'd', '--allow-reboot']), {
    discovery: {
      endpoints: [
        { host: 'h', port: 81 },
        { host: '::1', port: 80 },
      ],
    },
    allowReboot: true,
  });
  t.match(parseAgentOptions(['--datacenter', 'east', '--data', 'd']), {
    discovery: { dns: undefined, datacenter: 'east' },
  });
  t.equal(parseAgentOptions(['--help']), undefined);
});

t.test('what is wrong with it is said by the name of the option', async (t) => {
  const rows: [string[], RegExp][] = [
    [['--url', 'http://h'], /--data/],
    [['--data', 'd'], /--dns HOST:PORT or --url/],
    [['--data', 'd', '--url', 'ftp://h'], /--url ftp:/],
    [['--data', 'd', '--url', 'http://h:80/path'], /--url http:.*path is not http:..HOST:PORT/],
    [['--data', 'd', '--url', 'https://h'], /--url https:/],
    [['--data', 'd', '--dns', 'h:99999'], /--dns h:99999/],
    [['--data', 'd', '--url', 'nonsense'], /--url nonsense/],
    [['--data', 'd', '--url', 'http://h', '--dns', 'h:1'], /--url does not go with/],
    [['--data', 'd', '--dns', 'host'], /--dns host is not HOST:PORT/],
    [['--data', 'd', '--dns', 'h:1', '--uuid', 'ABC'], /--uuid ABC/],
    [['--data', 'd', '--dns', 'h:1', '--log-level', 'loud'], /--log-level loud/],
    [['--data', 'd', '--dns', 'h:1', '--frobnicate'], /frobnicate/],
    [['--data', 'd', '--dns', 'h:1', 'more'], /more/],
  ];
  for (const [args, message] of rows) {
    t.throws(() => parseAgentOptions(args), { name: 'AgentUsageError', message }, args.join(' '));
  }
});
