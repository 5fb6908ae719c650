import t from 'tap';
import { parseBootModules } from '../../../../lib/control/servers/boot/boot-modules.ts';

const base64 = (bytes: number) => Buffer.alloc(bytes, 'x').toString('base64');
const good = { path: 'etc/ppt_aliases', content: base64(10) };
const PREFIX = 'Values provided for boot_modules contain errors: ';

t.test('modules that may be stored, with their type', async (t) => {
  const rows: [string, object][] = [
    ['without a type', good],
    ['with its type', { ...good, type: 'base64' }],
    ['4 KiB', { ...good, content: base64(4096) }],
    ['empty', { ...good, content: '' }],
    ['dots within names', { ...good, path: 'a..b/x...y/.hidden' }],
  ];
  for (const [name, module] of rows) t.same(parseBootModules([module]), [{ ...module, type: 'base64' }], name);
  t.same(parseBootModules([]), []);
});

t.test('modules that are refused, in the words of Triton', async (t) => {
  const path = (at: string) => `Invalid path for boot_module: '${at}' (path cannot contain '.' or '..')`;
  const file = (at: string) =>
    `Invalid path for boot_module: '${at}' (path must be relative, name a file and be printable)`;
  const rows: [string, unknown, string][] = [
    ['no object', 'x', 'Unexpected format for boot_module: "x"'],
    ['a list', [], 'Unexpected format for boot_module: []'],
    ['null', null, 'Unexpected format for boot_module: null'],
    ['no content', { path: 'x' }, 'Unexpected format for boot_module: {"path":"x"}'],
    ['a path that is not text', { ...good, path: 5 }, 'Unexpected format for boot_module: {"path":5'],
    ['another type', { ...good, type: 'hex' }, "Unsupported type hex for module 'etc/ppt_aliases'"],
    ['a path out of the folder', { ...good, path: '../x' }, path('../x')],
    ['a path that goes up', { ...good, path: 'a/../../x' }, path('a/../../x')],
    ['a path with a dot', { ...good, path: './x' }, path('./x')],
    ['an empty name', { ...good, path: 'a//x' }, path('a//x')],
    ['no path', { ...good, path: '' }, path('')],
    ['an absolute path', { ...good, path: '/etc/x' }, file('/etc/x')],
    ['a folder', { ...good, path: 'a/' }, file('a/')],
    ['a line break', { ...good, path: 'a\nb' }, file('a\nb')],
    ['a path that another one has', good, "Repeated path for boot_module: 'etc/ppt_aliases'"],
    ['a long path', { ...good, path: 'x'.repeat(1001) }, path('x'.repeat(200))],
    [
      'too long',
      { ...good, content: base64(4097) },
      "Module 'etc/ppt_aliases' exceeds the maximum allowed size of 4KB",
    ],
    ['no base64', { ...good, content: '!' }, "Contents for module 'etc/ppt_aliases' must be base64 encoded"],
    [
      'base64 without its end',
      { ...good, content: 'eHg' },
      "Contents for module 'etc/ppt_aliases' must be base64 encoded",
    ],
  ];
  for (const [name, module, message] of rows) {
    const refusal = refusalOf([good, module]);
    t.match(refusal, { code: 'InvalidArgument', statusCode: 409 }, name);
    t.ok(refusal?.message.startsWith(PREFIX + message), `${name}: ${refusal?.message}`);
  }
});

function refusalOf(modules: readonly unknown[]): Error | undefined {
  try {
    parseBootModules(modules);
    return undefined;
  } catch (error) {
    return error as Error;
  }
}

t.test('all errors are listed, and there is a maximum of modules', async (t) => {
  const wrong = [{ ...good, type: 'hex', path: './x' }, 5];
  t.throws(() => parseBootModules(wrong), {
    message: `${PREFIX}Unsupported type hex for module './x',\nInvalid path for boot_module: './x' (path cannot contain '.' or '..'),\nUnexpected format for boot_module: 5`,
  });
  const modules = (count: number) => Array.from({ length: count }, (_, n) => ({ ...good, path: `etc/${n}` }));
  t.equal(parseBootModules(modules(16)).length, 16);
  t.throws(() => parseBootModules(modules(17)), {
    message: `${PREFIX}There are 17 modules; a server may have at most 16`,
  });
});
