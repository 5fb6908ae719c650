/** Which commands of push jobs an agent runs. */
import { chmod, mkdtemp, rm, symlink, unlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { openAllowedCommands, parseAllowList, ruleBrokenBy } from '../../../lib/agent/push/allow-list.ts';
import { refusalOf } from '../../../lib/agent/push/refusal.ts';
import { reasonNotTrusted } from '../../../lib/agent/reloaded-file.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import { recordingLogger } from '../../support/recording-logger.ts';
import { prepareFrame } from './prepare-frame.ts';

const listed = (list: unknown) => parseAllowList(JSON.stringify(list));

async function listFile(t: Test, contents: string): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), 'allow-list-'));
  t.teardown(() => rm(directory, { recursive: true, force: true }));
  const path = join(directory, 'push-commands.json');
  await writeFile(path, contents, { mode: 0o644 });
  return path;
}

t.test('a command is allowed if it is listed, or if a pattern matches all of it', async (t) => {
  const list = listed({ allow: ['chef-client', { pattern: 'service [a-z]+ (start|stop)' }, { pattern: 'a|b' }] });
  const rows: [string, boolean][] = [
    ['chef-client', true],
    ['chef-client ', false],
    ['chef-clientx', false],
    ['service nginx stop', true],
    ['service nginx stop; reboot', false],
    ['x service nginx stop', false],
    ['service nginx stop\n', false],
    ['service nginx stop\nreboot', false],
    ['a', true],
    ['b', true],
    ['ab', false],
    ['a; reboot', false],
    ['reboot; b', false],
    ['', false],
  ];
  for (const [command, isAllowed] of rows)
    t.equal(ruleBrokenBy({ command }, list), isAllowed ? undefined : 'the command is not in "allow"', command);
  t.equal(ruleBrokenBy({ command: 'a' }, listed({ allow: [] })), 'the command is not in "allow"');
});

t.test('a job may set only the variables that are listed', async (t) => {
  const list = listed({ allow: ['ls'], env: ['LEVEL'] });
  t.equal(ruleBrokenBy({ command: 'ls', env: { LEVEL: '1' } }, list), undefined);
  t.match(ruleBrokenBy({ command: 'ls', env: { LEVEL: '1', PATH: '/tmp' } }, list), /"PATH" is not in "env"/);
  t.match(ruleBrokenBy({ command: 'ls', env: { LD_PRELOAD: 'x' } }, listed({ allow: ['ls'] })), /"LD_PRELOAD"/);
});

t.test('a pattern that takes too long, or a long command, is not allowed, and the agent goes on', async (t) => {
  const list = listed({ allow: [{ pattern: '(a+)+' }, 'y'.repeat(5_000)] });
  const startedAt = performance.now();
  t.match(ruleBrokenBy({ command: `${'a'.repeat(60)}!` }, list), /took longer than 100 ms/);
  t.ok(performance.now() - startedAt < 10_000, 'without a limit it would take years');
  t.equal(ruleBrokenBy({ command: 'aaa' }, list), undefined);
  t.match(ruleBrokenBy({ command: 'a'.repeat(4_097) }, list), /more than 4096 characters/);
  t.equal(ruleBrokenBy({ command: 'y'.repeat(5_000) }, list), undefined, 'it is listed');
});

t.test('a list that cannot be used is refused with the place of the error', async (t) => {
  const rows: [string, string, RegExp][] = [
    ['no JSON', '{', /JSON/],
    ['no object', '[]', /^it: .*expected object/],
    ['no list', '{}', /^allow: /],
    ['an unknown key', '{"allow": [], "deny": []}', /deny/],
    ['a number', '{"allow": [1]}', /^allow.0: is neither a command nor/],
    ['an empty command', '{"allow": [""]}', /^allow.0: /],
    ['a pattern with flags', '{"allow": [{"pattern": "a", "flags": "i"}]}', /^allow.0: /],
    ['an empty pattern', '{"allow": [{"pattern": ""}]}', /^allow.0.pattern: /],
    ['a long pattern', JSON.stringify({ allow: [{ pattern: 'a'.repeat(1_001) }] }), /^allow.0.pattern: .*1000/],
    ['no regular expression', '{"allow": [{"pattern": "("}]}', /Invalid regular expression/],
    ['one that would leave its anchors', '{"allow": [{"pattern": "a)|(?:b"}]}', /Invalid regular expression/],
    ['one that ends in a backslash', '{"allow": [{"pattern": "a\\\\"}]}', /Invalid regular expression/],
    ['too many', JSON.stringify({ allow: Array(1_001).fill('a') }), /^allow: /],
    ['a variable without a name', '{"allow": [], "env": [""]}', /^env.0: /],
  ];
  for (const [name, text, message] of rows) t.throws(() => parseAllowList(text), { message }, name);
  const path = await listFile(t, '{}');
  t.throws(() => openAllowedCommands(path, silentLogger), {
    message: new RegExp(`^--push-commands ${path} cannot be`),
  });
  t.throws(() => openAllowedCommands('/no/such', silentLogger), { message: /^--push-commands \/no\/such cannot be/ });
});

