/**
 * What docs/adding-a-noun.md tells its reader to do, read from the page, and a copy in which to do
 * it.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import type { Test } from 'tap';

const root = path.resolve(import.meta.dirname, '../..');

/** A file that the page prints in full. */
interface NewFile {
  file: string;
  text: string;
}

/** Lines that the page adds to a file that exists. */
interface Addition extends NewFile {
  /** The lines are inserted after the first line that contains this text; absent: at the end. */
  after: string | undefined;
}

export interface PageSteps {
  newFiles: NewFile[];
  additions: Addition[];
  /** The commands of the section `## 5. Use it`. */
  commands: string[];
}

const NEW_FILE = /^`([\w./-]+)`:\n\n```\w+\n(.*?)^```$/gms;
const ADDITION = /^In `([\w./-]+)`, (?:at the end|after the line of `(\w+)`):\n\n```\w+\n(.*?)^```$/gms;

export function readSteps(page: string): PageSteps {
  const [, use = ''] = /^## 5\. .*?\n(.*?)^## /ms.exec(page) ?? [];
  return {
    newFiles: [...page.matchAll(NEW_FILE)].map(([, file = '', text = '']) => ({ file, text })),
    additions: [...page.matchAll(ADDITION)].map(([, file = '', after, text = '']) => ({ file, after, text })),
    commands: [...use.matchAll(/^ {4}(cnapi [^|\n]*)$/gm)].map(([, command = '']) => command),
  };
}

export const readPage = (name: string): string => readFileSync(path.join(root, 'docs', name), 'utf8');

/** A copy of this project without its packages, which it shares with this one. */
export function copyOfProject(t: Test): string {
  const copy = mkdtempSync(path.join(os.tmpdir(), 'cnapi-page-'));
  t.teardown(() => rmSync(copy, { recursive: true, force: true }));
  for (const name of ['lib', 'test', 'tools', 'docs', 'server.ts', 'package.json', 'tsconfig.json', 'biome.json'])
    cpSync(path.join(root, name), path.join(copy, name), {
      recursive: true,
      filter: (source) => path.basename(source) !== 'node_modules',
    });
  symlinkSync(path.join(root, 'node_modules'), path.join(copy, 'node_modules'));
  return copy;
}

/** @throws Error if a new file exists, or the place of an addition does not */
export function carryOut(copy: string, { newFiles, additions }: PageSteps): void {
  for (const { file, text } of newFiles) {
    const target = path.join(copy, file);
    if (existsSync(target)) throw new Error(`${file} exists already`);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, text);
  }
  for (const { file, after, text } of additions) {
    const target = path.join(copy, file);
    const lines = readFileSync(target, 'utf8').trimEnd().split('\n');
    const at = after === undefined ? lines.length - 1 : lineOf(after, lines);
    if (at < 0) throw new Error(`${file} has no line of ${after}`);
    lines.splice(at + 1, 0, ...text.trimEnd().split('\n'));
    writeFileSync(target, `${lines.join('\n')}\n`);
  }
}

/**
 * The first line with the word in backquotes, as in a page; otherwise the first with the word, as
 * in code.
 */
function lineOf(word: string, lines: readonly string[]): number {
  const quoted = lines.findIndex((line) => line.includes(`\`${word}\``));
  return quoted >= 0 ? quoted : lines.findIndex((line) => new RegExp(`\\b${word}\\b`).test(line));
}
