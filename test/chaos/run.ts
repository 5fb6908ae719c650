/**
 * One run: a zone, its workloads, a walk through the faults, and their evidence. Called by main.ts.
 */
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Zone } from '../support/fleet-harness.ts';
import { startTestPostgres } from '../support/postgres-server.ts';
import { hasRedisServer, startTestRedis } from '../support/redis.ts';
import { seededRandom } from './chance.ts';
import { dump, unended } from './dump.ts';
import { eachInstanceKilled, faultKinds } from './faults.ts';
import type { FaultKind } from './harm.ts';
import { Health } from './health.ts';
import { type Evidence, parseEffects, parseHistory, parsePushEffects, type Stored } from './history.ts';
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
const PUSH_EFFECTS = 'push-effects';
const INSTANCES = 3;
const SIMULATED = 8;
/**
 * The time for the last accepted tasks and tickets to end: longer than a task may wait to be taken,
 * and than a ticket lasts.
 */
const END_MS = 60_000;

export async function run({ options, say }: RunDeps): Promise<RunResult> {
  const directory = options.out ?? mkdtempSync(path.join(os.tmpdir(), 'cnapi-chaos-'));
  mkdirSync(directory, { recursive: true });
  const kinds = kindsOf(options);
  if (kinds.length === 0) throw new Error(`no fault has a name that contains ${options.only.join(' or ')}`);
  const scope =
    options.plan === undefined ? `${options.minutes} minutes, ${kinds.length} kinds of faults` : options.plan;
  say(`seed ${options.seed}, ${scope}; history, database and logs are written to ${directory}`);
  // Flushed to disk, as in production: committed data must survive a crash.
  const withoutRedis = options.plan !== undefined && !hasRedisServer;
  const [postgres, redis] = await Promise.all([
    startTestPostgres({ fast: false }),
    withoutRedis ? undefined : startTestRedis(),
  ]);
  const proxies = { proxied: true, databaseProxied: true, busProxied: true, callersProxied: true };
  const zone = new Zone(
    { instances: INSTANCES, agents: 3, simulated: SIMULATED, directory, ...proxies },
    { postgres, redis },
  );
  try {
    await zone.start();
    await play(zone, { options, say, kinds });
    writeFileSync(path.join(directory, DATABASE), JSON.stringify(await dump(zone)));
    return { directory, evidence: readEvidence(directory), kinds: kinds.map(({ name }) => name) };
  } finally {
    await zone.stop(false);
  }
}

function kindsOf({ plan, only }: ChaosOptions): readonly FaultKind[] {
  if (plan === 'instances') return eachInstanceKilled(INSTANCES);
  return faultKinds.filter(({ name }) => only.length === 0 || only.some((text) => name.includes(text)));
}

/** What a run left in its folder. */
export function readEvidence(directory: string): Evidence {
  const read = (name: string) => readFileSync(path.join(directory, name), 'utf8');
  return {
    history: parseHistory(read(HISTORY)),
    stored: JSON.parse(read(DATABASE)) as Stored,
    effects: parseEffects(read(EFFECTS)),
    pushEffects: parsePushEffects(read(PUSH_EFFECTS)),
  };
}

async function play(zone: Zone, { options, say, kinds }: RunDeps & { kinds: readonly FaultKind[] }): Promise<void> {
  const recorder = new Recorder(path.join(zone.directory, HISTORY));
  const random = seededRandom(options.seed);
  const agents = zone.agents.map(({ serverUuid }) => serverUuid);
  const simulated = (await zone.serverUuids).filter((uuid) => !agents.includes(uuid));
  const health = new Health(zone, recorder, [...agents, ...simulated]);
  const { minutes, seed } = options;
  const instances = zone.instances.map(({ uuid }) => uuid);
  recorder.write({ kind: 'plan', at: recorder.now(), seed, minutes, instances, agents, simulated });
  const effects = path.join(zone.directory, EFFECTS);
  const pushEffects = path.join(zone.directory, PUSH_EFFECTS);
  for (const file of [effects, pushEffects]) writeFileSync(file, '');
  const workloads = new Workloads({
    instances: zone.instances,
    real: agents,
    simulated,
    recorder,
    // Its own random numbers, because the number of client requests must not change the walk.
    random: seededRandom(seed + 1_000_003),
    effects,
    pushEffects,
  });
  health.start();
  workloads.start();
  await sleep(4_000);
  const until = recorder.now() + minutes * 60_000;
  const walk = new Walk({ zone, health, random, simulated, recorder, kinds, until, say });
  await walk.run(options.plan === undefined ? Number.POSITIVE_INFINITY : 1);
  say(
    `${walk.injected} faults; ${recorder.asked} requests, ${recorder.unanswered} of them without an answer, which only a fault may cause`,
  );
  await workloads.finish();
  const end = recorder.now() + END_MS;
  while (recorder.now() < end && (await unended(zone)) > 0) await sleep(500);
  await health.stop();
  await recorder.close();
}
