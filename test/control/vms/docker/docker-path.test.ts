import t, { type Test } from 'tap';
import { parseDockerCopy, readHead } from '../../../../lib/control/vms/docker/docker-path.ts';
import { toDockerStats } from '../../../../lib/control/vms/docker/docker-stats.ts';

function refusedFor(t: Test, parse: () => unknown, field: string): void {
  try {
    parse();
    t.fail(`${field} was not refused`);
  } catch (error) {
    t.match(error, { statusCode: 400, errors: { 0: { field } } }, field);
  }
}

t.test('a path is absolute, and the mode is to read', (t) => {
  const rows: [given: Parameters<typeof parseDockerCopy>[0], path: string, mode: string][] = [
    [{ path: '/etc/motd' }, '/etc/motd', 'read'],
    [{ path: 'etc/../tmp//x/', mode: 'write' }, '/tmp/x', 'write'],
    [{ path: '/../../..', mode: 'stat' }, '/', 'stat'],
    [{ path: '/', mode: 'write' }, '/', 'write'],
    [{ payload: { path: '/a', mode: 'stat' } }, '/a', 'stat'],
    [{ payload: { path: '/a/.' } }, '/a', 'read'],
    [{ path: '/a', payload: { path: '/b', mode: 'stat' } }, '/a', 'read'],
    [{ path: "/it's $(here)", mode: 'stat' }, "/it's $(here)", 'stat'],
  ];
  for (const [given, path, mode] of rows) {
    const copy = parseDockerCopy(given);
    t.match(copy, { path, mode }, JSON.stringify(given));
    t.same(copy.args.slice(0, 2), ['sh', '-c']);
    t.equal(copy.args.at(-1), path, 'an argument of the script, and not a part of it');
  }
  t.end();
});

t.test('what cannot be copied is refused with the field', (t) => {
  const rows: [given: object, field: string][] = [
    [{}, 'path'],
    [{ path: '' }, 'path'],
    [{ payload: { path: 1 } }, 'path'],
    [{ path: 'a\0b' }, 'path'],
    [{ path: 'x'.repeat(5000) }, 'path'],
    [{ path: '/' }, 'path'],
    [{ path: '/x/..' }, 'path'],
    [{ payload: { path: 'a\0' } }, 'payload.path'],
    [{ path: '/a', mode: 'append' }, 'mode'],
    [{ payload: { path: '/a', mode: 7 } }, 'payload.mode'],
  ];
  for (const [given, field] of rows) refusedFor(t, () => parseDockerCopy(given), field);
  t.end();
});

t.test('what is found is told as Docker tells it', (t) => {
  const mode = (hex: string) => (readHead(`${hex} 0 0\n`, '/x') as { mode: number }).mode;
  t.same(readHead('a1ff 7 1600000000\n../a\nb', '/dir/l'), {
    name: 'dir/l',
    size: 7,
    mode: 2 ** 27 + 0o777,
    mtime: '2020-09-13T12:26:40.000Z',
    linkTarget: '../a\nb',
  });
  t.equal(mode('81a4'), 0o644);
  t.equal(mode('41ed'), 2 ** 31 + 0o755);
  t.equal(mode('43ff'), 2 ** 31 + 2 ** 20 + 0o777, 'a sticky directory');
  t.equal(mode('8fff'), 2 ** 23 + 2 ** 22 + 2 ** 20 + 0o777);
  t.equal(mode('21b6'), 2 ** 26 + 2 ** 21 + 0o666, 'a terminal');
  t.same(readHead('not-found FileNotFound\nno such file', '/x'), { code: 'FileNotFound', message: 'no such file' });
  for (const head of ['', 'nonsense', '41ed 1', 'xyz 1 1', '41ed -1 1', `41ed ${'9'.repeat(30)} 1`])
    t.equal(readHead(head, '/x'), undefined, head);
  t.end();
});

t.test('statistics are for ever, unless one line is enough', (t) => {
  const rows: [payload: Record<string, unknown> | undefined, request: object][] = [
    [undefined, { apiVersion: 0 }],
    [{ clientApiVersion: 1.21, doStream: true }, { apiVersion: 1.21 }],
    [{ doStream: false }, { apiVersion: 0, samples: 2 }],
    [{ stream: false }, { apiVersion: 0, samples: 2 }],
    [{ doStream: true, stream: false, more: 1 }, { apiVersion: 0 }],
  ];
  for (const [payload, request] of rows) t.same(toDockerStats(payload), request, JSON.stringify(payload));
  for (const [payload, field] of [
    [{ doStream: 'no' }, 'payload.doStream'],
    [{ clientApiVersion: '1.21' }, 'payload.clientApiVersion'],
  ] as const)
    refusedFor(t, () => toDockerStats(payload), field);
  t.end();
});
