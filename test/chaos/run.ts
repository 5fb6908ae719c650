/**
 * One run: a zone, its workloads, a walk through the faults, and their evidence. Called by main.ts.
 */
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Zone } from '../support/fleet-harness.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { startTestRedis } from '../support/redis.ts';
import { seededRandom } from './chance.ts';
import { dump, unended } from './dump.ts';
import { faultKinds } from './faults.ts';
import { Health } from './health.ts';
import { type Evidence, parseEffects, parseHistory, type Stored } from './history.ts';
import type { ChaosOptions } from './options.ts';
import { Recorder } from './recorder.ts';
import { Walk } from './walk.ts';
import { Workloads } from './workloads.ts';

export interface RunDeps {
  options: ChaosOptions;
  say(text: string): void;
}

export interface RunResult {
  directory: string;
  evidence: Evidence;
  kinds: string[];
}

const [HISTORY, DATABASE, EFFECTS] = ['history.jsonl', 'database.json', 'effects'] as const;
const SIMULATED = 8;
/**
 * The time for the last accepted tasks and tickets to end: longer than a task may wait to be taken,
 * and than a ticket lasts.
 */
const END_MS = 60_000;

export async function run({ options, say }: RunDeps): Promise<RunResult> {
  const directory = options.out ?? mkdtempSync(path.join(os.tmpdir(), 'cnapi-chaos-'));
  mkdirSync(directory, { recursive: true });
  const kinds = faultKinds.filter(
    ({ name }) => options.only.length === 0 || options.only.some((text) => name.includes(text)),
  );
  if (kinds.length === 0) throw new Error(`no fault has a name that contains ${options.only.join(' or ')}`);
  say(
    `seed ${options.seed}, ${options.minutes} minutes, ${kinds.length} kinds of faults; history, database and logs are written to ${directory}`,
  );
  // Flushed to disk, as in production: committed data must survive a crash.
  const [postgres, redis] = await Promise.all([startTestPostgres({ fast: false }), startTestRedis()]);
  const proxies = { proxied: true, databaseProxied: true, busProxied: true, callersProxied: true };
  const zone = new Zone({ instances: 3, agents: 3, simulated: SIMULATED, directory, ...proxies }, { postgres, redis });
  try {
    await zone.start();
    await play(zone, { options, say, kinds });
    writeFileSync(path.join(directory, DATABASE), JSON.stringify(await dump(zone)));
    return { directory, evidence: readEvidence(directory), kinds: kinds.map(({ name }) => name) };
  } finally {
    await zone.stop(false);
  }
}

/** What a run left in its folder. */
export function readEvidence(directory: string): Evidence {
  const read = (name: string) => readFileSync(path.join(directory, name), 'utf8');
  return {
    history: parseHistory(read(HISTORY)),
    stored: JSON.parse(read(DATABASE)) as Stored,
    effects: parseEffects(read(EFFECTS)),
  };
}

async function play(zone: Zone, { options, say, kinds }: RunDeps & { kinds: typeof faultKinds }): Promise<void> {
  const recorder = new Recorder(path.join(zone.directory, HISTORY));
  const random = seededRandom(options.seed);
  const agents = zone.agents.map(({ serverUuid }) => serverUuid);
  const simulated = (await zone.serverUuids).filter((uuid) => !agents.includes(uuid));
  const health = new Health(zone, recorder, [...agents, ...simulated]);
  const { minutes, seed } = options;
  const instances = zone.instances.map(({ uuid }) => uuid);
  recorder.write({ kind: 'plan', at: recorder.now(), seed, minutes, instances, agents, simulated });
  const effects = path.join(zone.directory, EFFECTS);
  writeFileSync(effects, '');
  const workloads = new Workloads({
    instances: zone.instances,
    real: agents,
    simulated,
    recorder,
    // Its own random numbers, because the number of client requests must not change the walk.
    random: seededRandom(seed + 1_000_003),
    effects,
  });
  health.start();
  workloads.start();
  await sleep(4_000);
  const until = recorder.now() + minutes * 60_000;
  const walk = new Walk({ zone, health, random, simulated, recorder, kinds, until, say });
  await walk.run();
  say(`${walk.injected} faults; ${recorder.asked} requests, ${recorder.unanswered} of them without an answer`);
  await workloads.finish();
  const end = recorder.now() + END_MS;
  while (recorder.now() < end && (await unended(zone)) > 0) await sleep(500);
  await health.stop();
  await recorder.close();
}
