/**
 * A PGlite from an image of a new, empty database, which the first caller makes and keeps in
 * `.runtime`. Making one with initdb takes four seconds of CPU time, starting from the image less
 * than one.
 */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { PGlite, type PGliteOptions } from '@electric-sql/pglite';

const root = path.join(import.meta.dirname, '../..');
const { version } = JSON.parse(readFileSync(path.join(root, 'node_modules/@electric-sql/pglite/package.json'), 'utf8'));
const file = path.join(root, `.runtime/pglite-${version}.tgz`);

/** The options are those that initdb does not need. */
export async function openPglite(options: PGliteOptions = {}): Promise<PGlite> {
  const image = read() ?? (await make());
  return PGlite.create({ ...options, loadDataDir: image });
}

function read(): Blob | undefined {
  try {
    return new Blob([readFileSync(file)], { type: 'application/x-gzip' });
  } catch {
    return undefined;
  }
}

/** Written beside and renamed, because several test files may do this at once. */
async function make(): Promise<Blob> {
  const pglite = await PGlite.create();
  const image = await pglite.dumpDataDir('gzip');
  await pglite.close();
  const beside = `${file}.${process.pid}`;
  try {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(beside, Buffer.from(await image.arrayBuffer()));
    renameSync(beside, file);
  } catch {
    // A checkout that cannot be written: each file makes its own.
    rmSync(beside, { force: true });
  }
  return image;
}
