import { readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { RecoveryKeeper, slotOf } from '../../../lib/agent/recovery/recovery-keeper.ts';
import { recoveryTasks } from '../../../lib/agent/recovery/tasks.ts';
import type { TaskContext } from '../../../lib/agent/runner/task-definition.ts';
import { deriveRecoveryUuid, templateDigest } from '../../../lib/protocol/recovery.ts';
import { recordingLogger } from '../../support/recording-logger.ts';

const SECRETS = { token: 'secret-token', pivtoken: 'secret-pivtoken' };
const configOf = (template: string) => ({ uuid: deriveRecoveryUuid(templateDigest(template)), template, ...SECRETS });
const [first, second] = [configOf('secret-template'), configOf('another-secret')];
const encrypted = (recovery: object) => ({ 'Zpool Encrypted': true, 'Zpool Recovery': recovery });
const digest = templateDigest;

async function open(t: Test) {
  const directory = join(t.testdir(), 'recovery');
  const logged: Record<string, unknown>[] = [];
  const reopen = () => RecoveryKeeper.open({ files: recordFiles(directory, slotOf), log: recordingLogger(logged) });
  return { directory, logged, reopen, keeper: await reopen() };
}

t.test('a configuration is staged and activated, and the next agent has it', async (t) => {
  const { keeper, reopen, directory, logged } = await open(t);
  let changes = 0;
  keeper.onChange(() => changes++);
  t.strictSame(keeper.sysinfo, encrypted({}));
  await keeper.stage(first);
  t.strictSame(keeper.sysinfo, encrypted({ staged: digest(first.template) }));
  await keeper.activate(first.uuid);
  await keeper.activate(first.uuid);
  t.strictSame(keeper.sysinfo, encrypted({ active: digest(first.template) }));
  await keeper.stage(second);
  const both = encrypted({ active: digest(first.template), staged: digest(second.template) });
  t.strictSame((await reopen()).sysinfo, both);
  t.equal(changes, 3, 'a repetition changes nothing');
  t.strictSame((await readdir(directory)).toSorted(), ['active.json', 'staged.json']);
  for (const name of await readdir(directory)) t.equal((await stat(join(directory, name))).mode & 0o777, 0o600, name);
  t.equal((await stat(directory)).mode & 0o777, 0o700);
  t.match(JSON.parse(await readFile(join(directory, 'active.json'), 'utf8')), { config: first });
  t.notMatch(JSON.stringify(logged), /secret/);
});

t.test('what is refused changes nothing', async (t) => {
  const { keeper, reopen } = await open(t);
  await t.rejects(keeper.stage({ ...first, uuid: second.uuid }), { code: 'RecoveryMismatch' });
  await t.rejects(keeper.activate(first.uuid), { code: 'RecoveryRefused', message: /not staged/ });
  t.strictSame((await reopen()).sysinfo, encrypted({}));
  await keeper.stage(first);
  await keeper.activate(first.uuid);
  await t.rejects(keeper.stage(first), { code: 'RecoveryRefused', message: /already active/ });
});

t.test('an activation that was cut off between its two files has happened', async (t) => {
  const { keeper, reopen, directory } = await open(t);
  await keeper.stage(first);
  const staged = JSON.parse(await readFile(join(directory, 'staged.json'), 'utf8'));
  await writeFile(join(directory, 'active.json'), JSON.stringify({ ...staged, slot: 'active' }));
  t.strictSame((await reopen()).sysinfo, encrypted({ active: digest(first.template) }));
  t.strictSame(await readdir(directory), ['active.json']);
});

t.test('a damaged file is reported, and can be staged again', async (t) => {
  const { keeper, reopen, directory, logged } = await open(t);
  await keeper.stage(first);
  await writeFile(join(directory, 'staged.json'), '{"secret');
  const next = await reopen();
  t.strictSame(next.sysinfo, encrypted({}));
  t.ok(logged.some(({ msg }) => /cannot be read/.test(String(msg))));
  await next.stage(first);
  t.strictSame((await reopen()).sysinfo, encrypted({ staged: digest(first.template) }));
});

t.test('the task takes what its action needs', async (t) => {
  const { keeper } = await open(t);
  const context = { recovery: keeper } as unknown as TaskContext;
  const run = (params: object) => recoveryTasks.recovery_config.run(params as Record<string, unknown>, context);
  const { uuid: recovery_uuid, ...rest } = first;
  const stage = { action: 'stage', recovery_uuid, ...rest };
  for (const missing of ['pivtoken', 'template', 'token', 'recovery_uuid', 'action'])
    await t.rejects(run({ ...stage, [missing]: undefined }), { code: 'InvalidParameters' }, missing);
  await t.rejects(run({ ...stage, template: 'x'.repeat(64 * 1024 + 1) }), { code: 'InvalidParameters' });
  await t.rejects(run({ ...stage, template: 'damaged' }), { code: 'RecoveryMismatch' });
  t.strictSame(await run(stage), {});
  t.strictSame(await run({ action: 'activate', recovery_uuid, pivtoken: 'x' }), {});
  await t.rejects(run(stage), { code: 'RecoveryRefused' });
});
