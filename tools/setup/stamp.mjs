/**
 * The stamp records for which lock file, Node and platform `node_modules` was made, and whether
 * with the packages of development ('all') or without ('product'). It is inside `node_modules`, so
 * that a manual `npm ci` removes it and the next run repeats the set-up.
 */
import { createHash } from 'node:crypto';
import { lstatSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { failure } from './failure.mjs';

/**
 * Whether set-up was completed for exactly this lock file, Node and platform, with at least the
 * `wanted` packages, and the Node still exists.
 */
export function hasPackages(root, node, wanted) {
  const stamp = node.present ? read(stampFile(root)) : undefined;
  if (stamp === undefined) return false;
  return stamp === expected(root, node, 'all') || (wanted === 'product' && stamp === expected(root, node, 'product'));
}

/**
 * Whether `node_modules` is a link: it then belongs to another checkout, and `npm ci` here would
 * empty it.
 */
export function isBorrowed(root) {
  return lstatSync(path.join(root, 'node_modules'), { throwIfNoEntry: false })?.isSymbolicLink() === true;
}

/** Removes the stamp: from now on the set-up counts as unfinished. */
export function clearStamp(root) {
  rmSync(stampFile(root), { force: true });
}

/** Writes the stamp in one step, as the last action of a set-up. */
export function writeStamp(root, node, packages) {
  const file = stampFile(root);
  try {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(`${file}.new`, expected(root, node, packages));
    renameSync(`${file}.new`, file);
  } catch (error) {
    throw failure('writing the set-up stamp', error.message);
  }
}

function expected(root, node, packages) {
  const lock = createHash('sha256')
    .update(readFileSync(path.join(root, 'package-lock.json')))
    .digest('hex');
  return `${JSON.stringify({ lock, node: node.version, platform: process.platform, arch: process.arch, packages })}\n`;
}

function stampFile(root) {
  return path.join(root, 'node_modules', '.cnapi-setup.json');
}

function read(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return undefined;
  }
}
