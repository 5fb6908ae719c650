/**
 * The records of containers: one JSON file each, in a directory that only the agent reads, because
 * environments hold secrets. A file is written beside and renamed, so after a crash it is the old or
 * the new one.
 */
import { mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../platform/errors.ts';
import type { Container } from './container.ts';

interface LoadedRecords {
  containers: Container[];
  /** Records that cannot be read: they and their containers are left as they are. */
  damaged: { id: string; reason: string }[];
}

export interface ContainerRecords {
  load(): Promise<LoadedRecords>;
  /** Resolves when it survives a crash of the machine. */
  write(container: Container): Promise<void>;
  /** Can be repeated. */
  remove(id: string): Promise<void>;
}

const ENDING = '.json';
/** Of the form in which records are written. */
const VERSION = 1;

export function fileRecords(directory: string): ContainerRecords {
  const pathOf = (id: string) => join(directory, `${id}${ENDING}`);
  return {
    async load() {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const loaded: LoadedRecords = { containers: [], damaged: [] };
      for (const name of await readdir(directory)) {
        if (!name.endsWith(ENDING)) {
          await rm(join(directory, name), { force: true });
          continue;
        }
        const id = name.slice(0, -ENDING.length);
        try {
          loaded.containers.push(parse(id, await readFile(pathOf(id), 'utf8')));
        } catch (error) {
          loaded.damaged.push({ id, reason: messageOf(error) });
        }
      }
      return loaded;
    },
    async write(container) {
      const path = pathOf(container.spec.id);
      const draft = `${path}.new`;
      const file = await open(draft, 'w', 0o600);
      try {
        await file.writeFile(JSON.stringify({ version: VERSION, ...container }));
        await file.datasync();
      } finally {
        await file.close();
      }
      await rename(draft, path);
      await syncDirectory(directory);
    },
    async remove(id) {
      await rm(pathOf(id), { force: true });
      await syncDirectory(directory);
    },
  };
}

function parse(id: string, text: string): Container {
  const { version, ...container } = JSON.parse(text) as Container & { version: number };
  if (version !== VERSION) throw new Error(`The record has version ${version}, and this agent writes ${VERSION}`);
  if (container.spec?.id !== id) throw new Error('The record is of another container');
  return container;
}

async function syncDirectory(path: string): Promise<void> {
  const directory = await open(path, 'r');
  try {
    await directory.sync();
  } finally {
    await directory.close();
  }
}
