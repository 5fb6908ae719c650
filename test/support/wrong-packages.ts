/** Packages that are signed and yet wrong, or changed after they were signed. */
import { createHash } from 'node:crypto';
import { gzipSync } from 'node:zlib';
import { tarOf } from '../../tools/agent-package/build-package.ts';
import { archiveOf, type TestEntry } from './layer-archive.ts';

export type ManifestChange = (manifest: Record<string, unknown>) => object;

interface Parts {
  /** The entries of the new archive. */
  entries: readonly TestEntry[];
  change?: ManifestChange | undefined;
  sign(manifest: Buffer): Buffer;
}

/** The package with another archive, which its manifest describes. */
export function repack(built: Buffer, { entries, change = (one) => one, sign }: Parts): Buffer {
  const archive = gzipSync(archiveOf(entries));
  const [[from, to] = [0, 0]] = bodiesOf(built);
  const manifest = JSON.parse(built.toString('utf8', from, to)) as Record<string, unknown>;
  const described = { bytes: archive.length, sha256: createHash('sha256').update(archive).digest('hex') };
  const text = Buffer.from(JSON.stringify(change({ ...manifest, archive: described })));
  return tarOf([
    { path: 'manifest.json', contents: text },
    { path: 'signature', contents: sign(text) },
    { path: 'files.tar.gz', contents: archive },
  ]);
}

/** Where the contents of the entries of a plain tar are. */
export function bodiesOf(tar: Buffer): [number, number][] {
  const bodies: [number, number][] = [];
  for (let at = 0; tar[at] !== 0; ) {
    const size = Number.parseInt(tar.toString('latin1', at + 124, at + 135), 8);
    bodies.push([at + 512, at + 512 + size]);
    at += 512 + Math.ceil(size / 512) * 512;
  }
  return bodies;
}
