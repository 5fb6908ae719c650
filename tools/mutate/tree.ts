/**
 * A copy of the project into which mutants are written, so that mutants and edits of the project do
 * not disturb each other.
 */
import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

const LINKED = ['node_modules', '.runtime', '.tap'];
const LEFT_OUT = new Set([...LINKED, '.git', 'data']);

export class Tree {
  readonly root: string;

  constructor(from: string) {
    this.root = mkdtempSync(path.join(os.tmpdir(), 'cnapi-mutants-'));
    for (const entry of readdirSync(from).filter((name) => !LEFT_OUT.has(name)))
      cpSync(path.join(from, entry), path.join(this.root, entry), { recursive: true });
    for (const entry of LINKED) symlinkSync(path.join(from, entry), path.join(this.root, entry));
  }

  read(file: string): string {
    return readFileSync(path.join(this.root, file), 'utf8');
  }

  write(file: string, text: string): void {
    writeFileSync(path.join(this.root, file), text);
  }

  [Symbol.dispose](): void {
    rmSync(this.root, { recursive: true, force: true });
  }
}
