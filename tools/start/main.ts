/**
 * `npm start`: refuses what cannot work before anything is started, brings everything up, prints
 * the banner and the ready line, and waits for a signal. `npm start -- --stop` stops the supervisor
 * that holds the data directory; `--scale` and `--rolling-restart` ask it over its control socket.
 */
import { existsSync } from 'node:fs';
import path from 'node:path';
import { configFolder } from '../../lib/client/credentials.ts';
import { runningLocals } from '../../lib/client/local-cnapi.ts';
import { messageOf } from '../../lib/platform/errors.ts';
import { systemRandom } from '../../lib/platform/random.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { lockHolder, tryLock } from '../setup/lock.mjs';
import type { DescribedProcess } from '../setup/processes.mjs';
import { announcement, type Ready } from './banner.ts';
import { controlFile, type Operation } from './control.ts';
import { askRunning } from './control-client.ts';
import { ControlServer } from './control-server.ts';
import { endLeftovers, leftoversIn, namesOf } from './leftovers.ts';
import { instanceLimits, type Options, parseOptions, refuseContainersWithoutRoot, UsageError } from './options.ts';
import { rememberedUrls, rememberUrls } from './persisted-settings.ts';
import { findPlace, makePlace, type Place, projectRoot } from './place.ts';
import { isTcpFree, isUdpFree } from './ports.ts';
import { imageFolder, serviceName } from './programs.ts';
import { explained, Refusal } from './refusal.ts';
import { stopRunning } from './stop.ts';
import { Supervisor } from './supervisor.ts';

const lockName = 'supervisor';

process.umask(0o022);
// A reader that went away (a closed terminal, a pipe to head) must not end this process.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined);
try {
  process.exitCode = await main(process.argv.slice(2));
} catch (thrown) {
  const error = explained(thrown);
  if (error instanceof UsageError) say(`${error.message} (npm start -- --help lists the options)`);
  else if (error instanceof Refusal) say(error.message);
  else console.error(error);
  process.exitCode = error instanceof UsageError ? 2 : error instanceof Refusal ? error.exitCode : 1;
}
process.exit();

async function main(args: readonly string[]): Promise<number> {
  const request = parseOptions(args);
  const place = findPlace(request.options.data);
  if (request.kind === 'stop') {
    say(await stop(place));
    return 0;
  }
  if (request.kind === 'operate') {
    say(await operate(request.operation, request.options, place));
    return 0;
  }
  return start(request.options, place);
}

/** Resolves to a description of what happened. @throws Refusal */
async function stop(place: Place): Promise<string> {
  const supervisor = runningIn(place.data);
  if (supervisor !== undefined) return stopRunning(supervisor, systemClock);
  return (await endLeftovers(place.data, systemClock, say)) ? 'stopped' : nothingRuns(place, '--stop');
}

/**
 * Sends the operation to the running supervisor; resolves to a description of the resulting state.
 */
async function operate(operation: Operation, options: Options, place: Place): Promise<string> {
  const { data } = place;
  const supervisor = runningIn(data);
  if (supervisor !== undefined) return askRunning({ data, pid: supervisor.pid, operation }, say);
  const left = namesOf(leftoversIn(data));
  if (left !== '')
    throw new Refusal(
      `the supervisor in ${data} is gone, but what it started still runs: ${left}; ${stopCommand(options)} ends that`,
    );
  const isScale = operation.operation === 'scale';
  const remedy = `${startCommand(options, isScale ? `--instances ${operation.instances}` : '')} starts it`;
  const flags = isScale ? `--scale ${operation.instances}` : '--rolling-restart';
  throw new Refusal(`${nothingRuns(place, flags)}; ${remedy}`);
}

/** The supervisor that holds the data directory. @throws Refusal if only another user may know */
function runningIn(data: string): DescribedProcess | undefined {
  try {
    return lockHolder(data, lockName);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES') throw error;
    throw new Refusal(`${data} belongs to another user; repeat the command as that user`, 1, error);
  }
}

/** Says so, and which commands with these flags are for the others that this user has started. */
function nothingRuns({ data }: Place, flags: string): string {
  const elsewhere = runningLocals(configFolder(process.env))
    .flatMap((other) => other.data ?? [])
    .map((other) => `; ${startCommand({ data: other }, flags)} is for the one that runs in ${other}`);
  return `nothing is running in ${data}${elsewhere.join('')}`;
}

