/**
 * Servers with legacy agents, observed by a witness, while instances and the database fail. They
 * get no tasks, because simulated legacy agents take none.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { FULL_START_GRACE } from '../support/fault-test.ts';
import { type Instance, startZone, type Zone } from '../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { Witness } from '../support/witness.ts';

interface Stage {
  t: Test;
  zone: Zone;
  witness: Witness;
  /** The uuids of the servers, in order. */
  servers: string[];
}

const PLAN = { agents: 1, simulated: 10, old: 8 };
const SHORT_START_GRACE = { startGraceMs: 2_000, reconnectMaxMs: 2_000 };
/**
 * The time from the last heartbeat: 11 s + 4 s + 1 s, and 8 s more if the instance that received it
 * is down.
 */
const SILENT_WITHIN_MS = 25_000;

t.setTimeout(FILE_TIMEOUT_MS);

/** The servers that are `running` because of posted heartbeats. */
async function legacyServers(zone: Zone): Promise<string[]> {
  const rows = await zone.sql<{ server_uuid: string }>(
    `select server_uuid from cnapi_roster_authority where run is null and status = 'running' order by server_uuid`,
  );
  return rows.map(({ server_uuid }) => server_uuid);
}

function legacyAgentsTest(name: string, config: Record<string, unknown>, play: (stage: Stage) => Promise<void>): void {
  t.test(name, { skip: noRedisServer, timeout: FILE_TIMEOUT_MS }, async (t) => {
    const zone = await startZone(t, { ...PLAN, config });
    const witness = new Witness(zone, (text) => t.comment(text));
    await witness.start();
    const servers = await legacyServers(zone);
    t.equal(servers.length, PLAN.old);
    await play({ t, zone, witness, servers });
    t.same(await witness.finish(), [], 'no live server was ever unknown, and epochs only rose');
  });
}

legacyAgentsTest(
  'legacy agents stay running while instances are killed and frozen, and are unknown after their end',
  SHORT_START_GRACE,
  async (stage) => {
    const { t, zone, witness, servers } = stage;
    const [first, second] = zone.instances as [Instance, Instance];
    await first.program.kill();
    await sleep(8_000);
    first.program.start();
    await zone.ready(first);
    second.program.freeze();
    await sleep(17_000);
    second.program.thaw();
    await zone.ready(second);
    await sleep(6_000);
    t.same(await legacyServers(zone), servers);

    for (const server of await zone.serverUuids)
      if (server !== zone.agents[0]?.serverUuid) await witness.excuse(server);
    const sinceMs = Date.now();
    await zone.fleet?.kill();
    for (const server of servers)
      t.equal(await witness.seesUnknown(server, { sinceMs, promisedMs: SILENT_WITHIN_MS }), 'legacy-silent');
  },
);

legacyAgentsTest(
  'legacy agents stay running when Postgres is frozen for longer than their silence limit',
  FULL_START_GRACE,
  async ({ t, zone, servers }) => {
    zone.postgres.freeze();
    await sleep(18_000);
    zone.postgres.thaw();
    await sleep(6_000);
    t.same(await legacyServers(zone), servers);
  },
);
