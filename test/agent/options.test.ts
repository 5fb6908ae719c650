import t from 'tap';
import { type AgentOptions, allowedWork, parseAgentOptions } from '../../lib/agent/options.ts';
import { parseFleetOptions } from '../../lib/agent/simulated/options.ts';
import { matchLists } from '../support/match-lists.ts';

t.test('the options name the instances and the data directory', async (t) => {
  t.match(parseAgentOptions(['--dns', '127.0.0.1:53', '--data', 'd']), {
    discovery: { dns: '127.0.0.1:53', datacenter: 'local', domain: 'cnapi.internal' },
    data: 'd',
    allowReboot: false,
    pushCommands: undefined,
    logLevel: 'info',
  });
  matchLists(t, parseAgentOptions(['--url', 'http://h:81', '--url', 'http://[::1]', '--data', 'd', '--allow-reboot']), {
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
  t.match(parseAgentOptions(['--url', 'http://h', '--data', 'd', '--push-commands', 'f']), { pushCommands: 'f' });
  t.equal(parseAgentOptions(['--help']), undefined);
});

t.test('a server is set up unless --needs-setup says that it is not', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  t.equal(parseAgentOptions(base)?.needsSetup, false);
  t.equal(parseAgentOptions([...base, '--needs-setup'])?.needsSetup, true);
});

t.test('a set-up and a reset of the machine take the permission of its operator', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  t.strictSame(parseAgentOptions(base)?.setupRules, { allowsSetup: false, resetProgram: undefined });
  const allowed = parseAgentOptions([...base, '--allow-setup', '--factory-reset', '/sbin/reset']);
  t.strictSame(allowed?.setupRules, { allowsSetup: true, resetProgram: '/sbin/reset' });
  const options = ['--allow-reboot', '--allow-setup', '--factory-reset=/sbin/reset'];
  const allows = (...args: string[]) => allowedWork(parseAgentOptions([...base, ...args]) as AgentOptions);
  t.strictSame([allows(), ...options.map((option) => allows(option))], [[], ['reboot'], ['setup'], ['factory-reset']]);
  t.throws(() => parseAgentOptions([...base, '--factory-reset', 'reset']), /reset is not an absolute path/);
});

t.test('callers may change datasets of ZFS only if --zfs names them', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  t.same(parseAgentOptions(base)?.zfs, []);
  t.same(parseAgentOptions([...base, '--zfs', 'zones/data', '--zfs', 'tank'])?.zfs, ['zones/data', 'tank']);
});

t.test('the boot parameters come from --boot-parameter and --headnode', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  t.same(parseAgentOptions(base)?.bootParameters, {});
  t.same(parseAgentOptions([...base, '--headnode'])?.bootParameters, { headnode: 'true' });
  t.same(
    parseAgentOptions([...base, '--boot-parameter', 'a=b=c', '--boot-parameter', 'headnode=false', '--headnode'])
      ?.bootParameters,
    { a: 'b=c', headnode: 'true' },
  );
});

t.test('an agent has containers only on request, with what they may use of the machine', async (t) => {
  const base = ['--url', 'http://h', '--data', '/d'];
  t.match(parseAgentOptions(base), { containers: undefined });
  t.same(parseAgentOptions([...base, '--containers'])?.containers, {
    directories: [],
    bridges: [],
    uidRange: undefined,
    images: { urls: [], directories: [], maxBytes: 10 * 1024 ** 3 },
  });
  const sources = ['--image-url', 'https://h/images', '--image-path', '/srv/images', '--image-space', '1000'];
  t.same(parseAgentOptions([...base, '--containers', ...sources])?.containers?.images, {
    urls: ['https://h/images'],
    directories: ['/srv/images'],
    maxBytes: 1_000,
  });
  const places = ['--container-path', '/srv/', '--container-path', '/d2', '--container-bridge', 'br0'];
  t.same(parseAgentOptions([...base, '--containers', ...places, '--container-uids', '100000-165535'])?.containers, {
    directories: ['/srv', '/d2'],
    bridges: ['br0'],
    uidRange: { first: 100_000, count: 65_536 },
    images: { urls: [], directories: [], maxBytes: 10 * 1024 ** 3 },
  });
});

