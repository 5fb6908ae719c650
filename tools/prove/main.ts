/**
 * `npm run prove`: kills the instances of a running `npm start` one after the other, each after the
 * previous one has come back, while tasks and waits run through all of them. It fails if anything
 * accepted was lost, ran twice or did not end, or if a live server was reported as `unknown`. Exit
 * codes: 0 passed, 1 failed, 2 the test could not run.
 */
import { readFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { systemClock as clock } from '../../lib/platform/clock.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { authorizationFor } from './authorization.ts';
import { Caller } from './caller.ts';
import { Load } from './load.ts';
import { answerTo, getJson, Watch } from './watch.ts';

interface Instance {
  uuid: string;
  url: string;
  pid: number;
}

class CannotTry extends Error {}

const USAGE = `npm run prove -- [OPTION]...   kills the instances of a running npm start one after the other, while tasks and waits
                               run through all of them; fails if anything was lost, ran twice, or a server was unknown

  --url URL            one of its instances (default http://127.0.0.1:8080)
  --help               this text

exit code: 0 it held, 1 it did not, 2 it could not be tried, or wrong usage`;

const BEFORE_EACH_MS = 3_000;
const BACK_WITHIN_MS = 60_000;

try {
  const { url, help } = parseOptions();
  if (help) console.log(USAGE);
  else process.exitCode = await prove(url);
} catch (error) {
  if (!(error instanceof CannotTry)) throw error;
  console.error(`prove: ${error.message}`);
  process.exitCode = 2;
}

/** @throws CannotTry */
function parseOptions() {
  try {
    const { values } = parseArgs({
      options: {
        url: { type: 'string', default: 'http://127.0.0.1:8080' },
        help: { type: 'boolean', default: false },
      },
    });
    return values;
  } catch (cause) {
    const said = (cause as Error).message.split('. ')[0];
    throw new CannotTry(`${said} (npm run prove -- --help lists the options)`, { cause });
  }
}

async function prove(url: string): Promise<number> {
  const instances = await findInstances(url);
  const urls = instances.map(({ url }) => url);
  const watch = new Watch({ urls, clock });
  const load = new Load({ caller: new Caller({ urls, clock, authorizationFor }), clock, random });
  await watch.start();
  const own = await load.findOwn(watch.servers);
  const others = watch.servers.filter((uuid) => uuid !== own);
  console.log(
    `${instances.length} instances, ${watch.servers.length} running servers, this machine's: ${own ?? 'none'}`,
  );
  load.start(own, others);
  for (const instance of instances) await killAndAwait(instance);
  await clock.sleep(BEFORE_EACH_MS);
  await load.finish();
  await watch.finish();
  return summarize(watch, load);
}

function summarize(watch: Watch, load: Load): number {
  const complaints = [...load.complaints, ...watch.complaints];
  console.log(
    `${load.accepted} tasks accepted, ${load.commands} of them commands; ${watch.answers} lists of servers read`,
  );
  for (const complaint of complaints) console.log(`  ${complaint}`);
  if (complaints.length > 0) {
    console.log(`it did not hold: ${complaints.length} complaints`);
    return 1;
  }
  console.log('it held: nothing was lost, nothing ran twice, no living server was unknown');
  return 0;
}

/** @throws CannotTry */
async function findInstances(url: string): Promise<Instance[]> {
  const { status, body: runs } = (await answerTo<Instance[]>(`${url}/instances`)) ?? {};
  if (status === 401) throw new CannotTry(`${url} wants a token; run this as the user who runs npm start`);
  if (status !== 200 || runs === undefined)
    throw new CannotTry(`no instance answers at ${url}; run npm start, or give --url`);
  const instances = latestRuns(runs);
  if (instances.length < 2) throw new CannotTry('with one instance there is nobody to take over; start more');
  for (const { pid, url: each } of instances)
    if (!isInstance(pid)) throw new CannotTry(`${each} (pid ${pid}) does not run on this machine`);
  return instances;
}

/**
 * Returns the instances in order of their start, without earlier runs: a run that was just killed
 * may still be listed next to its successor.
 */
function latestRuns(runs: readonly Instance[]): Instance[] {
  return [...new Map(runs.map((run) => [run.url, run])).values()];
}

async function killAndAwait({ uuid, url, pid }: Instance): Promise<void> {
  await clock.sleep(BEFORE_EACH_MS);
  if (!isInstance(pid)) throw new CannotTry(`${url} is not pid ${pid} any more`);
  const killedAt = clock.now();
  process.kill(pid, 'SIGKILL');
  while (!(await isBack(uuid, url, pid))) {
    if (clock.now() - killedAt > BACK_WITHIN_MS)
      throw new CannotTry(`${url} did not come back; only npm start starts killed instances again`);
    await clock.sleep(100);
  }
  console.log(`killed ${url} (pid ${pid}), back after ${Math.round(clock.now() - killedAt)} ms`);
}

async function isBack(uuid: string, url: string, pid: number): Promise<boolean> {
  if ((await getJson(`${url}/ready`)) === undefined) return false;
  const instances = await getJson<Instance[]>(`${url}/instances`);
  return instances?.some((instance) => instance.uuid === uuid && instance.pid !== pid) === true;
}

/**
 * Checks the command line, so that no unrelated process is killed because an answer contained its
 * pid.
 */
function isInstance(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('server.ts');
  } catch {
    return false;
  }
}
