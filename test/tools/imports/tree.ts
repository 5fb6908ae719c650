import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

export interface Teardown {
  teardown(work: () => void): void;
}

/** A folder with these files, removed when `t` ends. */
export function tree(t: Teardown, files: Record<string, string>): string {
  const root = mkdtempSync(path.join(os.tmpdir(), 'cnapi-imports-'));
  t.teardown(() => rmSync(root, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  }
  return root;
}