t.test('an agent installs packages only if --package-key names keys', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  const off = parseAgentOptions([...base, '--package-trial', '7']);
  t.same([off?.packages, off?.trialMs], [undefined, 7_000]);
  const keys = ['--package-key', 'a.pub', '--package-key', 'b.pub'];
  const on = parseAgentOptions([...base, ...keys]);
  t.same(on?.packages, { keyFiles: ['a.pub', 'b.pub'], urls: [], directories: [], allowScripts: false });
  t.equal(on?.trialMs, 120_000);
  const more = ['--package-url', 'https://h/a', '--package-path', '/srv/a', '--package-scripts'];
  t.same(parseAgentOptions([...base, ...keys, ...more])?.packages, {
    ...{ keyFiles: ['a.pub', 'b.pub'], urls: ['https://h/a'] },
    ...{ directories: ['/srv/a'], allowScripts: true },
  });
});

t.test('by default an agent uses the link where it can and opens no HTTP port', async (t) => {
  const base = ['--url', 'http://h', '--data', 'd'];
  t.match(parseAgentOptions(base), { protocol: 'auto', http: undefined });
  matchLists(t, parseAgentOptions([...base, '--protocol', 'legacy', '--http-port', '0']), {
    protocol: 'legacy',
    http: { host: '127.0.0.1', port: 0, open: false, from: [] },
  });
  const env = { CN_AGENT_HTTP_PORT: '5309', CN_AGENT_HTTP_HOST: '10.0.0.7' };
  t.match(parseAgentOptions(base, env), { http: { host: '10.0.0.7', port: 5309 } });
  t.match(parseAgentOptions([...base, '--http-port', '1'], env), { http: { host: '10.0.0.7', port: 1 } });
  const access = { CN_AGENT_HTTP_FROM: '10.0.0.1, 10.1.0.0/16', CN_AGENT_HTTP_OPEN: '1', CN_AGENT_HTTP_PORT: '1' };
  matchLists(t, parseAgentOptions(base, access), { http: { from: ['10.0.0.1', '10.1.0.0/16'], open: true } });
  matchLists(t, parseAgentOptions([...base, '--http-from', 'fd00::/64', '--http-open'], { CN_AGENT_HTTP_PORT: '1' }), {
    http: { from: ['fd00::/64'], open: true },
  });
});

t.test('--tls or https URLs enable TLS, with CA, name and token from options or environment', async (t) => {
  const dns = ['--dns', '127.0.0.1:1', '--data', 'd'];
  const https = ['--url', 'https://h', '--url', 'wss://i:444', '--data', 'd'];
  const env = { CN_AGENT_TOKEN_FILE: '/t', CN_AGENT_CA_FILE: '/c' };
  const [name, ca, token] = [
    ['--tls-name', 'n'],
    ['--ca', '/own-c'],
    ['--token-file', '/own-t'],
  ];
  t.match(parseAgentOptions(dns), { credentials: { tls: false, caFile: undefined, tokenFile: undefined } });
  t.match(parseAgentOptions([...dns, '--tls'], env), { credentials: { tls: true, caFile: '/c', tokenFile: '/t' } });
  matchLists(t, parseAgentOptions([...https, ...name, ...ca, ...token], env), {
    discovery: {
      endpoints: [
        { host: 'h', port: 443 },
        { host: 'i', port: 444 },
      ],
    },
    credentials: { tls: true, caFile: '/own-c', tlsName: 'n', tokenFile: '/own-t' },
  });
  t.match(parseFleetOptions(['--agents', '1', ...https.slice(0, 4)], env), {
    credentials: { tls: true, tokenFile: '/t' },
  });
});

