/** The records of containers. */
import { type DamagedRecord, recordFiles } from '../record-files.ts';
import type { Container } from './container.ts';

interface LoadedRecords {
  containers: Container[];
  /** Records that cannot be read: they and their containers are left as they are. */
  damaged: DamagedRecord[];
}

export interface ContainerRecords {
  load(): Promise<LoadedRecords>;
  /** Resolves when it survives a crash of the machine. */
  write(container: Container): Promise<void>;
  /** Can be repeated. */
  remove(id: string): Promise<void>;
}

export function fileRecords(directory: string): ContainerRecords {
  const files = recordFiles<Container>(directory, ({ spec }) => spec?.id);
  return {
    async load() {
      const { records, damaged } = await files.load();
      return { containers: records, damaged };
    },
    write: (container) => files.write(container),
    remove: (id) => files.remove(id),
  };
}
