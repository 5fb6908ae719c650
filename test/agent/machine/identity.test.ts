import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import t, { type Test } from 'tap';
import { takeDataDirectory } from '../../../lib/agent/data-directory.ts';
import { chooseUuid, isPlausibleUuid, ownServerUuid } from '../../../lib/agent/machine/identity.ts';
import { processFacts } from '../../../lib/agent/machine/proc.ts';
import { AgentUsageError } from '../../../lib/agent/usage-error.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';

async function folder(t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'identity-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

t.test('a product uuid is used only when it is plausible', async (t) => {
  const rows: [string, boolean][] = [
    ['4c4c4544-0038-4b10-8051-b4c04f4d3132', true],
    ['564d1234-9abc-4def-8123-456789abcdef', true],
    ['00000000-0000-0000-0000-000000000000', false],
    ['ffffffff-ffff-ffff-ffff-ffffffffffff', false],
    ['11111111-1111-4111-8111-111111111111', false],
    ['03000200-0400-0500-0006-000700080009', false],
    ['4c4c4544-0038-0b10-8051-b4c04f4d3132', false],
    ['4c4c4544-0038-4b10-0051-b4c04f4d3132', false],
    ['Not Settable', false],
    ['', false],
  ];
  for (const [text, plausible] of rows) t.equal(isPlausibleUuid(text), plausible, text);
  t.equal(chooseUuid('4C4C4544-0038-4B10-8051-B4C04F4D3132\n', random), '4c4c4544-0038-4b10-8051-b4c04f4d3132');
  t.not(chooseUuid(undefined, random), chooseUuid(undefined, random));
});

t.test('a server’s uuid, once chosen, does not change', async (t) => {
  const directory = await folder(t);
  const first = await ownServerUuid(directory, random);
  t.equal(await ownServerUuid(directory, random), first);
  t.equal(await ownServerUuid(directory, random, first), first);
  await t.rejects(ownServerUuid(directory, random, random.uuid()), AgentUsageError);
  const other = await folder(t);
  const given = random.uuid();
  t.equal(await ownServerUuid(other, random, given), given);
  t.equal(await ownServerUuid(other, random), given);
});

t.test('only one agent at a time may use a data directory; stale locks do not block', async (t) => {
  const directory = await folder(t);
  await writeFile(join(directory, `lock-${process.pid}-1`), '');
  await writeFile(join(directory, 'lock-999999999-1'), '');
  const first = await takeDataDirectory(directory);
  t.equal((await readdir(directory)).filter((name) => name.startsWith('lock-')).length, 1, 'stale locks are removed');
  // Another live process, identified by its own start time.
  const parent = process.ppid;

  const startTime = (await processFacts(parent))?.startTime;
  await first.release();
  await writeFile(join(directory, `lock-${parent}-${startTime}`), '');
  await t.rejects(takeDataDirectory(directory), new RegExp(`Another agent \\(pid ${parent}\\)`));
  t.same(
    (await readdir(directory)).filter((name) => name.startsWith('lock-')),
    [`lock-${parent}-${startTime}`],
  );
});