t.test('a changed list applies to the next job; one that cannot be used changes nothing, with a warning', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const path = await listFile(t, '{"allow": ["a"]}');
  const allowed = openAllowedCommands(path, recordingLogger(logged));
  const machine = { reasonNotRunnable: async () => undefined };
  const vote = (command: string) => refusalOf(prepareFrame({ command }), { machine, reasonPaused: undefined, allowed });
  const message = `the command is not in "allow" of ${path} (--push-commands)`;
  t.equal(await vote('a'), undefined);
  t.same(await vote('bb'), { reason: 'not-allowed', message });
  await writeFile(path, '{"allow": ["bb"]}');
  t.equal(await vote('bb'), undefined);
  t.same(await vote('a'), { reason: 'not-allowed', message });
  t.same(logged, []);

  await writeFile(path, '{"allow": [');
  t.equal(await vote('bb'), undefined);
  t.same(await vote('a'), { reason: 'not-allowed', message });
  t.match(logged[0], {
    level: 'warn',
    reason: /push-commands.json cannot be used: .*JSON/,
    msg: /keeping the previous one/,
  });
  await unlink(path);
  t.equal(await vote('bb'), undefined);
  t.match(logged[1], { level: 'warn', reason: /ENOENT/ });
  await symlink(path, path);
  t.equal(await vote('bb'), undefined);
  t.match(logged[2], { level: 'warn', reason: /ELOOP/ });
  t.equal(logged.length, 3, 'one warning for each change');

  await unlink(path);
  await writeFile(path, '{"allow": ["ccc"]}', { mode: 0o644 });
  t.equal(await vote('ccc'), undefined);
  t.match(await vote('bb'), { reason: 'not-allowed' });
});

t.test('while others may write the list, no command is allowed, and log and vote say why', async (t) => {
  const logged: Record<string, unknown>[] = [];
  const path = await listFile(t, '{"allow": ["a"]}');
  const allowed = openAllowedCommands(path, recordingLogger(logged));
  const rule = () => allowed.reasonNotAllowed(prepareFrame({ command: 'a' }));
  t.equal(rule(), undefined);
  for (const mode of [0o664, 0o646]) {
    await chmod(path, mode);
    const reason = `${path} cannot be used: its group or others may write it (mode ${mode.toString(8)}); chmod go-w it`;
    t.equal(rule(), `no command is allowed: the file of --push-commands, ${reason}`);
    t.match(logged.pop(), { level: 'warn', reason, msg: /no command is allowed/ });
    t.throws(() => openAllowedCommands(path, silentLogger), { message: `--push-commands ${reason}` });
  }
  await unlink(path);
  t.match(rule(), /no command is allowed: .* does not exist/);
  await writeFile(path, '{"allow": ["a"]}', { mode: 0o644 });
  t.equal(rule(), undefined, 'the file was corrected');
  t.same(logged, []);
});

t.test('a list is trusted if it belongs to root or to the user of the agent', async (t) => {
  const rows: [uid: number, mode: number, ownUid: number, reason: RegExp | undefined][] = [
    [0, 0o644, 0, undefined],
    [0, 0o644, 1000, undefined],
    [1000, 0o600, 1000, undefined],
    [1000, 0o644, 0, /^its owner \(uid 1000\) is neither root/],
    [1001, 0o644, 1000, /^its owner \(uid 1001\)/],
    [0, 0o664, 0, /^its group or others may write it \(mode 664\)/],
    [0, 0o602, 0, /^its group or others may write it \(mode 602\)/],
  ];
  for (const [uid, mode, ownUid, reason] of rows) {
    const found = reasonNotTrusted({ uid, mode: 0o100_000 | mode }, ownUid);
    if (reason === undefined) t.equal(found, undefined, `${uid} ${mode.toString(8)}`);
    else t.match(found, reason);
  }
});
