import { deepStrictEqual } from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { realpathSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, posix } from 'node:path';
import fc from 'fast-check';
import t from 'tap';
import type { ContainerSpec } from '../../../lib/agent/containers/container.ts';
import { InvalidContainerSpecError } from '../../../lib/agent/containers/container-errors.ts';
import { parseContainerSpec } from '../../../lib/agent/containers/container-spec.ts';

const place = realpathSync(t.testdir({ images: { base: {}, app: {} }, shared: { data: { deep: {} } }, other: {} }));
const at = (...names: string[]) => join(place, ...names);
symlinkSync(at('other'), at('shared', 'out'));
symlinkSync(at('shared', 'data'), at('shared', 'in'));
writeFileSync(at('shared', 'file'), '');
const allowed = { directories: [at('shared')], layerDirectories: [at('images')], bridges: ['br0', 'br1'] };

const base = { id: 'web-1', root: { layers: [at('images', 'base')] }, process: { args: ['/bin/serve'] } };
const nic = { name: 'eth0', bridge: 'br0' };
const parse = (change: object = {}) => parseContainerSpec({ ...base, ...change }, allowed);
const withProcess = (change: object) => ({ process: { ...base.process, ...change } });
const withNic = (change: object) => ({ nics: [{ ...nic, ...change }] });
const withMount = (change: object) => ({ mounts: [{ source: at('shared'), target: '/data', ...change }] });

t.test('what is not said has the usual values', async (t) => {
  t.same(await parse(), {
    id: 'web-1',
    hostname: 'web-1',
    root: { layers: [at('images', 'base')], isReadOnly: false },
    process: { args: ['/bin/serve'], env: {}, directory: '/', uid: 0, gid: 0 },
    limits: { memoryBytes: 300 * 1024 * 1024, cpuPercent: 100, processes: 2_048 },
    mounts: [],
    nics: [],
    resolvers: [],
    metadata: {},
    log: { maxBytes: 10 * 1024 * 1024, maxFiles: 10 },
  });
});

const accepted: Record<string, { ask: object; get: Partial<ContainerSpec> }> = {
  'a host name with dots': { ask: { hostname: 'Web-1.example' }, get: { hostname: 'Web-1.example' } },
  'an id that is not a host name': { ask: { id: `${'a'.repeat(62)}--` }, get: { hostname: 'a'.repeat(62) } },
  'names of variables that no shell exports': {
    ask: withProcess({ env: { 'spring.port': '1', constructor: 'x' } }),
    get: {
      process: { ...base.process, env: { 'spring.port': '1', constructor: 'x' }, directory: '/', uid: 0, gid: 0 },
    },
  },
  'a link that stays in an allowed directory': {
    ask: withMount({ source: at('shared', 'in', 'deep') }),
    get: { mounts: [{ source: at('shared', 'data', 'deep'), target: '/data', isReadOnly: false }] },
  },
  'mounts in an order in which none hides another': {
    ask: { mounts: ['/a/b', '/a', '/a-b'].map((target) => ({ source: at('shared'), target, isReadOnly: true })) },
    get: { mounts: ['/a', '/a-b', '/a/b'].map((target) => ({ source: at('shared'), target, isReadOnly: true })) },
  },
  'addresses and MAC in their canonical form': {
    ask: withNic({ mac: '02:AA:00:00:00:0F', addresses: ['10.0.0.5/24', 'FD00:0::5/64'], gateway: 'fd00:0:0::1' }),
    get: { nics: [{ ...nic, mac: '02:aa:00:00:00:0f', addresses: ['10.0.0.5/24', 'fd00::5/64'], gateway: 'fd00::1' }] },
  },
  'both addresses of a point-to-point network': {
    ask: withNic({ addresses: ['10.0.0.0/31'], gateway: '10.0.0.1' }),
    get: { nics: [{ ...nic, addresses: ['10.0.0.0/31'], gateway: '10.0.0.1' }] },
  },
  'a gateway of each family': {
    ask: {
      nics: [
        { ...nic, addresses: ['10.0.0.5/24'], gateway: '10.0.0.1' },
        { name: 'eth1', bridge: 'br1', addresses: ['fd00::5/64'], gateway: 'fd00::1' },
      ],
    },
    get: {},
  },
  'its own server for names': { ask: { resolvers: ['127.0.0.1', '::1'] }, get: { resolvers: ['127.0.0.1', '::1'] } },
};

