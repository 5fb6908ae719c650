import { execFile } from 'node:child_process';
import { mkdir, readdir, readFile, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import t from 'tap';
import { parseHierarchies } from '../../../lib/agent/containers/cgroups/mounts.ts';
import { vmUpdate } from '../../../lib/protocol/vms.ts';
import { runPrepared, scriptRequest } from '../../support/container-exec.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { cannotMount, mountsBelow } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { IMAGE, payload, uuidOf } from '../../support/vm-rig.ts';
import {
  agentOn,
  cgroupParentOf,
  dataWithImage,
  internal_metadata,
  type OpenedVms,
} from '../../support/vms-on-linux.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();
const A = uuidOf(1);

const rootOf = (data: string, name: string) => join(data, 'containers/all', A, 'root', name);
const readRoot = (data: string, path: string) => readFile(join(rootOf(data, 'root'), path), 'utf8').catch(() => '');

/** Runs a script in the VM; its output. */
async function shell({ opened }: OpenedVms, script: string, uuid = A): Promise<string> {
  const { stdout, stderr } = await runPrepared(await opened.containers.prepareExec(uuid, scriptRequest(script)));
  return `${stdout}${stderr}`.trim();
}

t.test('a real VM: limits, processes, update, snapshots and destroy', { skip }, async (t) => {
  const data = await dataWithImage(t);
  await using agent = await agentOn(data);
  const { vms, opened } = agent;
  const created = await vms.create(payload(1, { internal_metadata, hostname: 'web-1' }));
  t.match(created, { state: 'running', hostname: 'web-1' });
  t.match(await vms.load(A), { pid: Number });
  await until(async () => (await readRoot(data, 'log')).includes('hello'), 'the program writes');
  t.equal(await shell(agent, 'hostname 2>/dev/null || cat /etc/hostname'), 'web-1');

  const info = await vms.running.info(A);
  t.match(info, { pid: Number, limits: { memory_bytes: 64 * 1024 * 1024, cpu_cap: 100 } });
  const { usage } = info as { usage: { memory_bytes: number; processes: number } };
  t.ok(usage.memory_bytes > 0 && usage.processes >= 1);
  const processes = await vms.running.processes(A);
  t.ok(processes.some(({ command, args, rss_bytes }) => command === 'sh' && args[1] === '-c' && rss_bytes > 0));

  const groups = parseHierarchies(await readFile('/proc/self/mountinfo', 'utf8'));
  const limitOf = async () => {
    for (const { directory } of groups)
      for (const file of ['memory.limit_in_bytes', 'memory.max']) {
        const text = await readFile(join(directory, cgroupParentOf(data), `${A}.1`, file), 'utf8').catch(
          () => undefined,
        );
        if (text !== undefined) return Number(text);
      }
    return undefined;
  };
  t.equal(await limitOf(), 64 * 1024 * 1024);
  await vms.update(A, vmUpdate.parse({ max_physical_memory: 96, max_lwps: 100 }));
  t.equal(await limitOf(), 96 * 1024 * 1024, 'a limit counts immediately');
  await vms.update(A, vmUpdate.parse({ max_physical_memory: 48 }));
  t.equal(await limitOf(), 48 * 1024 * 1024, 'also a lower one');

  await shell(agent, 'echo first > /file; rm /bin/wget; mkdir /made');
  await vms.createSnapshot(A, 'one');
  t.equal(await shell(agent, 'cat /file'), 'first', 'it runs on after the snapshot');
  await shell(agent, 'echo second > /file; rm -r /made; echo new > /other');
  await symlink('/etc', join(rootOf(data, 'root'), 'link'));
  t.match(await vms.rollbackSnapshot(A, 'one'), { state: 'running' });
  t.equal(await shell(agent, 'cat /file; ls -d /made /bin/wget /other /link 2>/dev/null'), 'first\n/made');
  t.same(await readdir(rootOf(data, 'snapshots')), ['one']);
  await vms.deleteSnapshot(A, 'one');
  t.same(await readdir(rootOf(data, 'snapshots')), []);

  t.match(await vms.shutdown(A, { timeoutMs: 10_000 }), { state: 'stopped', exit_status: 0 });
  const [made, B] = [uuidOf(50), uuidOf(2)];
  await vms.createImage(A, made);
  await t.rejects(vms.createImage(A, made), { code: 'ImageExists' });
  const copy = await vms.create(payload(2, { image_uuid: made, autoboot: true }));
  t.match(copy, { state: 'running', image_uuid: made }, 'a VM of the new image starts as the first one did');
  t.equal(await shell(agent, 'cat /file; ls -d /made /bin/wget 2>/dev/null', B), 'first\n/made');
  await vms.destroy(B);
  t.match(await vms.boot(A), { state: 'running' });
  await t.rejects(vms.createImage(A, uuidOf(51)), { code: 'VmAlreadyRunning' });
  t.equal(await shell(agent, 'cat /file'), 'first', 'the root file system stays');
  await vms.reprovision(A, IMAGE);
  t.equal(await shell(agent, 'cat /file 2>/dev/null; ls -d /bin/wget'), '/bin/wget', 'and a reprovision makes it anew');
  await vms.destroy(A);
  t.same([opened.containers.list(), await mountsBelow(join(data, 'containers/all'))], [[], []]);
  t.same(await readdir(join(data, 'containers/all')), []);
});

t.test('VMs run on without their agent, and the next one has them', { skip }, async (t) => {
  const data = await dataWithImage(t);
  let pid: number | undefined;
  {
    await using first = await agentOn(data);
    await first.vms.create(payload(1, { internal_metadata }));
    pid = (await first.vms.load(A)).pid;
    await first.vms.createSnapshot(A, 'one');
    await mkdir(join(rootOf(data, 'snapshots'), 'unrecorded'));
    // An agent that is killed during a snapshot leaves the container paused.
    await promisify(execFile)('runc', ['--root', join(data, 'containers/runtime'), 'pause', `${A}.1`]);
  }
  await using next = await agentOn(data);
  t.match(await next.vms.load(A), { state: 'running', pid });
  t.equal(await shell(next, 'echo on'), 'on', 'its processes go on');
  t.same(await readdir(rootOf(data, 'snapshots')), ['one'], 'one that no record names is removed');
  t.match(await next.vms.kill(A), { state: 'stopped', exit_status: 137 });
});

t.test('a VM runs on while the record of its container cannot be read', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const record = join(data, 'containers/records', `${A}.json`);
  let pid: number | undefined;
  {
    await using first = await agentOn(data);
    await first.vms.create(payload(1, { internal_metadata }));
    await shell(first, 'echo kept > /file');
    pid = (await first.vms.load(A)).pid;
  }
  const right = await readFile(record, 'utf8');
  await writeFile(record, right.replace('"version":1', '"version":2'));
  {
    await using newer = await agentOn(data);
    const busy = { code: 'VmIsBusy', message: /cannot be read .* repair the record/ };
    await t.rejects(newer.vms.destroy(A), busy);
    await t.rejects(newer.vms.reprovision(A, IMAGE), busy);
    await newer.images.release(A);
    await newer.images.delete(IMAGE);
    t.equal((await readdir(join(data, 'containers/layers'))).length, 1, 'its layer stays');
  }
  await writeFile(record, right);
  await using next = await agentOn(data);
  t.match(await next.vms.load(A), { state: 'running', pid });
  t.equal(await shell(next, 'cat /file; ls -d /bin/wget'), 'kept\n/bin/wget');
});
