/**
 * `cnapi doctor`: checks everything that an instance with this configuration depends on, from the
 * machine where it would run, and reports what is wrong and what to do. It changes nothing. Each
 * check has a time limit. A check that cannot run is a finding too.
 */
import { createBus } from '../../platform/bus/create-bus.ts';
import type { Clock } from '../../platform/clock.ts';
import { messageOf } from '../../platform/errors.ts';
import { silentLogger } from '../../platform/log.ts';
import { PostgresDatabase } from '../../platform/postgres/pool.ts';
import type { Random } from '../../platform/random.ts';
import { type Config, loadConfig } from '../config.ts';
import { checkAccess } from './access.ts';
import { checkBus } from './bus.ts';
import { checkDatabase } from './database.ts';
import { checkCertificate, checkModes } from './files.ts';
import { type Finding, findings } from './finding.ts';
import { checkMachine } from './machine.ts';
import { checkName, checkPeers, checkPort } from './network.ts';

interface DoctorDeps {
  configFile: string | undefined;
  env: Record<string, string | undefined>;
  /** A name server to ask instead of the system's. */
  dns: string | undefined;
  clock: Clock;
  random: Random;
}

const CHECK_WITHIN_MS = 12_000;

export async function examine(deps: DoctorDeps): Promise<Finding[]> {
  const config = configOf(deps);
  if ('level' in config) return [config];
  const part = findings('config');
  const { configFile } = deps;
  const where = configFile === undefined ? 'the environment' : `${configFile} and the environment`;
  return [part.ok(`${where}: every key is known, and they go together`), ...(await examineAll(deps, config))];
}

function configOf({ configFile, env }: DoctorDeps): Config | Finding {
  const part = findings('config');
  // The one key without a default.
  if (configFile === undefined && !env.CNAPI_DATABASE_URL)
    return part.fail(
      'there is no configuration to check: neither --config nor, in the environment, CNAPI_DATABASE_URL',
      'name the configuration of an instance: --config FILE (that of npm start: data/config/instance-8080.json)',
    );
  try {
    return loadConfig(configFile, env);
  } catch (error) {
    const todo = 'correct it and run this again; docs/configuration.md lists the keys. Nothing else was checked';
    return part.fail(messageOf(error), todo);
  }
}

async function examineAll(deps: DoctorDeps, config: Config): Promise<Finding[]> {
  const { clock, configFile } = deps;
  await using database = openDatabase(config, clock);
  const checks: Record<string, () => Promise<Finding[]>> = {
    files: () => checkModes(configFile, config),
    database: () => checkDatabase(database, config, clock),
    access: () => checkAccess(database, config),
    bus: () => askBus(deps, config),
    dns: () => checkName(database, config, deps),
    port: () => checkPort(database, config, clock),
    instances: () => checkPeers(database, clock),
    certificate: () => checkCertificate(config, clock.wallTime()),
    machine: () => checkMachine(config),
  };
  const each = Object.entries(checks).map(([part, check]) => inTime(part, check(), clock));
  return (await Promise.all(each)).flat();
}

function openDatabase({ databaseUrl: url, databasePooler: pooler }: Config, clock: Clock): PostgresDatabase {
  return new PostgresDatabase({
    url,
    pooler,
    applicationName: 'cnapi doctor',
    maxConnections: 2,
    clock,
    log: silentLogger,
  });
}

async function askBus({ clock, random }: DoctorDeps, config: Config): Promise<Finding[]> {
  const { redisUrl, databaseUrl, databaseDirectUrl = databaseUrl } = config;
  await using bus = createBus({ redisUrl, databaseUrl: databaseDirectUrl, clock, random, log: silentLogger });
  return await checkBus(bus, config, { clock, id: random.uuid() });
}

async function inTime(part: string, check: Promise<Finding[]>, clock: Clock): Promise<Finding[]> {
  const done = new AbortController();
  const late = clock
    .sleep(CHECK_WITHIN_MS, done.signal)
    .then(() => [
      findings(part).fail(`no answer within ${CHECK_WITHIN_MS} ms`, 'look at the network between, and at its load'),
    ]);
  const found = check.catch((error: unknown) => [
    findings(part).fail(
      `could not be checked: ${messageOf(error)}`,
      'fix what the other findings name, and run this again',
    ),
  ]);
  const first = await Promise.race([found, late]);
  done.abort();
  return first;
}
