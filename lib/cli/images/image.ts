/**
 * `cnapi image`: loads images on a server, lists, shows and deletes them, by tasks of the server's
 * agent.
 */

import { Command } from 'commander';
import { MIB } from '../../platform/byte-units.ts';
import { isUuid } from '../../protocol/api/contract/rules.ts';
import { serverImageContracts } from '../../protocol/api/images.ts';
import { type CommandRunner, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { UsageError } from '../terminal/command-errors.ts';
import { shortTime } from '../terminal/duration.ts';
import { escapeControls } from '../terminal/escape-controls.ts';
import type { Column } from '../terminal/table.ts';
import { runServerTask } from '../vms/vm-task.ts';
import { sourceUrl } from './source-url.ts';

interface LoadOptions {
  uuid?: string;
  digest?: string;
  detach?: boolean;
}

const SERVER = ['<server>', 'uuid, the beginning of one, or hostname'] as const;
const IMAGE = ['<image>', 'its uuid'] as const;

export function imageCommand(runner: CommandRunner): Command {
  const command = new Command('image').description(
    'Loads, lists, shows and deletes the images of a server, from which VMs are made.',
  );
  withExamples(
    command
      .command('load')
      .description(
        'Loads an image on a server, from a URL or a file of the server that its agent may read. Waits for the end, and prints the uuid of the image.',
      ),
    [
      'cnapi image load web-1 https://images.example.com/busybox.tar',
      'cnapi image load web-1 /var/lib/images/busybox.tar',
    ],
  )
    .argument(...SERVER)
    .argument(
      '<source>',
      'URL (https, http or file), or an absolute path on the server; an OCI archive, or a root file system as tar',
    )
    .option('--uuid <uuid>', 'of the image (default: a new one)')
    .option('--digest <digest>', 'refuse an archive with another one: sha256: and 64 hexadecimal digits')
    .option('-d, --detach', "do not wait; print the task's id")
    .action(
      runner.action((context, [server, source], options: LoadOptions) =>
        load(context, { server: String(server), source: String(source) }, options),
      ),
    );
  const listing =
    'Lists the images of a server, how many VMs use each, and why a load failed. Needs the role operator, because it asks the agent of the server.';
  withExamples(command.command('list').description(listing), ['cnapi image list web-1'])
    .argument(...SERVER)
    .action(runner.action((context, [server]) => list(context, String(server))));
  withExamples(command.command('get').description('Shows an image as the agent of the server knows it.'), [
    'cnapi image get web-1 UUID',
  ])
    .argument(...SERVER)
    .argument(...IMAGE)
    .action(runner.action((context, [server, image]) => get(context, String(server), String(image))));
  withExamples(
    command.command('delete').description('Deletes an image that no VM of the server uses. Waits for the end.'),
    ['cnapi image delete web-1 UUID'],
  )
    .argument(...SERVER)
    .argument(...IMAGE)
    .option('-d, --detach', "do not wait; print the task's id")
    .action(
      runner.action((context, [server, image], { detach = false }: LoadOptions) =>
        runServerTask(context, String(server), {
          task: 'image_delete',
          params: { uuid: imageUuid(String(image)) },
          done: `deleted ${String(image)}`,
          failed: `image ${String(image)} could not be deleted`,
          detach,
        }),
      ),
    );
  return withExamples(command, ['cnapi image load web-1 /var/lib/images/busybox.tar']);
}

async function load(
  context: Context,
  { server, source }: { server: string; source: string },
  { uuid = context.random.uuid(), digest, detach = false }: LoadOptions,
): Promise<number> {
  const url = sourceUrl(source);
  const params = {
    image_uuid: uuid,
    url,
    ...(digest !== undefined && { digest }),
  };
  if (detach) context.output.note(`image ${uuid}`);
  return runServerTask(context, server, {
    task: 'image_ensure_present',
    params,
    done: uuid,
    failed: 'the image could not be loaded',
    detach,
  });
}

/** @throws UsageError */
function imageUuid(text: string): string {
  if (isUuid(text)) return text;
  throw new UsageError(`${escapeControls(text)} is not the uuid of an image; cnapi image list shows those of a server`);
}

async function list({ client, output }: Context, server: string): Promise<void> {
  const { uuid: server_uuid } = await findServer(client, server);
  const images = await client.ask(serverImageContracts.ListServerImages, { server_uuid });
  if (output.json) return output.document(images);
  const columns: Column<(typeof images)[number]>[] = [
    { head: 'UUID', of: ({ uuid }) => uuid },
    { head: 'STATE', of: ({ state }) => state },
    { head: 'SIZE', of: sizeText },
    { head: 'VMS', of: ({ vms }) => `${vms}` },
    { head: 'LAST USED', of: ({ last_used_at }) => shortTime(last_used_at) },
    { head: 'DIGEST', of: ({ digest }) => digest, shrinks: true },
    { head: 'SOURCE', of: ({ source }) => source, shrinks: true },
  ];
  output.table(columns, images);
  for (const { uuid, error } of images)
    if (error !== undefined) output.note(escapeControls(`${uuid}: ${error.message} (${error.code})`));
  if (images.length === 0) output.note(`${server} has no images; cnapi image load loads one`);
}

/** The size of an image is not known before its layers are unpacked. */
const sizeText = ({ size, state }: { size: number; state: string }): string | undefined =>
  size === 0 && state !== 'ready' ? undefined : `${(size / MIB).toFixed(1)} MiB`;

async function get({ client, output }: Context, server: string, image: string): Promise<void> {
  const { uuid: server_uuid } = await findServer(client, server);
  const found = await client.ask(serverImageContracts.GetServerImage, { server_uuid, uuid: imageUuid(image) });
  if (output.json) output.document(found);
  else output.facts(Object.entries(found));
}