for (const [name, { ask, get }] of Object.entries(accepted))
  t.test(`accepts ${name}`, async (t) => t.match(await parse(ask), get));

const MIB = 1024 * 1024;
const refused: Record<string, [ask: object, message: RegExp]> = {
  'no id': [{ id: undefined }, /^id is missing; give a text$/],
  'an id with a slash': [{ id: '../x' }, /^id is not an id; write at most 64 lower-case/],
  'an id with a final newline': [{ id: 'a\n' }, /^id is not an id/],
  'a long id': [{ id: 'a'.repeat(65) }, /^id is not an id/],
  'an unknown field': [{ privileged: true }, /^container has unknown fields \("privileged"\); remove them/],
  'an unknown field below': [withNic({ vlan: 1 }), /^nics\.0 has unknown fields/],
  'a host name with an underscore': [{ hostname: 'a_b' }, /^hostname is not a host name; write/],
  'a label that ends with a dash': [{ hostname: 'a-.b' }, /^hostname /],
  'a host name that Linux cannot set': [{ hostname: `${'a'.repeat(60)}.${'b'.repeat(4)}` }, /^hostname /],
  'no layers': [{ root: { layers: [] } }, /^root\.layers is empty; name/],
  'a layer elsewhere': [{ root: { layers: [at('other')] } }, /^root\.layers\.0 is not allowed/],
  'no arguments': [withProcess({ args: [] }), /^process\.args is empty; name a program/],
  'an empty program': [withProcess({ args: ['', 'a'] }), /^process\.args\.0 is empty/],
  'too many arguments': [withProcess({ args: Array(1_001).fill('a') }), /^process\.args is more than 1000; give/],
  'an argument with NUL': [withProcess({ args: ['a\0'] }), /^process\.args\.0 holds a NUL character; remove/],
  'an argument that is not Unicode': [withProcess({ args: ['\ud800'] }), /^process\.args\.0 holds half of a surrogate/],
  'an argument of many bytes': [
    withProcess({ args: ['é'.repeat(64 * 1024)] }),
    /^process\.args\.0 is longer than 131071/,
  ],
  'arguments of many bytes together': [
    withProcess({ args: Array(17).fill('a'.repeat(128 * 1024 - 1)) }),
    /^process\.args and env are longer than 2080768 bytes together; pass/,
  ],
  'a variable with =': [withProcess({ env: { 'a=b': '' } }), /^process\.env\.a=b is not a variable name; write/],
  'a variable with NUL': [withProcess({ env: { a: '\0' } }), /^process\.env\.a holds a NUL/],
  'a variable that objects lose': [
    withProcess({ env: JSON.parse('{"__proto__": "x"}') }),
    /^process\.env\.__proto__ cannot be a name; choose/,
  ],
  'a variable that is too long with its name': [
    withProcess({ env: { name: 'a'.repeat(128 * 1024 - 5) } }),
    /^process\.env\.name is longer than 131071 bytes with its name/,
  ],
  'too many variables': [
    withProcess({ env: Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`v${index}`, ''])) }),
    /^process\.env holds more than 1000; remove some/,
  ],
  'a relative directory': [
    withProcess({ directory: 'srv' }),
    /^process\.directory is not an absolute path; begin with/,
  ],
  'a directory of the kernel': [
    withProcess({ directory: '/proc/self/fd/7' }),
    /^process\.directory must not be \/proc, \/sys, \/dev or below; choose another place/,
  ],
  'a directory with ..': [withProcess({ directory: '/srv/../etc' }), /^process\.directory .*; write "\/etc"/],
  'a directory with a final slash': [withProcess({ directory: '/srv/' }), /^process\.directory .*; write "\/srv"/],
  'a long directory': [withProcess({ directory: '/a'.repeat(2_048) }), /^process\.directory is longer than 4095/],
  'a long name of a directory': [withProcess({ directory: `/${'a'.repeat(256)}` }), /^process\.directory has a part/],
  'a user outside of the range': [withProcess({ uid: 65_536 }), /^process\.uid is more than 65535; give at most/],
  'a negative group': [withProcess({ gid: -1 }), /^process\.gid is less than 0; give at least/],
  'memory in which nothing starts': [{ limits: { memoryBytes: 6 * MIB - 1 } }, /^limits\.memoryBytes is less than/],
  'half a percent': [{ limits: { cpuPercent: 0.5 } }, /^limits\.cpuPercent is not a whole number; give/],
  'no processes': [{ limits: { processes: 15 } }, /^limits\.processes is less than 16/],
  'memory as a text': [{ limits: { memoryBytes: '64m' } }, /^limits\.memoryBytes is not a number; give a number/],
  'a mount over /proc': [withMount({ target: '/proc/sys' }), /^mounts\.0\.target must not be/],
  'a mount over the root': [withMount({ target: '/' }), /^mounts\.0\.target must not be/],
  'two mounts at one place': [
    { mounts: [withMount({}).mounts[0], withMount({}).mounts[0]] },
    /^mounts\.1\.target repeats "\/data"; mount one/,
  ],
  'a mount from elsewhere': [withMount({ source: '/etc' }), /^mounts\.0\.source is not allowed by this agent; choose/],
  'a mount from elsewhere that does not exist': [withMount({ source: '/none' }), /^mounts\.0\.source is not allowed/],
  'a mount from beside': [withMount({ source: `${at('shared')}2` }), /^mounts\.0\.source is not allowed/],
  'a mount through a link that leads out': [
    withMount({ source: at('shared', 'out') }),
    /^mounts\.0\.source leads out of the allowed directories/,
  ],
  'a mount of a file': [withMount({ source: at('shared', 'file') }), /^mounts\.0\.source is not a directory; name/],
  'a mount that does not exist': [withMount({ source: at('shared', 'none') }), /^mounts\.0\.source .*ENOENT.*create/],
  'a bridge that is not allowed': [withNic({ bridge: 'br2' }), /^nics\.0\.bridge "br2" is not allowed by this agent/],
  'a long name of an interface': [withNic({ name: 'a'.repeat(16) }), /^nics\.0\.name is not an interface name/],
  'loopback as an interface': [withNic({ name: 'lo' }), /^nics\.0\.name is not an interface name/],
  'an interface that reads as an option': [withNic({ name: '-all' }), /^nics\.0\.name is not an interface name/],
  'two interfaces of one name': [{ nics: [nic, nic] }, /^nics\.1\.name repeats eth0; each name/],
  'two interfaces with one MAC': [
    {
      nics: [
        { ...nic, mac: '02:00:00:00:00:aa' },
        { ...nic, name: 'eth1', mac: '02:00:00:00:00:AA' },
      ],
    },
    /^nics\.1\.mac repeats 02:00:00:00:00:aa/,
  ],
  'a multicast MAC': [withNic({ mac: '01:00:00:00:00:01' }), /^nics\.0\.mac is not a unicast MAC address; write/],
  'a MAC of zeros': [withNic({ mac: '00:00:00:00:00:00' }), /^nics\.0\.mac /],
  'an address without a prefix': [
    withNic({ addresses: ['10.0.0.5'] }),
    /^nics\.0\.addresses\.0 is not an address with/,
  ],
  'the address of the network': [withNic({ addresses: ['10.0.0.0/24'] }), /^nics\.0\.addresses\.0 is the network/],
  'the broadcast address': [withNic({ addresses: ['10.0.1.255/23'] }), /^nics\.0\.addresses\.0 is the broadcast/],
  'a loopback address': [withNic({ addresses: ['127.0.0.1/8'] }), /^nics\.0\.addresses\.0 is loopback/],
  'a multicast address': [withNic({ addresses: ['ff02::1/64'] }), /^nics\.0\.addresses\.0 is loopback, multicast/],
  'an address with a zone': [withNic({ addresses: ['fe80::1%eth0/64'] }), /^nics\.0\.addresses\.0 is not an address/],
  'IPv4 within IPv6': [withNic({ addresses: ['::ffff:10.0.0.1/120'] }), /^nics\.0\.addresses\.0 is loopback/],
  'a very wide network': [withNic({ addresses: ['10.0.0.1/7'] }), /^nics\.0\.addresses\.0 is in a network wider/],
  'an address twice': [
    withNic({ addresses: ['fd00::5/64', 'fd00:0::5/48'] }),
    /^nics\.0\.addresses\.1 repeats fd00::5/,
  ],
  'a gateway elsewhere': [
    withNic({ addresses: ['10.0.0.5/24'], gateway: '10.0.1.1' }),
    /^nics\.0\.gateway is not another machine in the network of one of the addresses; choose/,
  ],
  'itself as the gateway': [withNic({ addresses: ['10.0.0.5/24'], gateway: '10.0.0.5' }), /^nics\.0\.gateway /],
  'a gateway of another family': [withNic({ addresses: ['10.0.0.5/24'], gateway: 'fd00::1' }), /^nics\.0\.gateway /],
  'two gateways of one family': [
    {
      nics: [
        { ...nic, addresses: ['10.0.0.5/24'], gateway: '10.0.0.1' },
        { ...nic, name: 'eth1', addresses: ['10.0.1.5/24'], gateway: '10.0.1.1' },
      ],
    },
    /^nics\.1\.gateway is a second one of its family/,
  ],
  'a resolver by name': [{ resolvers: ['dns.example'] }, /^resolvers\.0 is not the IP address of a name server; write/],
  'too many resolvers': [{ resolvers: ['10.0.0.1', '10.0.0.2', '10.0.0.3', '10.0.0.4'] }, /^resolvers is more than 3/],
  'large metadata': [{ metadata: { a: 'é'.repeat(32 * 1024) } }, /^metadata is larger than 65536 bytes; keep/],
  'metadata that is not a text': [{ metadata: { a: 1 } }, /^metadata\.a is not a text; give a text/],
  'tiny logs': [{ log: { maxBytes: 1_000 } }, /^log\.maxBytes is less than 65536/],
  'no log': [{ log: { maxFiles: 0 } }, /^log\.maxFiles is less than 1/],
};

