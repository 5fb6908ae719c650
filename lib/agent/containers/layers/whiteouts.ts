/**
 * What a layer hides of the layers below it. It is kept as a list beside the layer, for copies,
 * and, where overlay can be mounted, in the layer itself in the form that overlay reads: a
 * character device 0/0 for a removed name, and the attribute trusted.overlay.opaque for a directory
 * of which nothing below is seen.
 *
 * Node can make neither. The program `tar` makes both, from a small archive that is written here:
 * one process per layer, where `mknod` would need one per name, and `setfattr` is rarely installed.
 */
import { Header } from 'tar';
import { LONG_TIMEOUT_MS, runOrThrow } from '../root/program.ts';

export interface Whiteouts {
  /** Paths relative to the root of the layer. */
  removed: string[];
  opaque: string[];
}

const ATTRIBUTE = 'trusted.overlay.opaque';
const ARGUMENTS = ['--extract', '--xattrs', `--xattrs-include=${ATTRIBUTE}`, '--numeric-owner', '--file=-'];
const BLOCK_BYTES = 512;

/**
 * Changes owners, modes and times of opaque directories. Parents of all paths must exist, as
 * directories. @throws ContainerError
 */
export async function markForOverlay(root: string, whiteouts: Whiteouts): Promise<void> {
  if (whiteouts.removed.length + whiteouts.opaque.length === 0) return;
  await runOrThrow('tar', [...ARGUMENTS, `--directory=${root}`], {
    input: archiveOf(whiteouts),
    timeoutMs: LONG_TIMEOUT_MS,
  });
}

function* archiveOf({ removed, opaque }: Whiteouts): Generator<Buffer, void> {
  for (const path of removed) {
    yield* extended(record('path', `./${path}`));
    yield header({ type: 'CharacterDevice', mode: 0 });
  }
  for (const path of opaque) {
    yield* extended(record('path', `./${path}/`) + record(`SCHILY.xattr.${ATTRIBUTE}`, 'y'));
    yield header({ type: 'Directory', mode: 0o700 });
  }
  yield Buffer.alloc(2 * BLOCK_BYTES);
}

function* extended(records: string): Generator<Buffer, void> {
  const body = Buffer.from(records);
  yield header({ type: 'ExtendedHeader', mode: 0o600, size: body.length });
  yield body;
  yield Buffer.alloc((BLOCK_BYTES - (body.length % BLOCK_BYTES)) % BLOCK_BYTES);
}

/** A record of a pax header. The length in it counts its own digits too. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const bytes = Buffer.byteLength(rest);
  let length = bytes + 1;
  while (length !== bytes + String(length).length) length = bytes + String(length).length;
  return `${length}${rest}`;
}

type Fields = { type: 'CharacterDevice' | 'Directory' | 'ExtendedHeader'; mode: number; size?: number };

function header(fields: Fields): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const owner = { uid: 0, gid: 0, mtime: new Date(0), devmaj: 0, devmin: 0 };
  new Header({ path: 'entry', size: 0, ...owner, ...fields }).encode(block);
  return block;
}
