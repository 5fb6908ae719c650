/**
 * `npm run fleet`: runs simulated agents until SIGTERM or SIGINT; takes commands on stdin
 * (control.ts). Exit codes: 0 stopped, 1 error, 2 usage.
 */
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { messageOf } from '../../platform/errors.ts';
import { createLogger } from '../../platform/log.ts';
import { systemRandom as random } from '../../platform/random.ts';
import { type Clock, systemClock as clock } from '../../platform/time/clock.ts';
import { VERSION as agentVersion } from '../../platform/version.ts';
import { openCredentials } from '../link/credentials.ts';
import { createResolver } from '../link/discovery.ts';
import type { Endpoint } from '../link/endpoints.ts';
import { asUsageError } from '../options.ts';
import { runProgram, waitForSignal } from '../program.ts';
import { AgentUsageError } from '../usage-error.ts';
import { runControlCommand } from './control.ts';
import { SimulatedAgents } from './fleet.ts';
import { FLEET_USAGE, type FleetOptions, parseFleetOptions } from './options.ts';

const SHARED_ANSWER_MS = 500;

async function main(): Promise<void> {
  const options = parseFleetOptions(process.argv.slice(2), process.env);
  if (!options) return void process.stdout.write(FLEET_USAGE);
  const stopSignal = waitForSignal();
  const log = createLogger('fleet', options.logLevel);
  const fleet = await makeFleet(options);
  void runControlCommands(fleet);
  const started = fleet.start();
  void started.then(() =>
    log.info({ agents: options.agents, pid: process.pid }, 'fleet: every agent has been started'),
  );
  await stopSignal;
  log.info({ ...fleet.status() }, 'fleet: stops');
  await fleet.stop();
  process.exit(0);
}

async function makeFleet({ discovery, logLevel, ...options }: FleetOptions): Promise<SimulatedAgents> {
  const { agents, legacy, agentsPerSecond, sysinfoSize, localAddresses } = options;
  const resolve = shared(clock, createResolver(discovery, { clock, random }));
  // Ten thousand agents connect and disconnect often; log that only at a level chosen explicitly.
  const log = createLogger('fleet', logLevel === 'info' ? 'error' : logLevel);
  const seed = await seedOf(options);
  const credentials = asUsageError(() => openCredentials(options.credentials, log));
  const size = { agents, legacy, agentsPerSecond, sysinfoSize, localAddresses };
  return new SimulatedAgents({ clock, random, log, resolve, credentials, agentVersion, seed, ...size });
}

/** Executes commands in order; each is answered before the next. */
async function runControlCommands(fleet: SimulatedAgents): Promise<void> {
  for await (const line of createInterface({ input: process.stdin })) {
    process.stdout.write(`${JSON.stringify(await runControlCommand(fleet, line))}\n`);
  }
}

/** Agents that resolve at the same time share one query; there may be ten thousand of them. */
function shared(time: Clock, resolve: () => Promise<readonly Endpoint[]>): () => Promise<readonly Endpoint[]> {
  let asked: { at: number; answer: Promise<readonly Endpoint[]> } | undefined;
  return () => {
    if (!asked || time.now() - asked.at > SHARED_ANSWER_MS) asked = { at: time.now(), answer: resolve() };
    return asked.answer;
  };
}

async function seedOf({ seed, data }: Pick<FleetOptions, 'seed' | 'data'>): Promise<string> {
  if (seed !== undefined || data === undefined) return seed ?? random.uuid();
  try {
    await mkdir(data, { recursive: true, mode: 0o700 });
    const path = join(data, 'seed');
    const kept = await readFile(path, 'utf8').catch(() => '');
    if (kept !== '') return kept.trim();
    const fresh = random.uuid();
    await writeFile(path, `${fresh}\n`);
    return fresh;
  } catch (error) {
    throw new AgentUsageError(`--data ${data} cannot be used: ${messageOf(error)}`, error);
  }
}

runProgram('fleet', main);