for (const [name, [ask, message]] of Object.entries(refused))
  t.test(`refuses ${name}`, async (t) => {
    const error = await parse(ask).catch((one) => one);
    t.type(error, InvalidContainerSpecError);
    const [first] = (error as InvalidContainerSpecError).errors ?? [];
    t.match(`${first?.field} ${first?.message}`, message);
    t.ok((error as Error).message.includes(`${first?.field} ${first?.message}`));
  });

for (const input of [undefined, null, 'text', [], 7])
  t.test(`refuses ${JSON.stringify(input)} as a whole`, async (t) => {
    await t.rejects(parseContainerSpec(input, allowed), { errors: [{ field: 'container' }] });
  });

t.test('names all wrong fields together, and a limited number of them', async (t) => {
  const wrong = await parse({ id: '', hostname: '_', log: { maxFiles: 0 } }).catch((error) => error);
  t.same(
    wrong.errors.map(({ field }: { field: string }) => field),
    ['id', 'hostname', 'log.maxFiles'],
  );
  const many = await parse(withProcess({ args: Array(1_000).fill('\0') })).catch((error) => error);
  t.equal(many.errors.length, 20);
});

t.test('execve takes the longest arguments and environment', async (t) => {
  const rest = 2 * MIB - 16 * 1024 - 15 * (128 * 1024 + 8);
  const args = ['/bin/true', ...Array(14).fill('a'.repeat(128 * 1024 - 1))];
  const env = { A: 'b'.repeat(128 * 1024 - 3), B: 'c'.repeat(rest - 3 - 8 - 10 - 8) };
  t.equal((await parse(withProcess({ args, env }))).process.args.length, 15);
  await t.rejects(parse(withProcess({ args: [...args, ''], env })), InvalidContainerSpecError);
  const [file = '', ...others] = args;
  t.match(spawnSync(file, others, { env, argv0: file }), { status: 0 });
});

