/** Signed packages for tests, of this agent and of others, and the launcher that runs them. */
import { type ChildProcess, spawn } from 'node:child_process';
import { generateKeyPairSync, type KeyObject, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Test } from 'tap';
import { openLinuxMachine } from '../../lib/agent/machine/linux-machine.ts';
import { type PackageOptions, Packages } from '../../lib/agent/packages/packages.ts';
import type { AgentVersions } from '../../lib/agent/versions/agent-versions.ts';
import { VersionsFile } from '../../lib/agent/versions/versions-file.ts';
import { type Logger, silentLogger } from '../../lib/platform/log.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { agentFiles } from '../../tools/agent-package/agent-files.ts';
import { buildPackage, type FileToPackage } from '../../tools/agent-package/build-package.ts';
import { until } from './until.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const LAUNCHER = join(ROOT, 'lib/agent/launcher/main.ts');

export const script = (path: string, text: string): FileToPackage => ({
  path,
  contents: Buffer.from(`#!/bin/sh\n${text}\n`),
  executable: true,
});

export interface PackageShop {
  folder: string;
  data: string;
  privateKey: KeyObject;
  publicKey: KeyObject;
  /** The file of the public key. */
  key: string;
  /** Writes the package and returns its path. */
  add(about: { name?: string; version: string; files: readonly FileToPackage[]; node?: string }): Promise<string>;
  /** The real program of the agent, which says that it has this version. */
  addAgent(version: string): Promise<string>;
}

const { privateKey, publicKey } = generateKeyPairSync('ed25519');
/** By version; each takes a second. */
const agents = new Map<string, Buffer>();

export async function packageShop(t: Test): Promise<PackageShop> {
  const root = await mkdtemp(join(tmpdir(), 'packages-'));
  t.teardown(() => rm(root, { recursive: true, force: true }));
  const [folder, data, key] = [join(root, 'shop'), join(root, 'data'), join(root, 'key.pub')];
  await Promise.all([mkdir(folder), mkdir(data)]);
  await writeFile(key, publicKey.export({ type: 'spki', format: 'pem' }));
  return {
    ...{ folder, data, privateKey, publicKey, key },
    async add({ name = 'cn-agent', ...about }) {
      const file = join(folder, `${name}-${about.version}.tar`);
      await writeFile(file, buildPackage({ name, ...about, privateKey }));
      return file;
    },
    async addAgent(version) {
      const built =
        agents.get(version) ??
        buildPackage({ name: 'cn-agent', version, files: agentFiles(ROOT, version), privateKey });
      agents.set(version, built);
      const file = join(folder, `cn-agent-${version}.tar`);
      await writeFile(file, built);
      return file;
    },
  };
}

type PackageRequest = Partial<Parameters<Packages['install']>[0]>;

interface ProcessParts {
  log?: Logger;
  isLaunched?: boolean;
}

/** The packages of an agent with this data directory; a further call is its next process. */
export async function openPackages(
  t: Test,
  shop: PackageShop,
  { log = silentLogger, isLaunched = false, ...options }: Partial<PackageOptions> & ProcessParts = {},
) {
  const packages = new Packages({
    ...{ keys: [shop.publicKey], urls: [], directories: [shop.folder], allowScripts: true, ...options },
    ...{ data: shop.data, versions: await VersionsFile.open(shop.data, '0.1.0'), trial: undefined },
    ...{ isLaunched, requestRestart: () => undefined, clock: systemClock, log },
  });
  t.teardown(() => packages.stop());
  await packages.start();
  const runDirectory = join(shop.data, 'run');
  await mkdir(runDirectory, { recursive: true });
  const about = { serverUuid: randomUUID(), agentVersion: '0.1.0', runDirectory };
  const machine = await openLinuxMachine({ clock: systemClock, ...about });
  const signal = new AbortController().signal;
  const journalProcesses = async () => undefined;
  return {
    onChange: (listener: () => void) => packages.onChange(listener),
    list: () => packages.list().map(({ name, version }) => `${name} ${version}`),
    install: (source: string, more: PackageRequest = {}) =>
      packages.install({
        ...{
          taskId: randomUUID(),
          starts: 1,
          source,
          machine,
          journalProcesses,
          allowDowngrade: false,
          allowRetry: false,
          signal,
          onProgress: () => undefined,
        },
        ...more,
      }),
    uninstall: (...names: string[]) =>
      packages.uninstall(names, { taskId: randomUUID(), machine, signal, journalProcesses }),
  };
}

/**
 * The files in the agent's directory of packages, by their path there without the digest of a
 * version.
 */
export async function packageFiles({ data }: PackageShop): Promise<string[]> {
  const directory = join(data, 'packages');
  const found = await readdir(directory, { recursive: true, withFileTypes: true });
  return found
    .filter((entry) => entry.isFile())
    .map(({ parentPath, name }) => relative(directory, join(parentPath, name)).replace(/-[0-9a-f]{16}\//, '/'))
    .sort();
}

/** An agent's program that consists of this line. */
export const brokenAgent = (code: string): FileToPackage[] => [
  { path: 'lib/agent/main.ts', contents: Buffer.from(`${code}\n`) },
];

interface RunningLauncher {
  child: ChildProcess;
  exit: Promise<[number | null, NodeJS.Signals | null]>;
  /** Kills it and its agent, as a loss of power does. */
  killAll(): Promise<void>;
}

/** Starts a launcher. It leads a process group, which includes its agent. */
export function startLauncher(
  t: Test,
  { data, key, folder }: PackageShop,
  options: { url: string; trialSeconds?: number; more?: readonly string[] },
): RunningLauncher {
  const { url, trialSeconds = 30, more = [] } = options;
  const packages = ['--package-key', key, '--package-path', folder, '--package-trial', String(trialSeconds)];
  const args = ['--url', url, '--data', data, ...packages, ...more];
  const child = spawn(process.execPath, [LAUNCHER, ...args], { stdio: 'ignore', detached: true });
  const exit = once(child, 'exit') as RunningLauncher['exit'];
  const kill = () => {
    try {
      process.kill(-(child.pid ?? 0), 'SIGKILL');
    } catch {
      // All of them have ended.
    }
  };
  t.teardown(kill);
  return {
    child,
    exit,
    async killAll() {
      kill();
      await exit;
    },
  };
}

export async function readVersions({ data }: PackageShop): Promise<AgentVersions | undefined> {
  const text = await readFile(join(data, 'agent-versions/record/agent.json'), 'utf8').catch(() => undefined);
  return text === undefined ? undefined : (JSON.parse(text) as AgentVersions);
}

/** Resolves when the record of versions says this. */
export const versionsSay = (shop: PackageShop, what: string, fits: (versions: AgentVersions) => boolean) =>
  until(async () => {
    const versions = await readVersions(shop);
    return versions !== undefined && fits(versions) && versions;
  }, what);
