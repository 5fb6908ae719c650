/**
 * The uuid of this agent's server, kept in the data directory. At the first start it is the
 * machine's own product uuid if that is plausible, else a random one. `chooseUuid` is pure.
 */
import { open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Random } from '../../platform/random.ts';
import { AgentUsageError } from '../usage-error.ts';
import { readTextFile } from './read-text-file.ts';

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-([1-8])[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Placeholder uuids that some vendors ship. */
const DUMMIES = new Set([
  '03000200-0400-0500-0006-000700080009',
  '00020003-0004-0005-0006-000700080009',
  '12345678-1234-5678-90ab-cddeefaabbcc',
  '01234567-89ab-cdef-0123-456789abcdef',
]);

/**
 * A uuid of a known version and variant that has more than four different digits and is not a known
 * placeholder.
 */
export function isPlausibleUuid(text: string): boolean {
  const digits = new Set(text.replaceAll('-', ''));
  return UUID.test(text) && digits.size > 4 && !DUMMIES.has(text);
}

export function chooseUuid(productUuid: string | undefined, random: Random): string {
  const own = productUuid?.trim().toLowerCase() ?? '';
  return isPlausibleUuid(own) ? own : random.uuid();
}

/**
 * The stored server uuid, or one that is chosen and stored now. A given uuid must equal a stored
 * one.
 */
export async function ownServerUuid(directory: string, random: Random, given?: string): Promise<string> {
  const path = join(directory, 'server-uuid');
  const kept = (await readFile(path, 'utf8').catch(() => '')).trim();
  if (kept === '') return keep(path, given ?? chooseUuid(await readProductUuid(), random));
  if (given === undefined || given === kept) return kept;
  throw new AgentUsageError(`${directory} belongs to server ${kept}, not ${given}; give another --data`);
}

async function keep(path: string, uuid: string): Promise<string> {
  const file = await open(path, 'w', 0o600);
  try {
    await file.write(`${uuid}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  return uuid;
}

function readProductUuid(): Promise<string | undefined> {
  return readTextFile('/sys/class/dmi/id/product_uuid');
}
