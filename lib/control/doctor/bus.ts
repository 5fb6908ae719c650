/** Checks whether messages come back from the bus, and how fast. */
import { createBus } from '../../platform/bus/create-bus.ts';
import { silentLogger } from '../../platform/log.ts';
import type { Config } from '../config.ts';
import { type CheckInput, type Finding, findings } from './finding.ts';

const RECEIVED_WITHIN_MS = 3000;
const SLOW_MS = 50;

export async function checkBus({ config, clock, random }: CheckInput): Promise<Finding[]> {
  const part = findings('bus');
  const { redisUrl, databaseUrl, databaseDirectUrl = databaseUrl } = config;
  await using bus = createBus({ redisUrl, databaseUrl: databaseDirectUrl, clock, random, log: silentLogger });
  const id = random.uuid();
  const received = new AbortController();
  await bus.start();
  const said = { at: 0, tookMs: 0 };
  bus.subscribe(
    `doctor:${id}`,
    () => {
      said.tookMs = clock.now() - said.at;
      received.abort();
    },
    () => {
      said.at = clock.now();
      bus.publish(`doctor:${id}`, { id });
    },
  );
  await clock.sleep(RECEIVED_WITHIN_MS, received.signal);
  const which = redisUrl === undefined ? 'LISTEN/NOTIFY of the database' : 'Redis';
  if (!received.signal.aborted)
    return [part.warn(`no message came back from ${which} within ${RECEIVED_WITHIN_MS} ms`, todoFor(config))];
  const text = `${which} brought a message back in ${said.tookMs.toFixed(1)} ms`;
  return [
    said.tookMs < SLOW_MS
      ? part.ok(text)
      : part.warn(text, 'look at the network and load between; all works, but later'),
  ];
}

/** Everything works without the bus, within a second or so, so a missing bus is only a warning. */
function todoFor({ redisUrl, databasePooler }: Config): string {
  if (redisUrl !== undefined)
    return 'see that redisUrl names it with its password, that it runs, and that it can be reached; all works without it, but later';
  if (databasePooler !== undefined) return 'see that databaseDirectUrl goes around the pooler';
  return 'fix the database first';
}
