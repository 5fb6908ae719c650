/**
 * `npm start`: refuses what cannot work before anything is started, brings everything up, prints the banner and the ready
 * line, and waits for a signal. `npm start -- --stop` ends the one that holds the data directory.
 */
import path from 'node:path';
import { systemClock } from '../../lib/ports/clock.ts';
import { systemRandom } from '../../lib/ports/random.ts';
import { lockHolder, tryLock } from '../setup/lock.mjs';
import { banner, type Ready } from './banner.ts';
import { readJson, writePrivate } from './keepsakes.ts';
import { type Options, parseOptions, UsageError, usage } from './options.ts';
import { findPlace, makePlace, type Place, projectRoot } from './place.ts';
import { isTcpFree, isUdpFree } from './ports.ts';
import { serviceName } from './programs.ts';
import { explained, Refusal } from './refusal.ts';
import { stopRunning } from './stop.ts';
import { Supervisor } from './supervisor.ts';

const lockName = 'supervisor';

process.umask(0o022);
// A reader that went away (a closed terminal, a pipe to head) is no reason to fall.
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
  if (request.kind === 'help') {
    console.log(usage);
    return 0;
  }
  const place = findPlace(request.options.data);
  if (request.kind === 'stop') {
    say(await stopRunning(lockHolder(place.data, lockName), systemClock));
    return 0;
  }
  return start(request.options, place);
}

async function start(options: Options, place: Place): Promise<number> {
  const stopping = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => stopping.abort());
  claim(options, place);
  const { data } = place;
  const supervisor = new Supervisor({ options, data, clock: systemClock, random: systemRandom, say });
  await supervisor.endLeftovers();
  await refuseBusyPorts(options);
  stopping.signal.addEventListener('abort', () => void supervisor.stop());
  try {
    const ready = await supervisor.start();
    if (ready !== undefined) announce(ready, options, place);
    if (!stopping.signal.aborted) await new Promise((resolve) => stopping.signal.addEventListener('abort', resolve));
    say('stopping');
  } catch (error) {
    // What failed while everything was being stopped failed for that reason.
    if (!stopping.signal.aborted) throw error;
  } finally {
    await supervisor.stop();
  }
  say('stopped');
  return 0;
}

/** Takes the data directory for this process. @throws Refusal when another holds it */
function claim(options: Options, place: Place): void {
  const runFile = path.join(place.data, 'config', 'run.json');
  if (place.instead !== undefined) say(`${place.instead} cannot be reached by Postgres's user: using ${place.data}`);
  makePlace(place);
  const { holder } = tryLock(place.data, lockName);
  if (holder !== undefined) {
    const urls = readJson<string[]>(runFile)?.join(' ') ?? '';
    throw new Refusal(`already up: pid ${holder.pid}, ${urls} (${stopCommand(options)} ends it)`, 3);
  }
  const ports = Array.from({ length: options.instances }, (_, index) => options.port + index);
  writePrivate(runFile, JSON.stringify(ports.map((port) => `http://127.0.0.1:${port}`)));
}

/** @throws Refusal naming the first port that is taken */
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
    stopCommand: stopCommand(options),
  };
  process.stdout.write(`${banner(ready, surroundings)}\n${JSON.stringify(ready)}\n`);
}

/** What ends this one, to be copied into a shell in the checkout. */
function stopCommand({ data }: Options): string {
  if (data === undefined) return 'npm start -- --stop';
  const folder = path.relative(projectRoot, path.resolve(data)) || '.';
  const isPlain = /^[\w./@+-]+$/.test(folder);
  return `npm start -- --stop --data=${isPlain ? folder : `'${folder.replaceAll("'", `'\\''`)}'`}`;
}

function say(text: string): void {
  process.stderr.write(`cnapi: ${text}\n`);
}
