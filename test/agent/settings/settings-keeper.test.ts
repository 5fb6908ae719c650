/**
 * What a server was told about itself survives its agent, and no file that is damaged changes it.
 */
import { readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { recordFiles } from '../../../lib/agent/records/record-files.ts';
import { SettingsKeeper, settingsSlotOf } from '../../../lib/agent/settings/settings-keeper.ts';
import { recordingLogger } from '../../support/recording-logger.ts';

const MAC = '02:00:00:00:00:01';
const sysinfo = { Setup: 'true', 'Network Interfaces': { eth0: { 'MAC Address': MAC, 'NIC Names': [] } } };

function prepare(t: Test) {
  const directory = join(t.testdir(), 'settings');
  const logged: Record<string, unknown>[] = [];
  const files = recordFiles(directory, settingsSlotOf);
  const open = (needsSetup = false) => SettingsKeeper.open({ files, needsSetup, log: recordingLogger(logged) });
  return { directory, logged, open };
}

t.test('a server without a record is set up, unless its agent says that it needs it', async (t) => {
  const { open } = prepare(t);
  t.match((await open()).complete(sysinfo), { Setup: 'true' });
  const keeper = await open(true);
  t.match(keeper.complete(sysinfo), { Setup: 'false' });
  await keeper.setSetUp(true);
  t.match((await open(true)).complete(sysinfo), { Setup: 'true' }, 'its record counts more than the option');
  await keeper.reset();
  t.match((await open(false)).complete(sysinfo), { Setup: 'false' });
});

t.test('NIC tags survive the agent, and each change is told', async (t) => {
  const { open, directory } = prepare(t);
  const keeper = await open();
  let told = 0;
  const unlisten = keeper.onChange(() => told++);
  await keeper.changeNics('update', [{ mac: MAC, nic_tags_provided: ['admin'] }], sysinfo);
  t.strictSame((await open()).complete(sysinfo)['Network Interfaces'], {
    eth0: { 'MAC Address': MAC, 'NIC Names': ['admin'] },
  });
  t.equal(told, 1);
  await t.rejects(keeper.changeNics('update', [{ mac: '02:00:00:00:00:09', nic_tags_provided: [] }], sysinfo), {
    code: 'NicNotFound',
    message: /no NIC with the address 02:00:00:00:00:09/,
  });
  t.equal(told, 1, 'what is refused changes nothing');
  unlisten();
  await keeper.reset();
  t.strictSame((await open()).complete(sysinfo), { ...sysinfo, Setup: 'false' }, 'a reset forgets them');
  t.equal(told, 1);
  for (const name of await readdir(directory)) t.equal((await stat(join(directory, name))).mode & 0o777, 0o600, name);
});

t.test('a damaged record of the set-up leaves the instances what they know', async (t) => {
  const { open, directory, logged } = prepare(t);
  await (await open()).setSetUp(false);
  await writeFile(join(directory, 'setup.json'), '{');
  const keeper = await open();
  t.notOk('Setup' in keeper.complete(sysinfo));
  t.match(logged.at(-1), { setting: 'setup' });
  await keeper.setSetUp(true);
  t.match((await open()).complete(sysinfo), { Setup: 'true' });
});
