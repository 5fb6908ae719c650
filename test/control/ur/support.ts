/** What the tests of servers that speak Ur read of an instance and its database. */
import type { TestApp, TestZone } from '../../support/apps.ts';
import { until } from '../../support/until.ts';

interface UrServerRow {
  status: string;
  reason: string;
  epoch: number;
}

/** The server's row in the roster. */
export async function rosterRowOf({ database }: TestZone, serverUuid: string): Promise<UrServerRow | undefined> {
  const sql = 'select status, reason, epoch from cnapi_roster_authority where server_uuid = $1';
  return (await database.query<UrServerRow>(sql, [serverUuid])).rows[0];
}

/** Waits until the server's status has this reason, and returns its row. */
export function untilUrReason(zone: TestZone, serverUuid: string, reason: string): Promise<UrServerRow> {
  return until(async () => {
    const row = await rosterRowOf(zone, serverUuid);
    return row?.reason === reason && row;
  }, `the reason ${reason}`);
}

/** A metric without labels, by its name without the prefix. */
export async function readMetric(app: TestApp, name: string): Promise<number> {
  const text = await (await fetch(`${app.url}/metrics`)).text();
  return Number(new RegExp(`^cnapi_${name}(?:\\{.*\\})? (\\S+)$`, 'm').exec(text)?.[1]);
}

/** What `GET /ping` says of the broker. */
export async function brokerState(app: TestApp): Promise<string> {
  return (await app.get<{ services: { amqp: string } }>('/ping')).body.services.amqp;
}
