import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { parseHierarchies } from '../../../lib/agent/containers/cgroups/mounts.ts';
import { DEFAULT_UID_RANGE } from '../../../lib/agent/containers/linux/linux-host.ts';
import { openContainers } from '../../../lib/agent/containers/open-containers.ts';
import { LayeredRootFileSystems } from '../../../lib/agent/containers/root/layered-root-file-systems.ts';
import { allowTraversal } from '../../../lib/agent/data-directory.ts';
import { bootIdOf } from '../../../lib/agent/machine/proc.ts';
import { silentLogger as log } from '../../../lib/platform/log.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { busyboxLayer } from '../../support/busybox-layer.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { cannotMount, mountedFolder } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { ScriptedInstance } from '../../support/scripted-instance.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();
const MAIN = fileURLToPath(new URL('../../../lib/agent/main.ts', import.meta.url));
const WORKS = /^Containers run with (runc|crun) \d\S* and conmon \d\S*, with limits of memory, processor and processes/;

const agentOn = async (data: string) =>
  openContainers({ clock, log, data, bootId: await bootIdOf(), directories: [], bridges: [], uidRange: undefined });

/** The data directory of an agent with an unpacked layer; at the end its containers are deleted. */
async function dataWithLayer(t: Test) {
  const data = await mountedFolder(t);
  t.teardown(() => removeAll(data));
  await allowTraversal(data);
  await (await agentOn(data))[Symbol.asyncDispose]();
  const directory = join(data, 'containers');
  const layer = join(directory, 'layers/busybox');
  const roots = await LayeredRootFileSystems.open({ directory, ids: DEFAULT_UID_RANGE });
  const limits = { maxBytes: 64 * 1024 * 1024, maxEntries: 10_000, maxNameBytes: 1_000_000 };
  await roots.unpack(Readable.from([await busyboxLayer()]), layer, { limits });
  return { data, layer };
}

async function removeAll(data: string): Promise<void> {
  await using agent = await agentOn(data);
  const { containers } = agent;
  for (const { spec } of containers.list()) await containers.delete(spec.id, { force: true });
  const hash = createHash('sha256').update(join(data, 'containers')).digest('hex').slice(0, 12);
  const trees = parseHierarchies(await readFile('/proc/self/mountinfo', 'utf8'));
  for (const { directory } of trees)
    await rmdir(join(directory, `cnapi-${hash}`)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
}

t.test('containers outlive their agent, and the next one on the directory has them', { skip }, async (t) => {
  const { data, layer } = await dataWithLayer(t);
  const process = { args: ['/bin/sh', '-c', 'while true; do sleep 0.1; done'], env: { PATH: '/bin' } };
  {
    await using first = await agentOn(data);
    t.match(first.summary, WORKS);
    await t.rejects(first.parse({ id: 'a', root: { layers: ['/srv'] }, process }), /directories of images/);
    await first.containers.create(await first.parse({ id: 'a', root: { layers: [layer] }, process }));
    t.match((await first.containers.startContainer('a')).state, { name: 'running', run: 1 });
  }
  const elsewhere = await mountedFolder(t);
  t.teardown(() => removeAll(elsewhere));
  await allowTraversal(elsewhere);
  await using other = await agentOn(elsewhere);
  t.match(other.summary, WORKS);
  t.same(other.containers.list(), [], 'an agent with another directory does not have it');
  await using next = await agentOn(data);
  t.match(next.containers.get('a').state, { name: 'running', run: 1 }, 'nor did it end it');
  const halted = await next.containers.stopContainer('a', { signal: 'SIGTERM', timeoutMs: 0 });
  t.match(halted.state, { name: 'stopped', exit: { signal: 'SIGKILL' } });
});

t.test('what lies in the data directory is closed to other users before they can pass it', async (t) => {
  const data = await mkdtemp(join(tmpdir(), 'agent-'));
  t.teardown(() => rm(data, { recursive: true, force: true }));
  await writeFile(join(data, 'notes'), '', { mode: 0o644 });
  await allowTraversal(data);
  t.equal((await stat(data)).mode & 0o777, 0o711);
  t.equal((await stat(join(data, 'notes'))).mode & 0o777, 0o600);
});

t.test('the sysinfo of an agent tells whether containers can run', { skip }, async (t) => {
  const [data, instance] = await Promise.all([
    mountedFolder(t),
    ScriptedInstance.start({ welcome: { sendSysinfo: true } }),
  ]);
  t.teardown(() => instance.stop());
  t.teardown(() => removeAll(data));
  const args = [MAIN, '--url', instance.url, '--data', data, '--containers'];
  const agent = spawn(process.execPath, args, { stdio: 'ignore' });
  t.teardown(() => agent.kill('SIGKILL'));
  const { sysinfo } = await (await instance.session(0)).received('sysinfo');
  t.match(sysinfo, { Containers: WORKS });
  t.equal((await stat(data)).mode & 0o777, 0o711);
});
