/** Shared by the failover tests: a zone with continuous work, observed by a witness. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Test } from 'tap';
import type { Queryable } from '../../lib/platform/postgres/database.ts';
import { complaints } from '../control/waitlist/support/waitlist-database.ts';
import { startZone, type Zone, type ZonePlan } from '../support/fleet-harness.ts';
import { LockHolders } from '../support/lock-holders.ts';
import { HANG_MS } from '../support/patience.ts';
import { until } from '../support/until.ts';
import { Witness } from '../support/witness.ts';
import { Workload } from '../support/workload.ts';

export interface Stage {
  zone: Zone;
  /** Checks that all tasks, waits, locks and statuses were correct. */
  finish(): Promise<void>;
}

/**
 * Two instances, two real agents and some simulated ones, with tasks, waits and locks that continue
 * until `finish`.
 */
export async function startStage(t: Test, plan: ZonePlan): Promise<Stage> {
  const zone = await startZone(t, { instances: 2, agents: 2, simulated: 6, ...plan });
  const work = new Workload({ zone });
  const witness = new Witness(zone, (text) => t.comment(text));
  const locks = new LockHolders({ urls: zone.instances.map(({ url }) => url), queues: ['one', 'two'], callers: 6 });
  await witness.start();
  await work.start();
  locks.start();
  await sleep(2_000);
  const heldBefore = sum(locks.held.values());
  const finish = async () => {
    t.same(await work.finish(), [], 'every accepted task ended once and ran once, and every wait was answered');
    t.same(await witness.finish(), [], 'no live server was ever unknown, and epochs only rose');
    t.same(await locks.finish(), [], 'a lock had one holder at a time');
    t.ok(sum(locks.held.values()) > heldBefore, 'locks continued');
    t.same(await complaints(queryableOf(zone)), [], 'the queues are consistent');
    const held = JSON.stringify([...locks.held]);
    t.comment(`${work.accepted} tasks, the latest wait ended after ${work.latestMs} ms; locks held ${held} times`);
  };
  return { zone, finish };
}

/** When some instance has accepted a task, on this process's clock. */
export async function firstAcceptedAt(zone: Zone): Promise<number> {
  const serverUuid = zone.agents[0]?.serverUuid;
  for (let tries = 0; ; tries++) {
    const url = zone.instances[tries % zone.instances.length]?.url;
    const request = { method: 'POST', headers: { 'content-type': 'application/json' }, body: '{"task":"nop"}' };
    const signal = AbortSignal.timeout(HANG_MS);
    const answer = await fetch(`${url}/servers/${serverUuid}/tasks`, { ...request, signal });
    await answer.arrayBuffer();
    if (answer.status === 202) return performance.now();
    await sleep(20);
  }
}

/** The bus health of every instance. */
export async function busHealth(zone: Zone): Promise<boolean[]> {
  return Promise.all(
    zone.instances.map(async ({ url }) => {
      const text = await (await fetch(`${url}/metrics`)).text();
      return /^cnapi_bus_healthy 1$/m.test(text);
    }),
  );
}

export async function untilBusesAreHealthy(zone: Zone): Promise<void> {
  await until(async () => (await busHealth(zone)).every(Boolean), 'every bus to be healthy');
}

function queryableOf(zone: Zone): Queryable {
  const query = async (text: string) => {
    const rows = await zone.sql(text);
    return { rows, rowCount: rows.length };
  };
  return { query } as Queryable;
}

function sum(counts: Iterable<number>): number {
  return [...counts].reduce((total, count) => total + count, 0);
}
