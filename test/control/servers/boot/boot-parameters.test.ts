import t from 'tap';
import { mergeBoot, replaceBoot, withoutBootSecrets } from '../../../../lib/control/servers/boot/boot-parameters.ts';
import { INITIAL_DEFAULTS } from '../../../../lib/control/servers/server.ts';

const module = { path: 'a', content: 'eA==', type: 'base64' };
const before = {
  boot_platform: 'one',
  boot_params: { a: '1', b: { c: 2 } },
  kernel_flags: { '-k': true },
  boot_modules: [module],
  default_console: 'vga',
  serial: 'ttya',
};

t.test('a merge changes what is given', async (t) => {
  const rows: [string, Parameters<typeof mergeBoot>[1], object][] = [
    ['nothing', {}, {}],
    ['an argument', { kernelArgs: { d: 'x' } }, { boot_params: { ...before.boot_params, d: 'x' } }],
    ['an argument is replaced whole', { kernelArgs: { b: {} } }, { boot_params: { a: '1', b: {} } }],
    ['null removes an argument', { kernelArgs: { a: null, z: null } }, { boot_params: { b: { c: 2 } } }],
    ['null removes a flag', { kernelFlags: { '-k': null, '-m': 'x' } }, { kernel_flags: { '-m': 'x' } }],
    ['no modules', { modules: [] }, { boot_modules: [] }],
    [
      'texts',
      { platform: 'two', console: 'text', serial: '' },
      { boot_platform: 'two', default_console: 'text', serial: '' },
    ],
    [
      'a name that is special',
      { kernelArgs: JSON.parse('{"__proto__": "x"}') },
      { boot_params: { ...before.boot_params, ['__proto__']: 'x' } },
    ],
  ];
  for (const [name, change, after] of rows) t.strictSame(mergeBoot(before, change), { ...before, ...after }, name);
});

t.test('a replacement gives initial values to what is left out', async (t) => {
  t.strictSame(replaceBoot({}, 'latest'), { ...INITIAL_DEFAULTS, boot_platform: 'latest' });
  t.strictSame(replaceBoot({ kernelArgs: { a: null, b: '1' }, serial: 'ttya' }, ''), {
    ...INITIAL_DEFAULTS,
    boot_params: { b: '1' },
    serial: 'ttya',
  });
});

t.test('all arguments together have a maximum, also those that were there before', async (t) => {
  const long = { one: 'x'.repeat(16_000) };
  const some = { ...before, boot_params: long };
  t.strictSame(mergeBoot(before, { kernelArgs: long }).boot_params.one, long.one);
  t.throws(() => mergeBoot(some, { kernelArgs: { other: 'x'.repeat(500) } }), {
    code: 'InvalidArgument',
    message: /^kernel_args has 165\d\d bytes as JSON; a server may have 16384$/,
  });
  t.throws(() => mergeBoot(before, { kernelFlags: { one: 'é'.repeat(9_000) } }), { message: /^kernel_flags has/ });
});

t.test('who may not change them sees names, and not what they say', async (t) => {
  t.strictSame(withoutBootSecrets({ ...before, comments: 'x' }), {
    ...before,
    comments: 'x',
    boot_params: { a: '(secret)', b: '(secret)' },
    boot_modules: [{ ...module, content: '(secret)' }],
    kernel_flags: { '-k': '(secret)' },
  });
  const reported = { headnode: 'true', hostname: 'h', root_shadow: 'hash', ['__proto__']: 'x' };
  t.strictSame(withoutBootSecrets({ sysinfo: { UUID: 'u', 'Boot Parameters': reported } }), {
    sysinfo: {
      UUID: 'u',
      'Boot Parameters': { headnode: 'true', hostname: 'h', root_shadow: '(secret)', ['__proto__']: '(secret)' },
    },
  });
  t.strictSame(withoutBootSecrets({ sysinfo: { 'Boot Parameters': 'a=b' } }), {
    sysinfo: { 'Boot Parameters': '(secret)' },
  });
  for (const sysinfo of [{ UUID: 'u' }, {}, null]) t.strictSame(withoutBootSecrets({ sysinfo }), { sysinfo });
  t.strictSame(withoutBootSecrets({}), {});
  t.notMatch(JSON.stringify(withoutBootSecrets({ boot_modules: ['key', null, 5] })), /key/);
});
