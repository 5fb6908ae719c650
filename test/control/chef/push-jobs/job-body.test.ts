/** Every key of a job, what is wrong with it, and Chef's text for that. */
import t from 'tap';
import { chefErrorAnswer } from '../../../../lib/control/chef/error-form.ts';
import { duplicateKeyIn } from '../../../../lib/control/chef/push-jobs/duplicate-key.ts';
import { parseJobBody } from '../../../../lib/control/chef/push-jobs/job-body.ts';
import { InvalidJobError } from '../../../../lib/control/chef/pushy-errors.ts';

const LEAST = { command: 'chef-client', nodes: ['web-1', 'web-2'] };
const bytes = (body: unknown) => Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));

t.test('a job with the least has the defaults of Chef', async (t) => {
  t.same(parseJobBody(bytes(LEAST)), {
    command: 'chef-client',
    nodes: ['web-1', 'web-2'],
    quorum: 2,
    runTimeoutMs: 3_600_000,
    user: undefined,
    dir: undefined,
    env: undefined,
    file: undefined,
    capture: false,
  });
});

/** Names and values of so many bytes of UTF-8. */
const envOf = (bytes: number) => ({ AB: 'é'.repeat(20_000), A: 'x'.repeat(bytes - 40_003) });

t.test('each key has its meaning', async (t) => {
  for (const [given, expected] of [
    [{ command: '' }, { command: '' }],
    [{ quorum: 1 }, { quorum: 1 }],
    [{ quorum: 0 }, { quorum: 1 }],
    [{ quorum: 1.5 }, { quorum: 2 }],
    [{ run_timeout: 0.5 }, { runTimeoutMs: 500 }],
    [{ run_timeout: 0 }, { runTimeoutMs: 1 }],
    [{ run_timeout: 86_400 }, { runTimeoutMs: 86_400_000 }],
    [{ user: 'deploy' }, { user: 'deploy' }],
    [{ dir: '/srv' }, { dir: '/srv' }],
    [{ env: { A: '1', B: '' } }, { env: { A: '1', B: '' } }],
    [{ env: {} }, { env: {} }],
    [{ env: envOf(65_536) }, { env: envOf(65_536) }],
    [{ file: 'raw:a:b\nc' }, { file: Buffer.from('a:b\nc') }],
    [{ file: 'raw:' }, { file: Buffer.alloc(0) }],
    [{ file: `raw:${'é'.repeat(50_000)}` }, { file: Buffer.from('é'.repeat(50_000)) }],
    [{ file: 'base64:AAEC/w==' }, { file: Buffer.from([0, 1, 2, 255]) }],
    [{ capture_output: true }, { capture: true }],
  ] as const)
    t.match(parseJobBody(bytes({ ...LEAST, ...given })), expected, JSON.stringify(given).slice(0, 60));
});

const numberOf = (key: string) => `invalid type supplied for ${key} (expected a number)`;
const textOf = (key: string) => `invalid type supplied for ${key} (expected a string)`;
const FORM = "invalid file contents (expected 'base64:...' or 'raw:...')";
const BASE64 = "invalid file contents (couldn't decode base64 string)";
const SIZE = 'invalid file size (must be <= 100000 bytes)';
const ENV = 'invalid type supplied for env (expected an object of strings)';
const CAPTURE = 'invalid type supplied for capture_output (expected a boolean)';
const manyVariables = Object.fromEntries(Array.from({ length: 1_001 }, (_, index) => [`V${index}`, '']));
const manyNodes = Array.from({ length: 20_001 }, (_, index) => `n${index}`);

