/** Real VMs for tests: the data directory of an agent with an image of busybox. */
import { createHash } from 'node:crypto';
import { readFile, rmdir } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import type { Test } from 'tap';
import { parseHierarchies } from '../../lib/agent/containers/cgroups/mounts.ts';
import { type OpenedContainers, openContainers } from '../../lib/agent/containers/open-containers.ts';
import { allowTraversal } from '../../lib/agent/data-directory.ts';
import type { Images } from '../../lib/agent/images/images.ts';
import { openImages } from '../../lib/agent/images/open-images.ts';
import { bootIdOf } from '../../lib/agent/machine/proc.ts';
import { vmRecords } from '../../lib/agent/vms/vm-record.ts';
import { Vms } from '../../lib/agent/vms/vms.ts';
import { silentLogger as log } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { busyboxLayer } from './busybox-layer.ts';
import { mountedFolder } from './mounted-folder.ts';
import { IMAGE } from './vm-rig.ts';

/** A program that greets in /log, runs until it is asked to end, and then exits with 0. */
const SCRIPT = `
  trap 'exit 0' TERM
  echo "$GREETING $(cat /file 2>/dev/null)" >> /log
  while true; do sleep 0.05; done`;
export const internal_metadata = {
  'docker:entrypoint': '["/bin/sh", "-c"]',
  'docker:cmd': JSON.stringify([SCRIPT]),
  'docker:env': '["GREETING=hello"]',
};

const MAX_IMAGE_BYTES = 256 * 1024 * 1024;

export interface OpenedVms extends AsyncDisposable {
  vms: Vms;
  images: Images;
  opened: OpenedContainers;
}

export async function agentOn(data: string): Promise<OpenedVms> {
  const places = { directories: [], bridges: [], uidRange: undefined };
  const opened = await openContainers({ clock, log, data, bootId: await bootIdOf(), ...places });
  const records = vmRecords(join(data, 'vms'));
  const images = await openImages({
    ...opened,
    clock,
    log,
    data,
    urls: [],
    directories: [],
    maxBytes: MAX_IMAGE_BYTES,
  });
  const vms = new Vms({ ...opened, clock, random, log, records, images });
  await vms.start();
  await vms.recovered();
  return {
    vms,
    images,
    opened,
    async [Symbol.asyncDispose]() {
      await vms.stop();
      await images.stop();
      await opened[Symbol.asyncDispose]();
    },
  };
}

/** The data directory of an agent with an image of busybox. */
export async function dataWithImage(t: Test): Promise<string> {
  const data = await mountedFolder(t);
  t.teardown(() => removeAll(data));
  await allowTraversal(data);
  await using agent = await agentOn(data);
  await agent.images.importArchive(Readable.from([await busyboxLayer()]), { uuid: IMAGE });
  return data;
}

async function removeAll(data: string): Promise<void> {
  {
    await using agent = await agentOn(data);
    for (const { uuid } of agent.vms.list()) await agent.vms.destroy(uuid);
  }
  const parent = cgroupParentOf(data);
  for (const { directory } of parseHierarchies(await readFile('/proc/self/mountinfo', 'utf8')))
    await rmdir(join(directory, parent)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
}

/** The control group in which those of its containers are. */
export const cgroupParentOf = (data: string): string =>
  `cnapi-${createHash('sha256').update(join(data, 'containers')).digest('hex').slice(0, 12)}`;
