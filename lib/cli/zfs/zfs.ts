/** `cnapi zfs`: pools, datasets and snapshots of a server, by the programs of ZFS there. */

import { Command } from 'commander';
import { definedFields } from '../../platform/defined-fields.ts';
import { type ZfsDataset, type ZfsPool, zfsContracts } from '../../protocol/api/zfs.ts';
import type { TaskName } from '../../protocol/task-name.ts';
import {
  MAX_ZFS_PROPERTIES,
  reasonNotDataset,
  reasonNotDatasetOrSnapshot,
  reasonNotProperty,
  reasonNotSnapshot,
} from '../../protocol/zfs.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import type { Column } from '../terminal/table.ts';
import { runServerTask } from '../vms/vm-task.ts';

const SERVER = ['<server>', 'uuid, the beginning of one, or hostname'] as const;
const DATASET = 'a file system or volume: POOL/NAME';
const SNAPSHOT = ['<snapshot>', 'POOL/NAME@SNAPSHOT'] as const;
/** Longer than an instance waits for the answer of the agent. */
const LIMITS = { withinMs: 75_000 } as const;

/** A command that is a task with one name. */
interface Change {
  task: TaskName;
  /** Before the name. */
  done: string;
  /** After `could not be`. */
  failed: string;
  /** Why the name is wrong. */
  check(name: string): string | undefined;
}

export function zfsCommand(runner: CommandRunner): Command {
  const command = new Command('zfs').description(
    'Shows and changes the ZFS of a server. Its agent changes only the datasets that its option --zfs names.',
  );
  const add = (words: string, description: string, example: string) =>
    withExamples(command.command(words).description(description), [example]).argument(...SERVER);
  /** Runs a task, waits for its end, and says what was done. */
  const change = (made: Command, { task, done, failed, check }: Change) =>
    made.option('-d, --detach', "do not wait; print the task's id").action(
      runner.action((context, [server, name], { detach = false }: { detach?: boolean }) => {
        const dataset = checked(String(name), check);
        const said = { done: `${done} ${dataset}`, failed: `${dataset} could not be ${failed}` };
        return runServerTask(context, String(server), { task, params: { dataset }, ...said, detach });
      }),
    );

  add('pools', 'Lists the pools.', 'cnapi zfs pools web-1').action(
    runner.action(async (context, [server]) => {
      const server_uuid = await uuidOf(context, server);
      show(context, POOLS, await context.client.ask(zfsContracts.ListPools, { server_uuid }, LIMITS));
    }),
  );
  add(
    'list',
    'Lists the file systems and volumes, or those of a dataset and below it; with --snapshots, the snapshots of a dataset.',
    'cnapi zfs list web-1 zones/data',
  )
    .argument('[dataset]', DATASET)
    .option('-s, --snapshots', 'the snapshots of the dataset')
    .action(
      runner.action((context, [server, dataset], { snapshots = false }: { snapshots?: boolean }) =>
        list(context, server, {
          dataset: dataset === undefined ? undefined : checked(String(dataset), reasonNotDataset),
          snapshots,
        }),
      ),
    );
  add(
    'get',
    'Shows properties of a dataset or snapshot, with numbers in bytes.',
    'cnapi zfs get web-1 zones/data quota used',
  )
    .argument('<dataset>', `${DATASET}, or a snapshot`)
    .argument('[names...]', 'of properties (default: all)')
    .action(
      runner.action((context, [server, dataset, words]) =>
        get(context, {
          server,
          dataset: checked(String(dataset), reasonNotDatasetOrSnapshot),
          names: [words ?? []].flat().map(String),
        }),
      ),
    );
  add('set', 'Sets properties of a dataset, one after the other.', 'cnapi zfs set web-1 zones/data quota=10G')
    .argument('<dataset>', `${DATASET}, or a snapshot`)
    .argument('<settings...>', 'properties and values, such as quota=10G')
    .option('-d, --detach', "do not wait; print the task's id")
    .action(
      runner.action((context, [server, name, words], { detach = false }: { detach?: boolean }) => {
        const dataset = checked(String(name), reasonNotDatasetOrSnapshot);
        const properties = propertiesOf([words].flat().map(String));
        const said = { done: `set properties of ${dataset}`, failed: `properties of ${dataset} could not be set` };
        const params = { dataset, properties };
        return runServerTask(context, String(server), { task: 'zfs_set_properties', params, ...said, detach });
      }),
    );
  change(
    add('create', 'Creates a file system.', 'cnapi zfs create web-1 zones/data/one').argument('<dataset>', DATASET),
    {
      task: 'zfs_create_dataset',
      done: 'created',
      failed: 'created',
      check: reasonNotDataset,
    },
  );
  change(
    add(
      'destroy',
      'Destroys a dataset that has none below it and no snapshots, or a snapshot. What it stores is lost.',
      'cnapi zfs destroy web-1 zones/data/one',
    ).argument('<dataset>', `${DATASET}, or a snapshot`),
    { task: 'zfs_destroy_dataset', done: 'destroyed', failed: 'destroyed', check: reasonNotDatasetOrSnapshot },
  );
  change(add('snapshot', 'Takes a snapshot.', 'cnapi zfs snapshot web-1 zones/data@before').argument(...SNAPSHOT), {
    task: 'zfs_snapshot_dataset',
    done: 'took',
    failed: 'taken',
    check: reasonNotSnapshot,
  });
  change(
    add(
      'rollback',
      'Takes a dataset back to its latest snapshot. What was stored since is lost.',
      'cnapi zfs rollback web-1 zones/data@before',
    ).argument(...SNAPSHOT),
    { task: 'zfs_rollback_dataset', done: 'rolled back to', failed: 'rolled back to', check: reasonNotSnapshot },
  );
  return withExamples(command, ['cnapi zfs list web-1', 'cnapi zfs snapshot web-1 zones/data@before']);
}