t.test('what is wrong is refused with the text of Chef, and named', async (t) => {
  for (const [given, field, text] of [
    [{ nodes: ['a'] }, 'command', 'invalid command supplied'],
    [{ ...LEAST, command: 7 }, 'command', 'invalid command supplied'],
    [{ ...LEAST, command: null }, 'command', 'invalid command supplied'],
    [{ ...LEAST, command: 'x'.repeat(32_769) }, 'command', 'invalid command supplied'],
    [{ ...LEAST, command: 'a\0b' }, 'command', 'invalid command supplied'],
    [{ command: 'x' }, 'nodes', 'at least one node must be supplied'],
    [{ ...LEAST, nodes: [] }, 'nodes', 'at least one node must be supplied'],
    [{ ...LEAST, nodes: 'web-1' }, 'nodes', 'at least one node must be supplied'],
    [{ ...LEAST, nodes: ['a', 1] }, 'nodes', 'invalid nodes supplied'],
    [{ ...LEAST, nodes: ['a', 'b', 'a'] }, 'nodes', 'invalid nodes supplied'],
    [{ ...LEAST, nodes: manyNodes }, 'nodes', 'invalid nodes supplied'],
    [{ ...LEAST, quorum: '80%' }, 'quorum', numberOf('quorum')],
    [{ ...LEAST, quorum: null }, 'quorum', numberOf('quorum')],
    [{ ...LEAST, quorum: -1 }, 'quorum', 'invalid quorum supplied'],
    [{ ...LEAST, quorum: 3 }, 'quorum', 'invalid quorum supplied'],
    [{ ...LEAST, run_timeout: '300' }, 'run_timeout', numberOf('run_timeout')],
    [{ ...LEAST, run_timeout: -1 }, 'run_timeout', 'invalid run_timeout supplied'],
    [{ ...LEAST, run_timeout: 1e12 }, 'run_timeout', 'invalid run_timeout supplied'],
    [{ ...LEAST, user: 7 }, 'user', textOf('user')],
    [{ ...LEAST, user: '' }, 'user', 'invalid user supplied'],
    [{ ...LEAST, user: 'x'.repeat(33) }, 'user', 'invalid user supplied'],
    [{ ...LEAST, dir: ['/'] }, 'dir', textOf('dir')],
    [{ ...LEAST, dir: '' }, 'dir', 'invalid dir supplied'],
    [{ ...LEAST, env: 'A=1' }, 'env', ENV],
    [{ ...LEAST, env: ['A=1'] }, 'env', ENV],
    [{ ...LEAST, env: { A: 1 } }, 'env', ENV],
    [{ ...LEAST, env: { A: 'b\0' } }, 'env', 'invalid env supplied'],
    [{ ...LEAST, env: manyVariables }, 'env', 'invalid env supplied'],
    [{ ...LEAST, env: envOf(65_537) }, 'env', 'invalid env supplied'],
    ['{"command":"x","nodes":["a"],"env":{"A":"1","\\u0041":"2"}}', 'env', 'invalid environment value (duplicate key)'],
    [{ ...LEAST, file: 7 }, 'file', FORM],
    [{ ...LEAST, file: 'text' }, 'file', FORM],
    [{ ...LEAST, file: 'base64:???' }, 'file', BASE64],
    [{ ...LEAST, file: 'base64:AAA' }, 'file', BASE64],
    [{ ...LEAST, file: `raw:${'x'.repeat(100_001)}` }, 'file', SIZE],
    [{ ...LEAST, file: `raw:${'é'.repeat(50_001)}` }, 'file', SIZE],
    [{ ...LEAST, file: `base64:${Buffer.alloc(100_001).toString('base64')}` }, 'file', SIZE],
    [{ ...LEAST, capture_output: 'true' }, 'capture_output', CAPTURE],
    [{ ...LEAST, concurrency: 2 }, 'concurrency', 'invalid key supplied'],
    ['{"command":"x","nodes":["a"],"__proto__":{}}', '__proto__', 'invalid key supplied'],
    ['{', undefined, 'invalid JSON'],
    ['', undefined, 'invalid JSON'],
    ['[]', undefined, 'invalid JSON'],
    ['null', undefined, 'invalid JSON'],
    [`{"nodes":${'['.repeat(100)}${']'.repeat(100)}}`, undefined, 'invalid JSON'],
    [`{"nodes":[${'1,'.repeat(60_000)}1]}`, undefined, 'invalid JSON'],
  ] as const) {
    const about = `${field}: ${JSON.stringify(given).slice(0, 60)}`;
    try {
      parseJobBody(bytes(given));
      t.fail(about);
    } catch (error) {
      const { status, body } = chefErrorAnswer(error);
      t.ok(error instanceof InvalidJobError, about);
      t.equal(status, 400, about);
      const { error: told, field: named } = body as { error: unknown; field: unknown };
      t.same({ told, named }, { told: text, named: field }, about);
    }
  }
  t.throws(() => parseJobBody(Buffer.from([0x7b, 0xff, 0x7d])), { message: 'invalid JSON' });
});

t.test('what Chef has no text for is explained by the rule that it breaks', (t) => {
  const given = bytes({ ...LEAST, env: { A: 'b\0' } });
  t.throws(() => parseJobBody(given), { message: 'invalid env supplied', detail: /NUL/ });
  const tooLong = bytes({ ...LEAST, user: 'x'.repeat(33) });
  t.throws(() => parseJobBody(tooLong), { message: 'invalid user supplied', detail: /32/ });
  t.end();
});

t.test('names that an object has twice are found at its own level only', async (t) => {
  for (const [text, found] of [
    ['{"env":{"A":"1","B":"2"}}', undefined],
    ['{"env":{"A":"1","A":"2"}}', 'A'],
    ['{"x":{"A":"1","A":"2"},"env":{"A":"1"}}', undefined],
    ['{"env":{"A":{"A":"1"}}}', undefined],
    ['{"env":{"A":"\\"A\\": {","B":"x"}}', undefined],
    ['{"env":{"A":"1"},"y":"A","z":{"A":"2"}}', undefined],
  ] as const)
    t.equal(duplicateKeyIn(text, 'env'), found, text);
});
