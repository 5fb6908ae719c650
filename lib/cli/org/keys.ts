/** `cnapi org key`: the keys with which requests are signed. Part of org.ts. */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { keys } from '../../protocol/api/documents/organizations.ts';
import { deleteDocument, fieldColumn, printDocuments, UUID_COLUMN } from '../documents/documents.ts';
import type { CommandRunner } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findDocument, listDocuments } from '../lookup/find-document.ts';
import { findOwner } from '../lookup/owners.ts';
import { UsageError, unreadable } from '../terminal/command-errors.ts';
import { parseDuration, shortTime } from '../terminal/duration.ts';
import { sortByName } from '../terminal/name-order.ts';
import { withPrivateFile } from '../terminal/private-file.ts';

const OWNER = 'a user, or ORGANIZATION/CLIENT';

interface KeyOptions {
  name: string;
  publicKey?: string;
  file?: string;
  expires?: string;
}

export function keyCommand(runner: CommandRunner): Command {
  const command = new Command('key').description('Manages the keys with which users and clients sign requests.');
  command
    .command('create')
    .description('Creates a key: with a public key of yours, or a pair whose private key is shown once.')
    .argument('<owner>', OWNER)
    .option('--name <name>', 'of the key', 'default')
    .option('--public-key <file>', 'the public key as PEM (default: the instance makes a pair)')
    .option('--file <file>', 'write the private key to this new file, mode 0600, instead of printing it')
    .option('--expires <duration>', 'such as 90d (default: never)')
    .action(runner.action((context, [owner], options: KeyOptions) => createKey(context, String(owner), options)));
  command
    .command('list')
    .description('Lists the keys of a user or client.')
    .argument('<owner>', OWNER)
    .action(
      runner.action(async (context, [owner]) => {
        const filter = { owner: (await findOwner(context.client, String(owner))).uuid };
        const expires = { head: 'EXPIRES', of: (key: Record<string, unknown>) => shortTime(key.expires_at as string) };
        const columns = [fieldColumn('KEY', 'name'), UUID_COLUMN, expires];
        const listed = await listDocuments(context.client, keys, filter);
        printDocuments(context, sortByName(listed), { plural: 'keys', columns });
      }),
    );
  command
    .command('delete')
    .description('Deletes a key; requests that were signed with it are refused from then on.')
    .argument('<owner>', OWNER)
    .argument('<name>', 'of the key')
    .action(
      runner.action(async (context, [given, name]) => {
        const owner = (await findOwner(context.client, String(given))).uuid;
        await deleteDocument(
          context,
          keys,
          await findDocument(context.client, keys, String(name), { within: { owner } }),
        );
      }),
    );
  return command;
}

async function createKey(context: Context, given: string, options: KeyOptions): Promise<void> {
  const { client, output, random, clock } = context;
  const { name, publicKey, file, expires } = options;
  if (publicKey !== undefined && file !== undefined)
    throw new UsageError('--file is for the private key of a pair that the instance makes; you already have yours');
  const public_key = publicKey === undefined ? undefined : await readPem(publicKey);
  const { uuid: owner } = await findOwner(client, given);
  const expires_at =
    expires === undefined ? undefined : new Date(clock.wallTime() + parseDuration(expires, '--expires')).toISOString();
  await withPrivateFile(file, async (save) => {
    const params = { uuid: random.uuid(), owner, name, public_key, expires_at };
    const { private_key, ...made } = await client.documents(keys.contracts.create, params);
    await save(String(private_key));
    if (output.json) return output.document({ ...made, ...(file === undefined ? { private_key } : { file }) });
    output.note(`key ${made.uuid} (${name} of ${given})`);
    if (file !== undefined) output.line(file);
    else if (private_key !== undefined) output.raw(String(private_key));
  });
}

/** @throws UsageError also for a private key, which must not be sent anywhere */
async function readPem(file: string): Promise<string> {
  const pem = await readFile(file, 'utf8').catch(unreadable('--public-key', file));
  if (pem.includes('PRIVATE KEY'))
    throw new UsageError(`--public-key ${file} is a private key; keep that, and give the public one`);
  return pem;
}
