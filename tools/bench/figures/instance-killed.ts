/**
 * An instance with thousands of agents is killed: how long until all of its servers are held by
 * other instances. Once in a zone whose machine has reserves, and once with so many agents that
 * their heartbeats alone fill two slow cores.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { number } from '../table.ts';
import { lastChange, readUnknown } from '../unknown-servers.ts';
import type { Zone } from '../zone.ts';

export const instanceKilled: Figure = {
  name: 'instance-killed',
  says: 'kill -9 of one of three instances with 6,000 and with 15,000 agents: the time until all are connected again, and how many were unknown',
  seconds: 140,
  measure,
};

const CONNECTS_PER_SECOND = 400;
/** Long enough for a decision about those rows of the dead run that no instance took. */
const JUDGED_AFTER_MS = 16_000;
const GIVE_UP_MS = 60_000;
/** Each count reads the whole roster; more frequent counts would add load. */
const LOOK_MS = 200;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const results: Result[] = [];
  for (const agents of context.isQuick ? [300] : [6_000, 15_000]) results.push(...(await killOne(agents, context)));
  return results;
}

async function killOne(agents: number, { isQuick, startZone, signal }: BenchContext): Promise<readonly Result[]> {
  await using zone = await startZone();
  await zone.addFleet({ agents, processes: isQuick ? 1 : 3, rate: CONNECTS_PER_SECOND });
  const victim = zone.instances[0];
  if (victim === undefined) throw new Error('there is no instance to kill');
  const orphans = await countHeldBy(zone, victim.uuid);
  const before = await lastChange(zone);
  const killedAt = clock.now();
  await victim.helper.stop();
  while ((await countHeldBy(zone, victim.uuid)) > 0 && clock.now() - killedAt < GIVE_UP_MS)
    await clock.sleep(LOOK_MS, signal);
  const rehomedMs = clock.now() - killedAt;
  await clock.sleep(Math.max(0, JUDGED_AFTER_MS - rehomedMs), signal);
  const unknown = await readUnknown(zone, before);
  const load = `kill -9 of one of three instances, ${number(agents)} agents`;
  return [
    {
      what: `${load}: all re-homed after`,
      value: rehomedMs / 1000,
      unit: 's',
      limit: { on: 'value', atMost: 10 },
      notes: [`${number(orphans)} servers were its own; by the roster's rows, read each 200 ms`],
    },
    {
      what: `${load}: servers ever unknown`,
      value: unknown.count,
      unit: '',
      limit: { on: 'value', atMost: 0 },
      ...(unknown.count === 0 ? {} : { notes: [unknown.reasons] }),
    },
  ];
}

async function countHeldBy(zone: Zone, cnapiUuid: string): Promise<number> {
  const [row] = await zone.sql<{ count: number }>(
    'select count(*)::int as count from cnapi_roster_authority where cnapi_uuid = $1',
    [cnapiUuid],
  );
  return row?.count ?? 0;
}
