/**
 * Runs on a server that speaks only Ur, as the script of `install-agent` (agent-installation.ts):
 * verifies the package of the agent, unpacks it, and starts its launcher. It is sent as text and
 * imports nothing of this project. Its only argument is a JSON object, so no value is part of the
 * text.
 *
 *     DIRECTORY/versions/VERSION-DIGEST/   the program; complete as soon as it has this name
 *     DIRECTORY/current, node              links to the program, and to the Node that runs this
 *     DIRECTORY/release.pub, cn-agent.json the public key, and the options of the agent
 *     DIRECTORY/start                      starts the agent, for the service manager
 *     DIRECTORY/data, log                  of the agent
 *
 * Whatever was begun before is replaced, so it can run again: a launcher that it started before
 * ends first. Exits with 1 and one line on standard error.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash, createPublicKey, verify } from 'node:crypto';
import {
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
// biome-ignore lint/style/noRestrictedImports: sent to a server alone, without the project's clock
import { setTimeout as sleep } from 'node:timers/promises';

const MAX_PACKAGE_BYTES = 64 * 1024 * 1024;
const DOWNLOAD_MS = 300_000;
const BLOCK_BYTES = 512;
const ENTRIES = ['manifest.json', 'signature', 'files.tar.gz'];
const SIGNED_PREFIX = Buffer.from('cnapi agent package 1\n');
const LAUNCHER = 'lib/agent/launcher/main.ts';
/** An agent that cannot use its options exits within this time. */
const WATCH_MS = 2_000;
/** A launcher passes the signal to its agent, and waits for it. */
const STOP_MS = 30_000;
const LOOK_EVERY_MS = 50;
const MAX_LOG_CHARS = 1_000;
const START = `#!/bin/sh
directory=$(dirname -- "$0")
exec "$directory/node" "$directory/current/${LAUNCHER}" --config "$directory/cn-agent.json" --data "$directory/data"
`;

/** A reason for the operator. */
class InstallError extends Error {}

async function install({ source, key, directory, options }) {
  const { manifest, digest, archive } = verified(await load(source).catch(refuseLoad), createPublicKey(key));
  mkdirSync(path.join(directory, 'versions'), { recursive: true, mode: 0o700 });
  const at = (...names) => path.join(directory, ...names);
  const program = at('versions', `${manifest.version}-${digest.slice(0, 16)}`);
  if (!existsSync(program)) unpack(archive, program);
  replace(at('release.pub'), (file) => writeFileSync(file, key));
  const stored = { packageKey: [at('release.pub')], ...options };
  replace(at('cn-agent.json'), (file) => writeFileSync(file, JSON.stringify(stored), { mode: 0o600 }));
  replace(at('current'), (file) => symlinkSync(program, file));
  replace(at('node'), (file) => symlinkSync(process.execPath, file));
  replace(at('start'), (file) => {
    writeFileSync(file, START);
    chmodSync(file, 0o755);
  });
  return manifest.version;
}

/** An http: or https: URL, or the path of a file. */
async function load(source) {
  if (!/^https?:/i.test(source)) {
    const file = source.startsWith('file:') ? new URL(source) : source;
    // The open of a FIFO would wait for a writer.
    const handle = await open(file, constants.O_RDONLY | constants.O_NONBLOCK);
    try {
      if (!(await handle.stat()).isFile()) throw new InstallError('the package is not a regular file');
      return await collect(handle.createReadStream({ autoClose: false }));
    } finally {
      await handle.close();
    }
  }
  const response = await fetch(source, { signal: AbortSignal.timeout(DOWNLOAD_MS) });
  if (!response.ok) throw new InstallError(`the package cannot be loaded: HTTP status ${response.status}`);
  return collect(response.body);
}

/** The text of an error can have the URL, and that a secret. */
function refuseLoad(error) {
  if (error instanceof InstallError) throw error;
  const names = [error.cause?.code, error.code, error.name];
  const name = names.find((each) => typeof each === 'string');
  throw new InstallError(`the package cannot be loaded: ${name}`);
}

/** Does not rely on the size of a file: one of /proc has none, and can yield without end. */
async function collect(stream) {
  const pieces = [];
  let bytes = 0;
  for await (const piece of stream) {
    bytes += piece.length;
    if (bytes > MAX_PACKAGE_BYTES) throw tooLarge();
    pieces.push(piece);
  }
  return Buffer.concat(pieces);
}

const tooLarge = () => new InstallError(`the package has more than ${MAX_PACKAGE_BYTES} bytes`);

/**
 * The signature covers the manifest, which has the digest of the archive, so nothing else has to be
 * trusted.
 */
