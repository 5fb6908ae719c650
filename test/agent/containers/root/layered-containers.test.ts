import { lstat, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import t, { type Test } from 'tap';
import type { ContainerSpec } from '../../../../lib/agent/containers/container.ts';
import { LayeredRootFileSystems } from '../../../../lib/agent/containers/root/layered-root-file-systems.ts';
import { busyboxLayer, upperLayer } from '../../../support/busybox-layer.ts';
import { ContainerMachine, endOf, lacksContainers, shell } from '../../../support/container-machine.ts';
import { cannotMount, mountedFolder } from '../../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();
const limits = { maxBytes: 64 * 1024 * 1024, maxEntries: 10_000, maxNameBytes: 1_000_000 };
const ids = { first: 200_000, count: 65_536 };

/** A machine whose containers have the two layers of the test image. */
async function machineWithImage(t: Test, kind: 'overlay' | 'copy') {
  const folder = await mountedFolder(t);
  const roots = await LayeredRootFileSystems.open({ directory: join(folder, 'agent'), ids });
  if (kind === 'copy') Object.assign(roots, { copyReason: 'because this test copies' });
  const layers = [join(folder, 'lower'), join(folder, 'upper')];
  const archives = [await busyboxLayer(), upperLayer()];
  for (const [index, layer] of layers.entries())
    await roots.unpack(Readable.from([archives[index]]), layer, { limits });
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent({ roots });
  t.teardown(async () => {
    for (const id of await runtime.leftovers()) await runtime.remove(id);
  });
  const spec = (id: string, script: string, isReadOnly = false): ContainerSpec =>
    shell(id, script, { root: { layers, isReadOnly } });
  return { machine, runtime, layers, spec };
}

for (const kind of ['overlay', 'copy'] as const) {
  t.test(`${kind}: containers share layers and keep their own changes`, { skip }, async (t) => {
    const { machine, runtime, layers, spec } = await machineWithImage(t, kind);
    const script =
      'cat /etc/release; test -e /etc/motd || echo hidden; ls /opt; stat -c %u:%g /etc /home/guest; echo $$ changed > /etc/release; rm /bin/vi';
    const { exit, lines } = await machine.run(runtime, spec('a', script));
    t.same(exit, { code: 0 });
    t.same(lines, ['upper', 'hidden', 'new', '0:0', '1000:1000']);
    const other = await machine.run(runtime, spec('b', 'cat /etc/release; ls /bin/vi'));
    t.same(other.lines, ['upper', '/bin/vi']);
    t.equal(await readFile(join(layers[1] as string, 'root/etc/release'), 'utf8'), 'upper\n');

    await runtime.cleanUpRun({ id: 'a', number: 1 });
    const again = endOf(runtime, { id: 'a', number: 2 });
    await runtime.start(spec('a', 'cat /etc/release; exec test ! -e /bin/vi'), 2);
    t.same(await again, { code: 0 }, 'the second run has the changes of the first');
    t.ok((await machine.lines('a')).includes('1 changed'));
    for (const id of ['a', 'b']) await runtime.remove(id);
    t.same(await machine.traces(), []);
    t.ok((await lstat(layers[0] as string)).isDirectory());
  });

  t.test(`${kind}: nothing can be written to a read-only root`, { skip }, async (t) => {
    const { machine, runtime, spec } = await machineWithImage(t, kind);
    const script = 'touch /a /tmp/a /etc/a; mount -o remount,rw /; echo x > /etc/release; cat /etc/release';
    const { lines } = await machine.run(runtime, spec('a', script, true));
    t.equal(lines.filter((line) => /Read-only file system/.test(line)).length, 4);
    t.ok(lines.includes('upper'));
    await runtime.remove('a');
    t.same(await machine.traces(), []);
  });
}
