import t from 'tap';
import {
  hasSecrets,
  MAX_SECRET_POINTERS,
  maskParams,
  reasonNotMaskable,
  withSecretUrl,
} from '../../lib/protocol/secret-params.ts';

const params = {
  script: 'login',
  env: { USER: 'me', 'PASS/WORD~': 'hush' },
  args: ['a', 'hush'],
  nested: { hush: [1] },
};
const naming = (...secret_params: unknown[]) => ({ ...params, secret_params });

t.test('the value that a pointer names is masked, whatever its type, and nothing else', async (t) => {
  const rows: [string[], object][] = [
    [['/env/PASS~1WORD~0'], { env: { USER: 'me', 'PASS/WORD~': '(secret)' } }],
    [['/args/1'], { args: ['a', '(secret)'] }],
    [['/nested'], { nested: '(secret)' }],
    [['/nested', '/nested/hush/0'], { nested: '(secret)' }],
    [['/script', '/env'], { script: '(secret)', env: '(secret)' }],
  ];
  for (const [pointers, hidden] of rows) {
    const given = naming(...pointers);
    const before = structuredClone(given);
    t.equal(reasonNotMaskable(given), undefined, pointers.join(' '));
    t.strictSame(maskParams(given), { ...given, ...hidden });
    t.strictSame(given, before, 'the original is not changed');
  }
  t.equal(maskParams(params), params, 'without secrets there is no copy');
  t.same([params, naming(), { secret_params: 'x' }, naming('/env')].map(hasSecrets), [false, false, false, true]);
});

t.test('a name like __proto__ is an ordinary name', async (t) => {
  const given = JSON.parse('{"__proto__":"hush","secret_params":["/__proto__"]}');
  t.equal(reasonNotMaskable(given), undefined);
  t.equal(JSON.stringify(maskParams(given)), '{"__proto__":"(secret)","secret_params":["/__proto__"]}');
  t.match(reasonNotMaskable(naming('/__proto__')), /do not hold/);
});

t.test('params that name more secrets than they may are withheld whole', async (t) => {
  const pointers = (count: number) => Array.from({ length: count }, () => '/env/NONE');
  t.match(maskParams(naming(...pointers(MAX_SECRET_POINTERS))), params);
  t.strictSame(maskParams(naming(...pointers(MAX_SECRET_POINTERS + 1))), {});
});

t.test('a pointer that names nothing is refused', async (t) => {
  const rows: [unknown, RegExp][] = [
    [naming('/env/PASSWORD'), /names "\/env\/PASSWORD", which these params do not hold/],
    [naming('/args/2'), /do not hold/],
    [naming('/args/01'), /do not hold/],
    [naming('/args/length'), /do not hold/],
    [naming('/script/0'), /do not hold/],
    [naming('/secret_params/0'), /do not hold/],
    [naming('env.PASSWORD'), /not a JSON Pointer/],
    [naming('/a~2'), /not a JSON Pointer/],
    [naming(''), /not a JSON Pointer/],
    [naming(7), /not a JSON Pointer/],
    [naming(`/${'x'.repeat(1000)}`), /not a JSON Pointer/],
    [{ ...params, secret_params: '/env' }, /not a list/],
    [naming(...Array.from({ length: 101 }, () => '/env')), /not a list/],
  ];
  for (const [given, reason] of rows) t.match(reasonNotMaskable(given as Record<string, unknown>), reason);
});

t.test('a URL that may hold a password or a signature is a secret', async (t) => {
  const urls: Record<string, boolean> = {
    'http://user:hush@h/a.tar': true,
    'http:user:hush@h/a.tar': true,
    'https://token@h/a.tar': true,
    'http://user:hu/sh@h/a.tar': true,
    'https://h/a.tar?signature=hush': true,
    'https://h/a.tar#hush': true,
    'https://h/a.tar': false,
    'file:///srv/a.tar': false,
    '/srv/a@b:c?.tar': false,
  };
  const names = { agent_install: 'package_file', image_ensure_present: 'url' };
  for (const [task, name] of Object.entries(names))
    for (const [url, isSecret] of Object.entries(urls)) {
      const given = { [name]: url };
      const expected = isSecret ? { ...given, secret_params: [`/${name}`] } : given;
      t.strictSame(withSecretUrl(task, given), expected, `${task} ${url}`);
    }
  const url = 'https://h/a?hush';
  t.strictSame(withSecretUrl('command_execute', { url }), { url }, 'another task');
  const more = { url, digest: 'x', secret_params: ['/digest'] };
  t.strictSame(withSecretUrl('image_ensure_present', more), { ...more, secret_params: ['/digest', '/url'] });
  const named = { url, secret_params: ['/url'] };
  t.equal(withSecretUrl('image_ensure_present', named), named);
  const wrong = { url, secret_params: 'url' };
  t.equal(withSecretUrl('image_ensure_present', wrong), wrong, 'what is refused stays as it is');
});
