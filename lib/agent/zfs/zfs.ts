/**
 * ZFS of this server, through its programs `zfs` and `zpool`: lists, properties, and the changes
 * that zfs-change.ts does not refuse. Names are checked before they become arguments; no shell sees
 * them. A program is killed with its task; what the kernel has begun by then, it ends.
 */
import {
  datasetOf,
  reasonNotDataset,
  reasonNotDatasetOrSnapshot,
  reasonNotProperty,
  reasonNotPropertyValue,
  reasonNotSnapshot,
} from '../../protocol/zfs.ts';
import { findProgram, runToEnd } from '../containers/linux/programs.ts';
import {
  dependsOnUse,
  reasonInUse,
  reasonNotSettable,
  reasonNotToChange,
  type ZfsAction,
  type ZfsUse,
} from './zfs-change.ts';
import { ZfsError } from './zfs-error.ts';
import { failureText, parseList, parseProperties, tooLarge } from './zfs-output.ts';

interface ZfsDeps {
  programs: Readonly<Record<'zfs' | 'zpool', string>>;
  /** The datasets of --zfs. */
  allowed: readonly string[];
  /** The VMs of this server. */
  vmUuids(): readonly string[];
  /** Directories that VMs or the agent use. */
  directories(): readonly string[];
}

const DATASET_FIELDS = ['name', 'type', 'used', 'avail', 'refer', 'mountpoint'] as const;
const POOL_FIELDS = ['name', 'size', 'allocated', 'free', 'cap', 'health'] as const;
const NARROW_LIST = 'name a dataset, to list it and what is below it';
const NARROW_SNAPSHOTS = 'name a dataset, or destroy snapshots';
const NARROW_PROPERTIES = 'name the properties, or a dataset';
const MAX_QUOTED_CHARS = 100;
/** The runner ends the task before. */
const TIMEOUT_MS = 24 * 3_600_000;

/** Undefined if the server has no ZFS. */
export async function openZfs(deps: Omit<ZfsDeps, 'programs'>): Promise<Zfs | undefined> {
  const [zfs, zpool] = await Promise.all([findProgram('zfs'), findProgram('zpool')]);
  return zfs === undefined || zpool === undefined ? undefined : new Zfs({ ...deps, programs: { zfs, zpool } });
}

export class Zfs {
  readonly #deps: ZfsDeps;

  constructor(deps: ZfsDeps) {
    this.#deps = deps;
  }