const hostile = fc.oneof(
  fc.constantFrom(
    '',
    '/',
    '/proc/x',
    '/a/../b',
    '\0',
    '\ud800',
    '10.0.0.0/24',
    '10.0.0.5',
    'fe80::1%eth0',
    '__proto__',
  ),
  fc.constantFrom('lo', 'all', '/dev', '../x', 'a\n', 'A=b', '01:00:00:00:00:00', '0A:00:00:00:00:01'),
  fc.constantFrom(at('shared', 'in'), at('shared', 'out'), at('shared', 'file'), at('other'), '/etc'),
  fc.string({ unit: 'binary' }),
  fc.ipV4().map((one) => `${one}/24`),
  fc.ipV6(),
);
/** Usually one of these, sometimes a hostile text. */
const near = (...good: string[]) =>
  fc.oneof({ weight: 60, arbitrary: fc.constantFrom(...good) }, { weight: 1, arbitrary: hostile });
const some = <Value>(value: fc.Arbitrary<Value>) => fc.array(value, { maxLength: 2 });
const inputs = fc.record(
  {
    id: near('a', 'b-1', '0'),
    hostname: near('a', 'b.example'),
    root: fc.record({
      layers: fc.array(near(at('images', 'base'), at('images', 'app')), { minLength: 1, maxLength: 3 }),
    }),
    process: fc.record(
      {
        args: fc.array(near('a', 'é', '-x'), { minLength: 1, maxLength: 3 }),
        env: fc.dictionary(near('A', 'b.c', ' '), near('', 'x')),
        directory: near('/', '/srv', '/a b'),
        uid: fc.integer({ min: -1, max: 65_536 }),
      },
      { requiredKeys: ['args'] },
    ),
    limits: fc.record({ cpuPercent: fc.integer({ min: -1, max: 1_000 }) }, { requiredKeys: [] }),
    mounts: some(
      fc.record({ source: near(at('shared'), at('shared', 'in', 'deep')), target: near('/data', '/a', '/procs') }),
    ),
    nics: some(
      fc.record(
        {
          name: near('eth0', 'eth1', 'net.2'),
          bridge: near('br0', 'br1'),
          mac: near('02:00:00:00:00:01', '0A:00:00:00:00:02'),
          addresses: some(near('10.0.0.5/24', '10.0.0.6/16', 'fd00::5/64', 'FD00:0::6/64')),
          gateway: near('10.0.0.1', 'fd00::1', 'fd00:0::1'),
        },
        { requiredKeys: ['name', 'bridge'] },
      ),
    ),
    resolvers: some(near('10.0.0.1', '127.0.0.1', 'fd00::1')),
    metadata: fc.dictionary(near('a', 'b'), near('', 'x')),
  },
  { requiredKeys: ['id', 'root', 'process'] },
);

