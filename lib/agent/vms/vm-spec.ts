/**
 * The container of a VM. The program comes from the internal metadata of Triton's docker VMs, and
 * otherwise from the image. Pure.
 */

import { z } from 'zod';
import { MIB } from '../../platform/byte-units.ts';
import { definedFields } from '../../platform/defined-fields.ts';
import type { FieldError } from '../../platform/errors.ts';
import type { VmNic, VmProperties } from '../../protocol/vms.ts';
import type { ImageDefaults, VmImage } from '../images/image-store.ts';
import { InvalidVmError } from './vm-errors.ts';

const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
/** The value of Docker: the terminals of those who attach are not known when the program starts. */
const TERM = 'xterm';
const words = z.array(z.string());

/** The input of `parseContainerSpec`, which checks it. @throws InvalidVmError */
export function buildContainerInput(uuid: string, properties: VmProperties, image: VmImage): Record<string, unknown> {
  const { hostname, max_physical_memory, cpu_cap, max_lwps, nics, resolvers } = properties;
  return {
    id: uuid,
    hostname,
    root: { layers: image.layers },
    process: processOf(properties.internal_metadata, image.defaults),
    limits: { memoryBytes: max_physical_memory * MIB, cpuPercent: cpu_cap, processes: max_lwps },
    nics: nics.map(containerNic),
    resolvers,
    metadata: { vm: uuid },
  };
}

function processOf(metadata: Readonly<Record<string, string>>, image: ImageDefaults) {
  const errors: FieldError[] = [];
  const complain = (name: string, message: string) =>
    errors.push({ field: `internal_metadata.docker:${name}`, code: 'Invalid', message });
  const list = (name: string): string[] | undefined => {
    const text = metadata[`docker:${name}`];
    if (text === undefined) return undefined;
    const parsed = words.safeParse(jsonOf(text));
    if (!parsed.success) complain(name, 'is not a JSON list of strings');
    return parsed.data;
  };
  const [entrypoint, cmd, env] = [list('entrypoint'), list('cmd'), list('env')];
  const directory = textOf(metadata['docker:workdir'] ?? metadata['docker:workingdir']) || image.WorkingDir;
  const user = textOf(metadata['docker:user']) || image.User || '0';
  const ids = /^(\d{1,5}|root)(?::(\d{1,5}|root))?$/.exec(user);
  if (ids === null) complain('user', 'is not a numeric user id; this server does not look up names in images');
  const tty = metadata['docker:tty'] ?? 'false';
  if (tty !== 'true' && tty !== 'false') complain('tty', 'is neither true nor false');
  const hasTerminal = tty === 'true';
  const args = argsOf({ entrypoint, cmd }, image);
  if (args.length === 0) complain('cmd', 'is missing, and the image names no program; give one');
  if (errors.length > 0) throw new InvalidVmError(errors);
  const idOf = (text: string | undefined) => (text === undefined || text === 'root' ? 0 : Number(text));
  const term = hasTerminal ? [`TERM=${TERM}`] : [];
  const variables = [`PATH=${PATH}`, ...term, ...(image.Env ?? []), ...(env ?? [])];
  return {
    args,
    env: Object.fromEntries(variables.map(variableOf)),
    ...definedFields({ directory: directory || undefined }),
    uid: idOf(ids?.[1]),
    gid: idOf(ids?.[2]),
    ...(hasTerminal ? { hasTerminal } : {}),
  };
}

/** With another entry point the command of the image is not used, as in Docker. */
function argsOf(own: { entrypoint: string[] | undefined; cmd: string[] | undefined }, image: ImageDefaults): string[] {
  const hasEntrypoint = own.entrypoint !== undefined && own.entrypoint.length > 0;
  const first = hasEntrypoint ? own.entrypoint : image.Entrypoint;
  const rest = own.cmd ?? (hasEntrypoint ? [] : image.Cmd);
  return [...(first ?? []), ...(rest ?? [])];
}

function variableOf(text: string): [string, string] {
  const at = text.indexOf('=');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** Triton writes some texts as JSON. */
function textOf(text: string | undefined): string | undefined {
  const parsed = text === undefined ? undefined : jsonOf(text);
  return typeof parsed === 'string' ? parsed : text;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The default route is that of the primary interface, as in Triton. */
function containerNic(one: VmNic): Record<string, unknown> {
  return {
    name: one.interface,
    bridge: one.nic_tag,
    mac: one.mac,
    addresses: one.ips,
    ...(one.primary === true ? definedFields({ gateway: one.gateway }) : {}),
  };
}

const NAMES: readonly [RegExp, string][] = [
  [/^nics\.(\d+)\.bridge/, 'nics.$1.nic_tag'],
  [/^nics\.(\d+)\.name/, 'nics.$1.interface'],
  [/^nics\.(\d+)\.addresses/, 'nics.$1.ips'],
  [/^limits\.memoryBytes/, 'max_physical_memory'],
  [/^limits\.cpuPercent/, 'cpu_cap'],
  [/^limits\.processes/, 'max_lwps'],
  [/^process\.args/, 'internal_metadata.docker:cmd'],
  [/^process\.env/, 'internal_metadata.docker:env'],
  [/^process\.directory/, 'internal_metadata.docker:workdir'],
  [/^process\.hasTerminal/, 'internal_metadata.docker:tty'],
  [/^process\.[ug]id/, 'internal_metadata.docker:user'],
  [/^root\.layers/, 'image_uuid'],
];

/** Replaces names of container fields by those of the VM's payload. */
export function vmFields(errors: readonly FieldError[]): FieldError[] {
  return errors.map(({ field, ...rest }) => {
    const [pattern, name] = NAMES.find(([one]) => one.test(field)) ?? [];
    return { ...rest, field: pattern === undefined || name === undefined ? field : field.replace(pattern, name) };
  });
}
