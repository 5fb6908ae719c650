/**
 * `cnapi doctor`: checks everything that an instance with this configuration depends on, from the
 * machine where it would run, and reports what is wrong and what to do. It changes nothing. Each
 * check has a time limit. A check that cannot run is a finding too.
 */
import { messageOf } from '../../platform/errors.ts';
import { silentLogger } from '../../platform/log.ts';
import { PostgresDatabase } from '../../platform/postgres/pool.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { type Config, loadConfig } from '../config.ts';
import { migrations, subsystems } from '../subsystem-list.ts';
import { checkModes } from './files.ts';
import { type Check, type Finding, findings } from './finding.ts';
import { checkMachine } from './machine.ts';

interface DoctorDeps {
  configFile: string | undefined;
  env: Record<string, string | undefined>;
  /** A name server to ask instead of the system's. */
  dns: string | undefined;
  clock: Clock;
  random: Random;
}

const CHECK_WITHIN_MS = 12_000;

export async function runChecks(deps: DoctorDeps): Promise<Finding[]> {
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
      'name the configuration of an instance: --config FILE (cnapi finds that of your npm start while it runs)',
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
  const checks: [string, Check][] = [
    ['files', () => checkModes(configFile, config)],
    ...subsystems.flatMap(({ checks = {} }) => Object.entries(checks)),
    ['machine', () => checkMachine(config)],
  ];
  const examined = { ...deps, config, database, migrations };
  const each = checks.map(([part, check]) => inTime(part, check(examined), clock));
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

async function inTime(part: string, check: Promise<Finding[]>, clock: Clock): Promise<Finding[]> {
  const done = new AbortController();
  const late = clock
    .sleep(CHECK_WITHIN_MS, done.signal)
    .then(() => [
      findings(part).fail(`no answer within ${CHECK_WITHIN_MS} ms`, 'look at the network between, and at its load'),
    ]);
  const settled = check.catch((error: unknown) => [
    findings(part).fail(
      `could not be checked: ${messageOf(error)}`,
      'fix what the other findings name, and run this again',
    ),
  ]);
  const first = await Promise.race([settled, late]);
  done.abort();
  return first;
}