t.test('whatever is asked for, it is refused with sentences or it follows the rules', async (t) => {
  let parsed = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(inputs, fc.anything()), async (input) => {
      const spec = await parseContainerSpec(input, allowed).catch((error) => {
        if (!(error instanceof InvalidContainerSpecError)) throw error;
        return undefined;
      });
      if (spec === undefined) return;
      parsed += 1;
      deepStrictEqual(flawsOf(spec), []);
      deepStrictEqual(JSON.parse(JSON.stringify(spec)), spec);
      deepStrictEqual(await parseContainerSpec(spec, allowed), spec);
    }),
    { numRuns: 2_000 },
  );
  t.ok(parsed > 100, `${parsed} were accepted`);
});

function flawsOf({ id, hostname, process, mounts, nics, root }: ContainerSpec): string[] {
  const words = [...process.args, ...Object.entries(process.env).flat(), process.directory, hostname];
  const isIn = (path: string, directory: string) => path === directory || path.startsWith(`${directory}/`);
  const isSystem = (path: string) => path === '/' || ['/proc', '/sys', '/dev'].some((one) => isIn(path, one));
  const rules: Record<string, boolean> = {
    'id is a name of a file': /^[0-9a-z][0-9a-z-]*$/.test(id) && id.length <= 64,
    'words end at their end': words.every((one) => !one.includes('\0')),
    'names of variables have no =': Object.keys(process.env).every((name) => name !== '' && !name.includes('=')),
    'paths are normal': [process.directory, ...mounts.map((one) => one.target)].every(
      (path) => path.startsWith('/') && posix.resolve(path) === path,
    ),
    'targets are none of the system': mounts.every(({ target }) => !isSystem(target)),
    'sources are allowed': mounts.every(({ source }) => isIn(realpathSync(source), at('shared'))),
    'layers are images': root.layers.every((layer) => isIn(realpathSync(layer), at('images'))),
    'bridges are allowed': nics.every(({ bridge }) => allowed.bridges.includes(bridge)),
    'interfaces are words': nics.every(({ name }) => /^[A-Za-z][\w.-]{0,14}$/.test(name) && name !== 'lo'),
    'interfaces have one name each': new Set(nics.map(({ name }) => name)).size === nics.length,
    'a gateway is reached': nics.every(({ gateway, addresses }) => gateway === undefined || addresses.length > 0),
  };
  return Object.keys(rules).filter((rule) => rules[rule] !== true);
}