function verified(bytes, key) {
  const [manifestBytes, signature, archive] = entriesOf(bytes);
  if (!verify(null, Buffer.concat([SIGNED_PREFIX, manifestBytes]), key, signature))
    throw new InstallError('the package is not signed by the key that the instance trusts');
  const manifest = JSON.parse(manifestBytes.toString());
  if (manifest.name !== 'cn-agent' || !manifest.files.some((file) => file.path === LAUNCHER))
    throw new InstallError(`the package ${manifest.name} is not one of this agent`);
  if (sha256(archive) !== manifest.archive.sha256)
    throw new InstallError('the files of the package are not those that were signed');
  if (isOlder(process.versions.node, manifest.node ?? '0.0.0'))
    throw new InstallError(`the package needs Node ${manifest.node}, and this is ${process.versions.node}`);
  return { manifest, digest: sha256(manifestBytes), archive };
}

function entriesOf(bytes) {
  let at = 0;
  return ENTRIES.map((name) => {
    const header = bytes.subarray(at, at + BLOCK_BYTES);
    const size = Number.parseInt(header.toString('latin1', 124, 136), 8);
    const from = at + BLOCK_BYTES;
    const isNamed = header.length === BLOCK_BYTES && header.toString('latin1', 0, 100).replace(/\0.*$/s, '') === name;
    if (!isNamed || !(size >= 0) || from + size > bytes.length) throw new InstallError('the file is not a package');
    at = from + Math.ceil(size / BLOCK_BYTES) * BLOCK_BYTES;
    return bytes.subarray(from, from + size);
  });
}

function unpack(archive, program) {
  const unfinished = `${program}.new`;
  rmSync(unfinished, { recursive: true, force: true });
  mkdirSync(unfinished, { mode: 0o700 });
  const { status, stderr, error } = spawnSync('tar', ['-xzof', '-', '-C', unfinished], { input: archive });
  if (status !== 0) throw new InstallError(`tar cannot unpack the package: ${error?.message ?? stderr}`);
  // A directory that has its name is on disk, also after a loss of power.
  spawnSync('sync');
  renameSync(unfinished, program);
}

function replace(file, write) {
  rmSync(`${file}.new`, { force: true });
  write(`${file}.new`);
  renameSync(`${file}.new`, file);
}

/** By the command of the service manager, or directly, in a session of its own. */
async function start({ directory, start: command }) {
  if (command !== undefined) {
    const { status, stdout, stderr, error } = spawnSync(command[0], command.slice(1), { encoding: 'utf8' });
    if (status === 0) return;
    throw new InstallError(`the agent cannot be started: ${error?.message ?? tailOf(stdout + stderr)}`);
  }
  await endLaunchers(path.join(directory, 'data', 'agent-versions'));
  const log = path.join(directory, 'log');
  const output = openSync(log, 'w', 0o600);
  const child = spawn(path.join(directory, 'start'), { detached: true, stdio: ['ignore', output, output] });
  const ended = new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(`exited with ${signal ?? `code ${code}`}`));
  });
  const end = await Promise.race([ended, sleep(WATCH_MS, undefined, { ref: false })]);
  if (end !== undefined) throw new InstallError(`the agent ${end}: ${tailOf(readFileSync(log, 'utf8'))}`);
  child.unref();
}

/**
 * Ends the launcher that holds this directory: two cannot. Its lock names the process and its start
 * time, so a later process with the same pid is left alone (lib/agent/directory-lock.ts). After
 * SIGKILL its agent ends by itself.
 */
async function endLaunchers(locked) {
  for (const name of existsSync(locked) ? readdirSync(locked) : []) {
    const [, pid, startTime] = /^lock-(\d+)-(\d+)$/.exec(name) ?? [];
    if (pid === undefined || startTimeOf(pid) !== startTime) continue;
    signalProcess(pid, 'SIGTERM');
    for (let waitedMs = 0; startTimeOf(pid) === startTime; waitedMs += LOOK_EVERY_MS) {
      if (waitedMs >= STOP_MS) signalProcess(pid, 'SIGKILL');
      await sleep(LOOK_EVERY_MS);
    }
  }
}

function signalProcess(pid, signal) {
  try {
    process.kill(Number(pid), signal);
  } catch (error) {
    // It has just ended.
    if (error.code !== 'ESRCH') throw error;
  }
}

/** Undefined if no such process runs. */
function startTimeOf(pid) {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? undefined : fields[19];
  } catch {
    return undefined;
  }
}

const tailOf = (text) => text.trim().slice(-MAX_LOG_CHARS);

const sha256 = (bytes) => createHash('sha256').update(bytes).digest('hex');

function isOlder(version, than) {
  const [left, right] = [version, than].map((text) => text.split('.').map((part) => Number.parseInt(part, 10)));
  const at = left.findIndex((part, index) => part !== right[index]);
  return at >= 0 && left[at] < right[at];
}

try {
  const order = JSON.parse(process.argv[2] ?? '');
  const version = await install(order);
  await start(order);
  process.stdout.write(JSON.stringify({ version }));
} catch (error) {
  const reason = error instanceof InstallError ? error.message : `${error?.code ?? error?.name}: ${error?.message}`;
  process.stderr.write(`${reason}\n`);
  process.exitCode = 1;
}