const uuidOf = async ({ client }: Context, server: unknown): Promise<string> =>
  (await findServer(client, String(server))).uuid;

async function list(
  context: Context,
  server: unknown,
  { dataset, snapshots }: { dataset: string | undefined; snapshots: boolean },
): Promise<void> {
  if (snapshots && dataset === undefined) throw new UsageError('--snapshots needs a dataset');
  const server_uuid = await uuidOf(context, server);
  const { ListDatasets, ListDatasetSnapshots } = zfsContracts;
  const found =
    snapshots && dataset !== undefined
      ? await context.client.ask(ListDatasetSnapshots, { server_uuid, dataset }, LIMITS)
      : await context.client.ask(ListDatasets, { server_uuid, ...definedFields({ dataset }) }, LIMITS);
  show(context, DATASETS, found);
}

async function get(
  context: Context,
  { server, dataset, names }: { server: unknown; dataset: string; names: readonly string[] },
): Promise<void> {
  const { client, output } = context;
  const wrong = names.find((name) => reasonNotProperty(name) !== undefined);
  if (wrong !== undefined) throw new UsageError(`${escapeControls(wrong)} is not the name of a property`);
  const asked = Object.fromEntries(names.map((name, index) => [`prop${index + 1}`, name]));
  const server_uuid = await uuidOf(context, server);
  const found = await client.ask(zfsContracts.GetDatasetProperties, { server_uuid, dataset, ...asked }, LIMITS);
  if (output.json) return output.document(found);
  const properties = Object.values(found).flatMap((of) => Object.entries(of));
  output.facts(properties);
}

function show<Row>({ output }: Context, columns: readonly Column<Row>[], rows: readonly Row[]): void {
  if (output.json) output.document(rows);
  else output.table(columns, rows);
}

/** @throws UsageError */
function checked(name: string, reasonAgainst: (name: string) => string | undefined): string {
  const reason = reasonAgainst(name);
  if (reason === undefined) return name;
  throw new UsageError(`${escapeControls(name)}: ${reason}`);
}

/** @throws UsageError */
function propertiesOf(words: readonly string[]): Record<string, string> {
  const pairs = words.map((word) => {
    const at = word.indexOf('=');
    const name = word.slice(0, Math.max(at, 0));
    if (reasonNotProperty(name) !== undefined) throw new UsageError(`${escapeControls(word)} is not PROPERTY=VALUE`);
    return [name, word.slice(at + 1)] as const;
  });
  if (pairs.length > MAX_ZFS_PROPERTIES) throw new UsageError(`more than ${MAX_ZFS_PROPERTIES} properties`);
  return Object.fromEntries(pairs);
}

const DATASETS: readonly Column<ZfsDataset>[] = [
  { head: 'NAME', of: ({ name }) => name },
  { head: 'TYPE', of: ({ type = '' }) => type },
  { head: 'USED', of: ({ used = '' }) => used },
  { head: 'AVAILABLE', of: ({ avail = '' }) => avail },
  { head: 'REFERS TO', of: ({ refer = '' }) => refer },
  { head: 'MOUNTED AT', of: ({ mountpoint = '' }) => mountpoint, shrinks: true },
];

const POOLS: readonly Column<ZfsPool>[] = [
  { head: 'NAME', of: ({ name }) => name },
  { head: 'SIZE', of: ({ size = '' }) => size },
  { head: 'ALLOCATED', of: ({ allocated = '' }) => allocated },
  { head: 'FREE', of: ({ free = '' }) => free },
  { head: 'FULL', of: ({ cap = '' }) => cap },
  { head: 'HEALTH', of: ({ health = '' }) => health },
];
