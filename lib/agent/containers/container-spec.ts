/**
 * Parses what a caller asks for into the specification of a container: the edge through which all
 * of them come. What follows can rely on the types of container.ts and on the rules here. The
 * result has a canonical form, so a repeated create is recognized, and it stays the same in a JSON
 * file.
 */

import { z } from 'zod';
import { KIB, MIB } from '../../platform/byte-units.ts';
import type { FieldError } from '../../platform/errors.ts';
import type { ContainerProcess, ContainerSpec } from './container.ts';
import { InvalidContainerSpecError } from './container-errors.ts';
import { resolverAddress } from './specification/addresses.ts';
import { type AllowedPlaces, allowedDirectory } from './specification/allowed-places.ts';
import { nics } from './specification/nics.ts';
import {
  byteLength,
  containerId,
  hostname,
  hostnameOf,
  MAX_WORD_BYTES,
  mountTarget,
  path,
  quoted,
  record,
  unicodeText,
  variableName,
  word,
  workingDirectory,
} from './specification/words.ts';

const GIB = 1024 * MIB;

const MAX_ARGS = 1_000;
const MAX_VARIABLES = 1_000;
/**
 * Bytes of all arguments and variables, with one pointer each. The kernel gives them a quarter of
 * the usual stack of 8 MiB; 16 KiB are left for what the runtime adds.
 */
const MAX_EXEC_BYTES = 2 * MIB - 16 * KIB;
const POINTER_BYTES = 8;
/** User and group ids inside a container. The agent maps each to an id of the machine. */
const MAX_ID = 65_535;
/** More do not fit into the options of one overlay mount. */
const MAX_LAYERS = 128;
const MAX_MOUNTS = 64;
/** The C library uses at most three. */
const MAX_RESOLVERS = 3;
const MAX_METADATA_BYTES = 64 * KIB;
const MAX_ERRORS = 20;

const integer = (min: number, max: number) => z.number().int().min(min).max(max);

const firstProcess = z
  .strictObject({
    args: z.array(word).min(1, 'is empty; name a program').max(MAX_ARGS),
    env: record(variableName, word).default({}),
    directory: workingDirectory.default('/'),
    uid: integer(0, MAX_ID).default(0),
    gid: integer(0, MAX_ID).default(0),
    // Absent and not false, so the records of older agents are canonical, too.
    hasTerminal: z.literal(true).optional(),
  })
  .superRefine((one, context) => {
    const complain = (at: (string | number)[], message: string) =>
      context.addIssue({ code: 'custom', path: at, message });
    if (one.args[0] === '') complain(['args', 0], 'is empty; name a program');
    const variables = Object.entries(one.env);
    if (variables.length > MAX_VARIABLES) complain(['env'], `holds more than ${MAX_VARIABLES}; remove some`);
    for (const [name, value] of variables)
      if (byteLength(name) + 1 + byteLength(value) > MAX_WORD_BYTES)
        complain(['env', name], `is longer than ${MAX_WORD_BYTES} bytes with its name; pass it in a file`);
    if (execBytes(one) > MAX_EXEC_BYTES)
      complain(['args'], `and env are longer than ${MAX_EXEC_BYTES} bytes together; pass some of it in a file`);
  });

function execBytes({ args, env }: Pick<ContainerProcess, 'args' | 'env'>): number {
  const words = [...args, ...Object.entries(env).map(([name, value]) => `${name}=${value}`)];
  return words.reduce((sum, one) => sum + byteLength(one) + 1 + POINTER_BYTES, 0);
}

/** The defaults are the memory of a Nomad task, one core, and Podman's limit of processes. */
const limits = z.strictObject({
  /** The runtime itself needs this much to start. */
  memoryBytes: integer(6 * MIB, 16 * KIB * GIB).default(300 * MIB),
  cpuPercent: integer(1, 100_000).default(100),
  /** The runtime's own threads count while it starts. */
  processes: integer(16, 4_194_304).default(2_048),
});

const mounts = z
  .array(z.strictObject({ source: path, target: mountTarget, isReadOnly: z.boolean().default(false) }))
  .max(MAX_MOUNTS)
  .superRefine((all, context) => {
    all.forEach(({ target }, index) => {
      const isFirst = all.findIndex((one) => one.target === target) === index;
      const message = `repeats ${quoted(target)}; mount one directory there`;
      if (!isFirst) context.addIssue({ code: 'custom', path: [index, 'target'], message });
    });
  })
  .default([]);

