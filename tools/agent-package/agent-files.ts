/**
 * The files of the agent's program: what its programs import, and the npm packages that those need,
 * as package-lock.json lists them.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import path from 'node:path';
import { importsOf } from '../imports/source.ts';
import type { FileToPackage } from './build-package.ts';

const PROGRAMS = ['lib/agent/main.ts', 'lib/agent/launcher/main.ts'];

interface LockedPackage {
  dependencies?: Record<string, string>;
}

/** @param version what the packaged program says its version is */
export function agentFiles(root: string, version: string): FileToPackage[] {
  const { sources, packages } = closureOf(root);
  const names = [...sources, ...[...packages].flatMap((name) => filesBelow(root, name))].sort();
  const about = { ...readJson(path.join(root, 'package.json')), version };
  return [
    { path: 'package.json', contents: Buffer.from(`${JSON.stringify(about, null, 2)}\n`) },
    ...names.map((name) => ({ path: name, contents: readFileSync(path.join(root, name)) })),
  ];
}

function closureOf(root: string): { sources: Set<string>; packages: Set<string> } {
  const sources = new Set(PROGRAMS);
  const packages = new Set<string>();
  for (const source of sources) {
    for (const specifier of importsOf(readFileSync(path.join(root, source), 'utf8'))) {
      if (specifier.startsWith('.')) sources.add(path.join(path.dirname(source), specifier));
      else if (!isBuiltin(specifier)) packages.add(`node_modules/${packageOf(specifier)}`);
    }
  }
  return { sources, packages: withDependencies(root, packages) };
}

/**
 * Types are erased, so their packages are not needed; they are not in the lock of the product
 * either.
 */
function withDependencies(root: string, packages: Set<string>): Set<string> {
  const locked = readJson(path.join(root, 'package-lock.json')).packages as Record<string, LockedPackage>;
  for (const name of packages)
    for (const dependency of Object.keys(locked[name]?.dependencies ?? {})) {
      const found = resolveFrom(name, dependency, locked);
      if (found !== undefined) packages.add(found);
    }
  return packages;
}

/** Finds a dependency like Node: in the nearest node_modules upwards. */
function resolveFrom(name: string, dependency: string, locked: Record<string, LockedPackage>): string | undefined {
  for (let at = name; at !== ''; at = at.slice(0, Math.max(at.lastIndexOf('/node_modules/'), 0))) {
    const candidate = `${at}/node_modules/${dependency}`;
    if (Object.hasOwn(locked, candidate)) return candidate;
  }
  const top = `node_modules/${dependency}`;
  return Object.hasOwn(locked, top) ? top : undefined;
}

/** Without the packages inside it, which are listed by themselves, and without links. */
function filesBelow(root: string, folder: string): string[] {
  if (!existsSync(path.join(root, folder))) return [];
  return readdirSync(path.join(root, folder), { withFileTypes: true }).flatMap((found) => {
    const name = `${folder}/${found.name}`;
    if (found.isDirectory()) return found.name === 'node_modules' ? [] : filesBelow(root, name);
    return found.isFile() && isNeeded(name) ? [name] : [];
  });
}

const isNeeded = (name: string): boolean => !/\.(?:map|md|markdown|d\.[mc]?ts)$/i.test(name);

const isBuiltin = (specifier: string): boolean =>
  specifier.startsWith('node:') || builtinModules.includes(specifier.split('/')[0] ?? '');

const packageOf = (specifier: string): string =>
  specifier
    .split('/')
    .slice(0, specifier.startsWith('@') ? 2 : 1)
    .join('/');

const readJson = (file: string): Record<string, unknown> =>
  JSON.parse(readFileSync(file, 'utf8')) as Record<string, unknown>;