t.test('an error in the options names the option', async (t) => {
  const containers = ['--data', '/var/lib/agent', '--url', 'http://h', '--containers'];
  const base = ['--data', 'd', '--url', 'http://h'];
  const packages = [...base, '--package-key', 'a.pub'];
  const rows: [string[], RegExp][] = [
    [['--url', 'http://h'], /--data/],
    [['--data', 'd'], /--dns ADDRESS:PORT or --url/],
    [['--data', 'd', '--url', 'ftp://h'], /--url ftp:/],
    [['--data', 'd', '--url', 'http://h:80/path'], /--url http:.*path is not http:..HOST:PORT/],
    [['--data', 'd', '--url', 'https://h', '--url', 'http://h'], /--url: use http:.. for all instances, or https:/],
    [['--data', 'd', '--url', 'http://h', '--tls'], /--tls needs https:/],
    [['--data', 'd', '--url', 'http://h', '--ca', 'f'], /--ca and --tls-name need https:/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--tls-name', 'n'], /--ca and --tls-name need https:/],
    [['--data', 'd', '--dns', 'h:99999'], /--dns h:99999/],
    [['--data', 'd', '--url', 'nonsense'], /--url nonsense/],
    [['--data', 'd', '--url', 'http://h', '--dns', '127.0.0.1:1'], /--url cannot be combined with/],
    [['--data', 'd', '--dns', 'host'], /--dns host cannot be used.*write 127.0.0.1:8083/],
    [['--data', 'd', '--dns', 'names.example:53'], /--dns names.example:53 cannot be used.*write 127.0.0.1:8083/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--uuid', 'ABC'], /--uuid ABC/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--log-level', 'loud'], /--log-level loud/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--protocol', 'new'], /--protocol new is not one of auto, link, legacy/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--http-port', '70000'], /--http-port 70000 is not a port/],
    [
      ['--data', 'd', '--dns', '127.0.0.1:1', '--http-port', '1', '--http-host', 'h'],
      /--http-host h is not an IP address/,
    ],
    [
      ['--data', 'd', '--dns', '127.0.0.1:1', '--http-port', '1', '--http-from', '10.0.0.0/33'],
      /--http-from .* longer than \/32/,
    ],
    [
      ['--data', 'd', '--dns', '127.0.0.1:1', '--http-port', '1', '--http-from', '0.0.0.0/0'],
      /--http-from .* wider than \/8/,
    ],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--http-port', '1', '--http-from', 'h'], /--http-from h is neither/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--frobnicate'], /frobnicate/],
    [['--data', 'd', '--dns', '127.0.0.1:1', '--boot-parameter', 'x'], /--boot-parameter x is not NAME=VALUE/],
    [['--data', 'd', '--dns', '127.0.0.1:1', 'more'], /more/],
    [['--data', 'd', '--url', 'http://h', '--container-bridge', 'br0'], /--container-bridge needs --containers/],
    [['--data', 'd', '--url', 'http://h', '--image-url', 'http://h'], /--image-url needs --containers/],
    [['--data', 'd', '--url', 'http://h', '--zfs', 'zones/'], /--zfs zones\/ is not a pool or a dataset/],
    [[...containers, '--image-url', 'h/images'], /--image-url h\/images is not an http: or https: URL/],
    [[...containers, '--image-path', 'images'], /--image-path images is not an absolute path/],
    [[...containers, '--image-space', '1e9'], /--image-space 1e9 is not a number of bytes/],
    [[...containers, '--container-bridge', 'br 0'], /--container-bridge br 0 is not the name/],
    [[...containers, '--container-path', 'srv'], /--container-path srv is not an absolute path/],
    [[...containers, '--container-path', '/'], /--container-path .* overlaps --data/],
    [[...containers, '--container-path', '/var/lib/'], /--container-path .* overlaps --data/],
    [[...containers, '--container-path', '/var/lib/agent/x'], /--container-path .* overlaps --data/],
    [[...containers, '--container-uids', '1000-200000'], /--container-uids 1000-200000 is not FROM-TO/],
    [[...containers, '--container-uids', '100000-165534'], /--container-uids .* is not FROM-TO/],
    [[...containers, '--container-uids', '4294901760-4294967295'], /--container-uids .* is not FROM-TO/],
    [[...base, '--package-url', 'http://h'], /--package-url needs --package-key/],
    [[...base, '--package-path', '/srv'], /--package-path needs --package-key/],
    [[...base, '--package-scripts'], /--package-scripts needs --package-key/],
    [[...packages, '--package-url', 'file:///srv'], /--package-url file:\/\/\/srv is not an http: or https: URL/],
    [[...packages, '--package-url', 'h/a'], /--package-url h\/a is not an http: or https: URL/],
    [[...packages, '--package-path', 'srv'], /--package-path srv is not an absolute path/],
    [[...packages, '--package-trial', '0'], /--package-trial 0 is not a number of seconds/],
    [[...packages, '--package-trial', '1.5'], /--package-trial 1\.5 is not a number of seconds/],
    [[...packages, '--package-trial', '100000'], /--package-trial 100000 is not a number of seconds/],
  ];
  for (const [args, message] of rows) {
    t.throws(() => parseAgentOptions(args), { name: 'AgentUsageError', message }, args.join(' '));
  }
});
