/** A store of images in a folder, with real files and unpacked layers. */
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import type { Test } from 'tap';
import type { Container } from '../../lib/agent/containers/container.ts';
import { LayeredRootFileSystems } from '../../lib/agent/containers/root/layered-root-file-systems.ts';
import type { LookUp } from '../../lib/agent/images/allowed-addresses.ts';
import type { StoredImage } from '../../lib/agent/images/image.ts';
import type { ImageContents } from '../../lib/agent/images/image-store.ts';
import { Images } from '../../lib/agent/images/images.ts';
import { recordFiles } from '../../lib/agent/records/record-files.ts';
import { type Logger, silentLogger } from '../../lib/platform/log.ts';
import { type Clock, systemClock } from '../../lib/platform/time/clock.ts';
import { imageServer } from './image-server.ts';
import { gzipArchiveOf } from './layer-archive.ts';
import { mountedFolder } from './mounted-folder.ts';

export const MIB = 1024 * 1024;
export const SMALL = gzipArchiveOf([{ path: 'etc/' }, { path: 'etc/name', contents: 'small\n' }]);
export const OTHER = gzipArchiveOf([{ path: 'etc/' }, { path: 'etc/other', contents: 'other\n' }]);

interface StoreOptions {
  maxBytes?: number;
  urls?: string[];
  clock?: Clock;
  lookUp?: LookUp;
  log?: Logger;
  /** Directories of layers that containers have. */
  used?: string[];
  /** Ids of containers whose records cannot be read. */
  unreadable?: string[];
  /** Why no container can run. */
  unavailableReason?: string;
}

/** The images of an agent in a folder. `again` is the next agent in the same folder. */
export async function storeIn(
  t: Test,
  folder: string,
  {
    maxBytes = 64 * MIB,
    urls = [],
    clock = systemClock,
    lookUp,
    log = silentLogger,
    used = [],
    unreadable = [],
    unavailableReason,
  }: StoreOptions = {},
) {
  const [data, layers] = [join(folder, 'images'), join(folder, 'layers')];
  await mkdir(data, { recursive: true });
  await mkdir(layers, { recursive: true });
  await mkdir(join(folder, 'sources'), { recursive: true });
  const roots = await LayeredRootFileSystems.open({ directory: folder, ids: { first: 200_000, count: 65_536 } });
  const open = async () => {
    const images = new Images({
      clock,
      log,
      directory: data,
      layers,
      unavailableReason,
      containers: {
        list: () => (used.length > 0 ? [containerWith(used)] : []),
        get hasUnreadable() {
          return unreadable.length > 0;
        },
      },
      unpack: (...args) => roots.unpack(...args),
      records: recordFiles<StoredImage>(join(data, 'records'), ({ uuid }) => uuid),
      urls,
      directories: [join(folder, 'sources')],
      maxBytes,
      pauseMs: 1,
      lookUp,
    });
    await images.start();
    t.teardown(() => images.stop());
    return images;
  };
  const images = await open();
  return {
    images,
    again: open,
    layers: () => readdir(layers),
    records: join(data, 'records'),
    arriving: () => readdir(join(data, 'incoming')),
    file: async (name: string, bytes: Buffer) => {
      await writeFile(join(folder, 'sources', name), bytes);
      return pathToFileURL(join(folder, 'sources', name)).href;
    },
  };
}

function containerWith(layers: string[]): Container {
  const process = { args: ['serve'], env: {}, directory: '/', uid: 0, gid: 0 };
  const limits = { memoryBytes: 64 * MIB, cpuPercent: 50, processes: 32 };
  const of = { mounts: [], nics: [], resolvers: [], metadata: {}, log: { maxBytes: MIB, maxFiles: 1 } };
  const spec = { id: 'vm-1', hostname: 'vm-1', root: { layers, isReadOnly: false }, process, limits, ...of };
  return { spec, state: { name: 'running', run: 1 }, changedAt: 0 };
}

export const store = async (t: Test, options?: Parameters<typeof storeIn>[2]) =>
  storeIn(t, await mountedFolder(t), options);

export async function served(t: Test, body: Buffer, options?: Parameters<typeof storeIn>[2]) {
  const server = await imageServer(t, { body });
  return { server, ...(await store(t, { urls: [new URL('.', server.url).href], ...options })) };
}

/** The contents of an image that is made here: one file. */
export function contentsOf(bytes: Buffer): ImageContents & { writes: number } {
  const contents = {
    writes: 0,
    measure: async () => bytes.length,
    write: async (directory: string) => {
      contents.writes += 1;
      await mkdir(directory);
      await writeFile(join(directory, 'contents'), bytes);
    },
  };
  return contents;
}
