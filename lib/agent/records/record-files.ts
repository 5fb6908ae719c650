/**
 * Records of things that outlive the agent: one JSON file each, in a directory that only the agent
 * reads, because they may hold secrets. A file is written beside and renamed, so after a crash it
 * is the old or the new one.
 */
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf } from '../../platform/errors.ts';
import { replaceFile } from '../replace-file.ts';
import { syncDirectory } from '../sync-directory.ts';

interface DamagedRecord {
  id: string;
  reason: string;
}

export interface RecordFiles<Value> {
  /** `damaged` cannot be read, and are left as they are. */
  load(): Promise<{ records: Value[]; damaged: DamagedRecord[] }>;
  /** Resolves when it survives a crash of the machine. */
  write(value: Value): Promise<void>;
  /** Can be repeated. */
  remove(id: string): Promise<void>;
}

const ENDING = '.json';
/** Version of the format in which records are written. */
const VERSION = 1;

/**
 * @param idOf names the file; it must be a safe file name
 * A value has no `version`, because the record has one: that of its format.
 */
export function recordFiles<Value extends object & { version?: never }>(
  directory: string,
  idOf: (value: Value) => string | undefined,
): RecordFiles<Value> {
  const pathOf = (id: string) => join(directory, `${id}${ENDING}`);
  return {
    async load() {
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const records: Value[] = [];
      const damaged: DamagedRecord[] = [];
      for (const name of await readdir(directory)) {
        if (!name.endsWith(ENDING)) {
          await rm(join(directory, name), { force: true });
          continue;
        }
        const id = name.slice(0, -ENDING.length);
        try {
          records.push(parse(await readFile(pathOf(id), 'utf8'), (value) => idOf(value) === id));
        } catch (error) {
          damaged.push({ id, reason: messageOf(error) });
        }
      }
      return { records, damaged };
    },
    write(value) {
      const text = JSON.stringify({ version: VERSION, ...value });
      return replaceFile(pathOf(idOf(value) ?? ''), text, 0o600);
    },
    async remove(id) {
      await rm(pathOf(id), { force: true });
      await syncDirectory(directory);
    },
  };
}

function parse<Value extends object>(text: string, isOwn: (value: Value) => boolean): Value {
  const { version, ...value } = JSON.parse(text) as Value & { version: number };
  if (version !== VERSION) throw new Error(`The record has version ${version}, and this agent writes ${VERSION}`);
  if (!isOwn(value as unknown as Value)) throw new Error('The record is of something else than its name says');
  return value as unknown as Value;
}