  /** All file systems and volumes, or those within a dataset. */
  async listDatasets(dataset: string | undefined, signal: AbortSignal): Promise<Record<string, string>[]> {
    const narrower = NARROW_LIST;
    const within = dataset === undefined ? [] : ['-r', checked(dataset, reasonNotDataset)];
    const args = ['list', '-H', '-o', DATASET_FIELDS.join(), '-t', 'filesystem,volume', ...within];
    return parseList(await this.#run('zfs', args, { signal, narrower }), DATASET_FIELDS, { narrower });
  }

  /** All snapshots, or those of a dataset, but not of those below it. */
  async listSnapshots(dataset: string | undefined, signal: AbortSignal): Promise<Record<string, string>[]> {
    const narrower = NARROW_SNAPSHOTS;
    const within = dataset === undefined ? [] : ['-d', '1', '-r', checked(dataset, reasonNotDataset)];
    const args = ['list', '-H', '-o', DATASET_FIELDS.join(), '-t', 'snapshot', ...within];
    return parseList(await this.#run('zfs', args, { signal, narrower }), DATASET_FIELDS, { narrower });
  }

  async listPools(signal: AbortSignal): Promise<Record<string, string>[]> {
    const narrower = 'use zpool on the server';
    const text = await this.#run('zpool', ['list', '-H', '-o', POOL_FIELDS.join()], { signal, narrower });
    return parseList(text, POOL_FIELDS, { narrower });
  }

  /** By dataset, with exact numbers; all of them if no properties are named. */
  async properties(
    { dataset, properties = ['all'] }: { dataset?: string | undefined; properties?: readonly string[] | undefined },
    signal: AbortSignal,
  ): Promise<Record<string, Record<string, string>>> {
    const narrower = NARROW_PROPERTIES;
    const names = properties.map((name) => checked(name, reasonNotProperty)).join();
    const datasets = dataset === undefined ? [] : [checked(dataset, reasonNotDatasetOrSnapshot)];
    const args = ['get', '-H', '-p', '-o', 'name,property,value', names, ...datasets];
    return parseProperties(await this.#run('zfs', args, { signal, narrower }), { narrower });
  }

  async create(dataset: string, signal: AbortSignal): Promise<void> {
    return this.#change('create', [checked(dataset, reasonNotDataset)], signal);
  }

  /** A dataset without any below it and without snapshots, or a snapshot. */
  async destroy(name: string, signal: AbortSignal): Promise<void> {
    return this.#change('destroy', [checked(name, reasonNotDatasetOrSnapshot)], signal);
  }

  async snapshot(name: string, signal: AbortSignal): Promise<void> {
    return this.#change('snapshot', [checked(name, reasonNotSnapshot)], signal);
  }

  /** To the latest snapshot; ZFS refuses an earlier one. */
  async rollback(name: string, signal: AbortSignal): Promise<void> {
    return this.#change('rollback', [checked(name, reasonNotSnapshot)], signal);
  }

  async rename(from: string, to: string, signal: AbortSignal): Promise<void> {
    return this.#change(
      'rename',
      [from, to].map((name) => checked(name, reasonNotDataset)),
      signal,
    );
  }

  async clone(snapshot: string, dataset: string, signal: AbortSignal): Promise<void> {
    const names = [checked(snapshot, reasonNotSnapshot), checked(dataset, reasonNotDataset)];
    return this.#change('clone', names, signal);
  }

  /** Sets the properties one after the other: those before one that fails stay set. */
  async set(name: string, properties: Readonly<Record<string, string>>, signal: AbortSignal): Promise<void> {
    const all = Object.entries(properties).map(
      ([property, value]) => `${checked(property, reasonNotProperty)}=${checked(value, reasonNotPropertyValue)}`,
    );
    refuse(reasonNotSettable(Object.keys(properties)));
    await this.#checkChangeable('set', [checked(name, reasonNotDatasetOrSnapshot)], signal);
    for (const one of all) await this.#run('zfs', ['set', one, name], { signal });
  }

  async #change(action: Exclude<ZfsAction, 'set'>, names: readonly string[], signal: AbortSignal): Promise<void> {
    await this.#checkChangeable(action, names, signal);
    await this.#run('zfs', [action, ...names], { signal });
  }

  /** @throws ZfsError */
  async #checkChangeable(action: ZfsAction, names: readonly string[], signal: AbortSignal): Promise<void> {
    const { allowed, vmUuids, directories } = this.#deps;
    const use: ZfsUse = { allowed, vmUuids: vmUuids(), directories: directories() };
    for (const name of names) refuse(reasonNotToChange(action, name, use));
    const [first = ''] = names;
    if (!dependsOnUse(action, first)) return;
    const dataset = datasetOf(first);
    const { [dataset]: found } = await this.properties({ dataset, properties: ['mountpoint'] }, signal);
    refuse(reasonInUse(dataset, found?.mountpoint ?? '', use));
  }

  /** The output. @throws ZfsError */
  async #run(
    program: 'zfs' | 'zpool',
    args: readonly string[],
    { signal, narrower = '' }: { signal: AbortSignal; narrower?: string },
  ): Promise<string> {
    signal.throwIfAborted();
    const end = await runToEnd(this.#deps.programs[program], args, {
      timeoutMs: TIMEOUT_MS,
      signal,
      env: { LC_ALL: 'C' },
    });
    signal.throwIfAborted();
    if (end.hasMoreOutput) throw tooLarge(narrower);
    if (end.exitCode !== 0) throw new ZfsError('ZfsFailed', failureText(end.stderr, end));
    return end.stdout;
  }
}

/** @throws ZfsError */
function checked(name: string, reasonAgainst: (name: string) => string | undefined): string {
  const reason = reasonAgainst(name);
  if (reason === undefined) return name;
  throw new ZfsError(
    'InvalidParameters',
    `${JSON.stringify(name.slice(0, MAX_QUOTED_CHARS))} cannot be used: ${reason}`,
  );
}

/** @throws ZfsError */
function refuse(reason: string | undefined): void {
  if (reason !== undefined) throw new ZfsError('DatasetNotChangeable', reason);
}
