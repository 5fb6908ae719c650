/**
 * Changes of the product's text, for deliberate defects. A change names the text that it replaces
 * and not the file, so that code can move between files without an edit here. The text must occur
 * exactly once in the product: otherwise the product has changed, and the defect must be rewritten.
 */
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export interface TextChange {
  find: string;
  put: string;
}

export const projectRoot = path.resolve(import.meta.dirname, '../..');

/** The file of the project at `root` with the text. @throws Error unless it occurs exactly once */
export function fileWith(find: string, root = projectRoot): string {
  const files = globSync('{lib/**/*.{ts,sql},server.ts}', { cwd: root }).map((name) => path.join(root, name));
  const found = files.flatMap((file) => Array<string>(occurrences(file, find)).fill(file));
  const [file, ...others] = found;
  if (file !== undefined && others.length === 0) return file;
  throw new Error(`the product contains this text ${found.length} times instead of once: ${find}`);
}

/** Runs `work` on a copy of the project with these changes, and removes the copy. */
export async function inChangedCopy<Result>(
  changes: readonly TextChange[],
  work: (copy: string) => Promise<Result>,
): Promise<Result> {
  const copy = mkdtempSync(path.join(os.tmpdir(), 'cnapi-defect-'));
  try {
    for (const name of ['lib', 'test', 'tools', 'server.ts', 'package.json'])
      cpSync(path.join(projectRoot, name), path.join(copy, name), { recursive: true });
    symlinkSync(path.join(projectRoot, 'node_modules'), path.join(copy, 'node_modules'));
    for (const { find, put } of changes) {
      const file = fileWith(find, copy);
      writeFileSync(
        file,
        readFileSync(file, 'utf8').replace(find, () => put),
      );
    }
    return await work(copy);
  } finally {
    rmSync(copy, { recursive: true, force: true });
  }
}

function occurrences(file: string, text: string): number {
  return readFileSync(file, 'utf8').split(text).length - 1;
}