const metadata = record(unicodeText.min(1, 'is empty').max(1_024), unicodeText)
  .refine(
    (all) =>
      Object.entries(all).reduce((sum, [key, value]) => sum + byteLength(key) + byteLength(value), 0) <=
      MAX_METADATA_BYTES,
    `is larger than ${MAX_METADATA_BYTES} bytes; keep some of it elsewhere`,
  )
  .default({});

/** The default is 100 MB in all, as for Docker's local logs and Nomad's logs. */
const log = z.strictObject({
  maxBytes: integer(64 * KIB, GIB).default(10 * MIB),
  maxFiles: integer(1, 100).default(10),
});

const schema = z
  .strictObject({
    id: containerId,
    hostname: hostname.optional(),
    root: z.strictObject({
      layers: z.array(path).min(1, 'is empty; name the layers of an image').max(MAX_LAYERS),
      isReadOnly: z.boolean().default(false),
    }),
    process: firstProcess,
    limits: limits.prefault({}),
    mounts,
    nics,
    resolvers: z.array(resolverAddress).max(MAX_RESOLVERS).default([]),
    metadata,
    log: log.prefault({}),
  })
  .transform((spec): ContainerSpec => ({ ...spec, hostname: spec.hostname ?? hostnameOf(spec.id) }));

/** @throws InvalidContainerSpecError naming each wrong field, and how to correct it */
export async function parseContainerSpec(input: unknown, allowed: AllowedPlaces): Promise<ContainerSpec> {
  const parsed = schema.safeParse(input, { error: messageOfIssue });
  if (!parsed.success) throw new InvalidContainerSpecError(parsed.error.issues.slice(0, MAX_ERRORS).map(fieldErrorOf));
  return placed(parsed.data, allowed);
}

/**
 * Replaces directories by their real paths, and sorts mounts: a mount follows the mounts that
 * contain it.
 */
async function placed(spec: ContainerSpec, allowed: AllowedPlaces): Promise<ContainerSpec> {
  const errors: FieldError[] = [];
  const real = async (field: string, path: string, [within, option]: readonly [readonly string[], string]) => {
    try {
      return await allowedDirectory(path, within, option);
    } catch (error) {
      errors.push({ field, code: 'Invalid', message: (error as Error).message });
      return path;
    }
  };
  const layersIn = [allowed.layerDirectories, 'directories of images'] as const;
  const layers = await Promise.all(
    spec.root.layers.map((layer, index) => real(`root.layers.${index}`, layer, layersIn)),
  );
  const mountsIn = [allowed.directories, 'allowed directories'] as const;
  const sources = await Promise.all(
    spec.mounts.map((mount, index) => real(`mounts.${index}.source`, mount.source, mountsIn)),
  );
  spec.nics.forEach(({ bridge }, index) => {
    const message = `${quoted(bridge)} is not allowed by this agent; choose an allowed bridge, or add it to them`;
    if (!allowed.bridges.includes(bridge)) errors.push({ field: `nics.${index}.bridge`, code: 'Invalid', message });
  });
  if (errors.length > 0) throw new InvalidContainerSpecError(errors.slice(0, MAX_ERRORS));
  const mounted = spec.mounts.map((mount, index) => ({ ...mount, source: sources[index] ?? mount.source }));
  return { ...spec, root: { ...spec.root, layers }, mounts: mounted.sort((a, b) => (a.target < b.target ? -1 : 1)) };
}

/** Names the field by its path; `messageOfIssue` must have made the sentences. */
export function fieldErrorOf({ path: at, message }: z.core.$ZodIssue): FieldError {
  return { field: at.map((part) => String(part).slice(0, 100)).join('.') || 'container', code: 'Invalid', message };
}

/** The message of an issue for which the schema has no sentence. */
export function messageOfIssue(issue: z.core.$ZodRawIssue): string {
  switch (issue.code) {
    case 'invalid_type':
      if (issue.input === undefined) return `is missing; give ${kindOf(issue.expected)}`;
      return `is not ${kindOf(issue.expected)}; give ${kindOf(issue.expected)}`;
    case 'unrecognized_keys':
      return `has unknown fields (${issue.keys.slice(0, 5).map(quoted).join(', ')}); remove them`;
    case 'too_small':
      return `is less than ${issue.minimum}; give at least that`;
    case 'too_big':
      return `is more than ${issue.maximum}${issue.origin === 'string' ? ' characters' : ''}; give at most that`;
    // A key of a record.
    case 'invalid_key':
      return issue.issues[0]?.message ?? 'has an invalid name';
    default:
      return 'is invalid';
  }
}

const kindOf = (expected: string): string =>
  ({ int: 'a whole number', number: 'a number', string: 'a text', boolean: 'true or false', array: 'a list' })[
    expected
  ] ?? 'an object';