async function start(options: Options, place: Place): Promise<number> {
  refuseContainersWithoutRoot(options, process.geteuid?.());
  const stopping = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stopping.abort());
  const { data } = place;
  // Nothing of a new directory can hold the ports, and a refusal leaves no directory behind.
  if (!existsSync(data)) await refuseBusyPorts(options);
  claim(options, place);
  const supervisor = new Supervisor({ options, data, clock: systemClock, random: systemRandom, say });
  const control = new ControlServer({
    file: controlFile(data),
    operate: (operation, report) => supervisor.operate(operation, report),
    clock: systemClock,
  });
  // What an earlier run left behind may hold the ports.
  await endLeftovers(data, systemClock, say);
  await refuseBusyPorts(options);
  stopping.signal.addEventListener('abort', () => void supervisor.stop());
  try {
    const ready = await supervisor.start();
    if (ready !== undefined) await openControl(control);
    if (ready !== undefined) announce(ready, options, place);
    if (!stopping.signal.aborted) await new Promise((resolve) => stopping.signal.addEventListener('abort', resolve));
    say('stopping');
  } catch (error) {
    // A failure while everything stops is caused by the stop.
    if (!stopping.signal.aborted) throw error;
  } finally {
    await supervisor.stop();
    await control.stop();
  }
  say('stopped');
  return 0;
}

/** Without the control socket everything else works. */
async function openControl(control: ControlServer): Promise<void> {
  try {
    await control.start();
  } catch (error) {
    say(`--scale and --rolling-restart will not work here, with no control socket: ${messageOf(error)}`);
  }
}

/** Takes the data directory for this process. @throws Refusal when another process holds it */
function claim(options: Options, place: Place): void {
  if (place.instead !== undefined) say(`${place.instead} cannot be reached by Postgres's user: using ${place.data}`);
  makePlace(place);
  const { holder } = tryLock(place.data, lockName);
  if (holder !== undefined) {
    const urls = rememberedUrls(place.data).join(' ');
    throw new Refusal(`already up: pid ${holder.pid}, ${urls} (${stopCommand(options)} ends it)`, 3);
  }
  const ports = Array.from({ length: options.instances }, (_, index) => options.port + index);
  rememberUrls(
    place.data,
    ports.map((port) => `http://127.0.0.1:${port}`),
  );
}

/** @throws Refusal that names the first port in use */
async function refuseBusyPorts({ port, instances }: Options): Promise<void> {
  const names = port + instances;
  for (let each = port; each <= names; each++) {
    const isFree = (await isTcpFree(each)) && (each !== names || (await isUdpFree(each)));
    if (isFree) continue;
    throw new Refusal(
      `port ${each} is taken by another program; choose other ports with --port P (it takes P to P+${instances})`,
    );
  }
}

function announce(ready: Ready, options: Options, place: Place): void {
  const surroundings = {
    database: options.databaseUrl === undefined ? `Postgres in ${path.join(place.data, 'postgres')}` : 'as given',
    bus:
      options.redisUrl !== undefined ? 'Redis as given' : ready.bus === 'redis' ? 'Redis of its own' : 'LISTEN/NOTIFY',
    serviceName,
    simulated: options.agents,
    logs: path.join(place.data, 'log'),
    images: options.containers ? imageFolder(place.data) : undefined,
    scaleCommand: startCommand(options, `--scale ${Math.min(options.instances + 1, instanceLimits[1])}`),
    stopCommand: stopCommand(options),
  };
  process.stdout.write(announcement(ready, surroundings, process.stdout.isTTY === true));
}

/** The command that stops this supervisor, for copying into a shell in the checkout. */
function stopCommand(options: Options): string {
  return startCommand(options, '--stop');
}

/** The command `npm start` with `flags` for the data directory of `options`. */
function startCommand({ data }: Pick<Options, 'data'>, flags: string): string {
  const folder = data === undefined ? undefined : nameFromCheckout(path.resolve(data));
  const isPlain = folder === undefined || /^[\w./@+-]+$/.test(folder);
  const quoted = isPlain ? folder : `'${folder.replaceAll("'", `'\\''`)}'`;
  const given = [flags, ...(quoted === undefined ? [] : [`--data=${quoted}`])].filter((each) => each !== '');
  return ['npm start', ...(given.length > 0 ? ['--', ...given] : [])].join(' ');
}

/** Relative if it is in the checkout. */
function nameFromCheckout(folder: string): string {
  const relative = path.relative(projectRoot, folder) || '.';
  return relative.startsWith('..') ? folder : relative;
}

function say(text: string): void {
  process.stderr.write(`cnapi: ${text}\n`);
}
