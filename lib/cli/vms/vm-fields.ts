/**
 * The fields of a VM as users write them: words, a file, and options for what is hard to write as a
 * word.
 */
import { readFile } from 'node:fs/promises';
import { text as readAll } from 'node:stream/consumers';
import { suggestion } from '../../platform/suggestion.ts';
import { provisioningContracts } from '../../protocol/api/provisioning.ts';
import { isJsonObject, type JsonObject } from '../../protocol/json/bounded-json.ts';
import { vmCreate, vmUpdate } from '../../protocol/vms.ts';
import { parseVariables } from '../invocation/remote-program.ts';
import { UsageError, unreadable } from '../terminal/command-errors.ts';
import { escapeControls } from '../terminal/escape-controls.ts';

export interface FieldOptions {
  file?: string;
  cmd?: string;
  tty?: boolean;
  env?: string[];
}

/**
 * What is in the file counts least, so that one file serves for several VMs.
 * @throws UsageError
 */
export async function buildVmFields(
  words: readonly string[],
  { file, cmd, tty, env }: FieldOptions,
): Promise<JsonObject> {
  const fields = { ...(file !== undefined && (await fieldsIn(file))), ...parseFields(words) };
  const metadata = {
    ...(cmd !== undefined && { 'docker:cmd': JSON.stringify(parseCommand(cmd)) }),
    ...(tty === true && { 'docker:tty': 'true' }),
    ...(env !== undefined && { 'docker:env': JSON.stringify(environmentOf(env)) }),
  };
  if (Object.keys(metadata).length === 0) return fields;
  const { internal_metadata: given = {} } = fields;
  if (!isJsonObject(given)) throw new UsageError('internal_metadata is not a JSON object');
  return { ...fields, internal_metadata: { ...given, ...metadata } };
}

/** Fields of the request itself, besides those of the VM. */
const OF_REQUEST = ['jobid', 'ticket_uuid'];
const OF_CREATE = [...Object.keys(vmCreate.shape), 'image', ...OF_REQUEST];
const OF_UPDATE = [...Object.keys(vmUpdate.shape), ...OF_REQUEST];
/** Without a server: what placement is told, and where the image comes from. */
const OF_PROVISION = [
  ...Object.keys(vmCreate.shape),
  ...Object.keys(provisioningContracts.ProvisionVm.params.shape),
  'image',
  'secret_params',
].filter((field, index, all) => field !== 'server_uuid' && all.indexOf(field) === index);

const FIELDS_OF = { create: OF_CREATE, provision: OF_PROVISION, update: OF_UPDATE };

/**
 * Instances ignore names that are not fields, because clients of Triton send many; a person has
 * misspelt them. VMs of another brand than `oci` have other fields, which only their agents know.
 * @throws UsageError
 */
export function checkFields(
  fields: JsonObject,
  { action, brand }: { action: keyof typeof FIELDS_OF; brand: unknown },
): void {
  if (brand !== undefined && brand !== 'oci') return;
  const known = FIELDS_OF[action];
  const wrong = Object.keys(fields).find((field) => !known.includes(field));
  if (wrong === undefined) return;
  const command = action === 'update' ? 'cnapi vm update' : 'cnapi vm create';
  const meant = suggestion(wrong, known) || `; the fields are ${known.toSorted().join(', ')}`;
  throw new UsageError(`${escapeControls(wrong)} is not a field that ${command} takes${meant}`);
}

/**
 * A value is JSON if it is an object, a list, a number, true or false; otherwise a text. @throws
 * UsageError
 */
export function parseFields(words: readonly string[]): JsonObject {
  const pairs = words.map((word) => {
    const [, field, value = ''] = /^([a-z_]+)=(.*)$/s.exec(word) ?? [];
    if (field === undefined) throw new UsageError(`${word} is not FIELD=VALUE`);
    return [field, parseValue(field, value)];
  });
  return Object.fromEntries(pairs);
}

const TEXTS = ['alias', 'hostname', 'package_name', 'package_version', 'billing_id', 'dns_domain'];

function parseValue(field: string, value: string): unknown {
  if (TEXTS.includes(field) || !/^([[{]|-?\d+(\.\d+)?$|true$|false$)/.test(value)) return value;
  try {
    return JSON.parse(value);
  } catch (cause) {
    throw new UsageError(`${field} is not JSON: ${value}`, { cause });
  }
}

async function fieldsIn(file: string): Promise<JsonObject> {
  const reading = file === '-' ? readAll(process.stdin) : readFile(file, 'utf8');
  const text = await reading.catch(unreadable('--file', file));
  try {
    const fields: unknown = JSON.parse(text);
    if (isJsonObject(fields)) return fields;
  } catch (cause) {
    throw new UsageError(`--file ${file} is not JSON`, { cause });
  }
  throw new UsageError(`--file ${file} is not a JSON object`);
}

/** Parses a command like a Dockerfile does: a JSON list is run as it is, a text by a shell. */
function parseCommand(text: string): string[] {
  if (!text.startsWith('[')) return ['/bin/sh', '-c', text];
  try {
    const words: unknown = JSON.parse(text);
    if (Array.isArray(words) && words.length > 0 && words.every((word) => typeof word === 'string')) return words;
  } catch (cause) {
    throw new UsageError(`--cmd is not JSON: ${text}`, { cause });
  }
  throw new UsageError('--cmd is not a JSON list of texts');
}

const environmentOf = (env: readonly string[]): string[] =>
  Object.entries(parseVariables({ env }, {}).env).map(([name, value]) => `${name}=${value}`);
