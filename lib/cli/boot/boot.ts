/**
 * `cnapi boot`: shows and changes with which platform, kernel arguments and modules servers boot.
 */
import { readFile } from 'node:fs/promises';
import { Command } from 'commander';
import { buildRequest } from '../../client/request.ts';
import { withoutUndefined } from '../../platform/defined-fields.ts';
import { bootContracts } from '../../protocol/api/boot.ts';
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { type CommandRunner, collectValues, withExamples } from '../invocation/command-runner.ts';
import type { Context } from '../invocation/context.ts';
import { findServer } from '../lookup/find.ts';
import { UsageError, unreadable } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

interface SetOptions {
  platform?: string;
  arg?: string[];
  flag?: string[];
  module?: string[];
  console?: string;
  serial?: string;
}

type UnsetOptions = Pick<SetOptions, 'arg' | 'flag' | 'module'>;

interface Module {
  path: string;
  content: string;
}

const SERVER = [
  '<server>',
  'uuid, the beginning of one, hostname, or default: servers that are not known yet',
] as const;
const DEFAULT = 'default';

export function bootCommand(runner: CommandRunner): Command {
  const command = new Command('boot').description(
    'Shows and changes with which platform, kernel arguments and modules servers boot.',
  );
  withExamples(command.command('show').description('Shows with what a server boots.'), [
    'cnapi boot show web-1',
    'cnapi boot show default --json',
  ])
    .argument(...SERVER)
    .action(runner.action((context, [server]) => show(context, String(server))));
  withExamples(
    command
      .command('set')
      .description('Changes what is given, and leaves the rest as it is. It counts at the next boot.'),
    [
      'cnapi boot set web-1 --platform 20210101T000000Z',
      'cnapi boot set default --arg console=ttyb --module etc/x=./x',
    ],
  )
    .argument(...SERVER)
    .option('--platform <name>', 'boot from this platform; cnapi platform list shows them')
    .option('--arg <name=value>', 'a kernel argument; may be repeated', collectValues)
    .option('--flag <name=value>', 'a kernel flag; may be repeated', collectValues)
    .option(
      '--module <path=file>',
      'a boot module with the contents of a file, 4 KiB at most; may be repeated',
      collectValues,
    )
    .option('--console <name>', 'the console')
    .option('--serial <name>', 'the serial port')
    .action(runner.action((context, [server], options: SetOptions) => set(context, String(server), options)));
  withExamples(command.command('unset').description('Removes kernel arguments, kernel flags and boot modules.'), [
    'cnapi boot unset web-1 --arg console --module etc/x',
  ])
    .argument(...SERVER)
    .option('--arg <name>', 'a kernel argument; may be repeated', collectValues)
    .option('--flag <name>', 'a kernel flag; may be repeated', collectValues)
    .option('--module <path>', 'a boot module; may be repeated', collectValues)
    .action(runner.action((context, [server], options: UnsetOptions) => unset(context, String(server), options)));
  return withExamples(command, ['cnapi boot show web-1', 'cnapi boot set web-1 --platform 20210101T000000Z']);
}

async function show({ client, output }: Context, name: string): Promise<void> {
  const found = await read(client, await uuidOf(client, name));
  if (output.json) return output.document(found);
  const { kernel_args, kernel_flags, boot_modules, ...facts } = found;
  output.facts([
    ...Object.entries(facts),
    ...labelled('argument', kernel_args),
    ...labelled('flag', kernel_flags),
    ...modulesOf(boot_modules).map(({ path }) => ['module', path] as const),
  ]);
}

const labelled = (label: string, values: JsonObject) =>
  Object.entries(values).map(([name, value]) => [label, `${name}=${textOf(value)}`] as const);

const textOf = (value: unknown): string => (typeof value === 'string' ? value : JSON.stringify(value));

async function set({ client, output }: Context, name: string, options: SetOptions): Promise<void> {
  const { platform, arg = [], flag = [], module = [], console, serial } = options;
  if ([platform, options.arg, options.flag, options.module, console, serial].every((one) => one === undefined))
    throw new UsageError('Nothing to set: give --platform, --arg or another option');
  const added = await Promise.all(module.map(readModule));
  const server = await uuidOf(client, name);
  await change(client, server, {
    ...withoutUndefined({ platform }),
    kernel_args: Object.fromEntries(arg.map((pair) => pairOf('--arg', pair))),
    kernel_flags: Object.fromEntries(flag.map((pair) => pairOf('--flag', pair))),
    ...withoutUndefined({ default_console: console, serial }),
    ...(await changedModules(client, server, { removed: added.map(({ path }) => path), added })),
  });
  output.note(`changed the boot parameters of ${name}`);
}

async function unset({ client, output }: Context, name: string, options: UnsetOptions): Promise<void> {
  const { arg = [], flag = [], module = [] } = options;
  if (arg.length + flag.length + module.length === 0)
    throw new UsageError('Nothing to unset: give --arg, --flag or --module');
  const server = await uuidOf(client, name);
  const nulls = (names: readonly string[]) => Object.fromEntries(names.map((one) => [one, null]));
  await change(client, server, {
    kernel_args: nulls(arg),
    kernel_flags: nulls(flag),
    ...(await changedModules(client, server, { removed: module })),
  });
  output.note(`changed the boot parameters of ${name}`);
}

/** The API takes all modules at once, and removes those of the defaults that are not named. */
async function changedModules(
  client: Context['client'],
  server: string,
  { removed, added = [] }: { removed: readonly string[]; added?: readonly Module[] },
): Promise<{ boot_modules?: Module[] }> {
  if (removed.length === 0 && server !== DEFAULT) return {};
  const modules = modulesOf((await read(client, server)).boot_modules);
  return { boot_modules: [...modules.filter(({ path }) => !removed.includes(path)), ...added] };
}

const modulesOf = (modules: readonly unknown[]): Module[] => modules as Module[];

/** @throws UsageError */
async function readModule(pair: string): Promise<Module> {
  const [path, file] = pairOf('--module', pair);
  const content = await readFile(file).catch(unreadable('--module', file));
  return { path, content: content.toString('base64') };
}

/** @throws UsageError */
function pairOf(option: string, text: string): [string, string] {
  const [, name, value] = /^([^=]+)=(.*)$/s.exec(text) ?? [];
  if (name === undefined || value === undefined)
    throw new UsageError(`${option} ${escapeControls(text)} is not NAME=VALUE`);
  return [name, value];
}

const uuidOf = async (client: Context['client'], name: string): Promise<string> =>
  name === DEFAULT ? DEFAULT : (await findServer(client, name)).uuid;

const read = (client: Context['client'], server: string) =>
  server === DEFAULT
    ? client.ask(bootContracts.GetBootDefaults, {})
    : client.ask(bootContracts.GetBootParams, { server_uuid: server });

async function change(client: Context['client'], server: string, changes: JsonObject): Promise<void> {
  const { ChangeBootDefaults, ChangeBootParams } = bootContracts;
  await client.http.call(
    server === DEFAULT
      ? buildRequest(ChangeBootDefaults, changes)
      : buildRequest(ChangeBootParams, { server_uuid: server, ...changes }),
  );
}
