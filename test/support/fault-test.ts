/**
 * The frame of every fault test: a working zone and a witness, faults in between, and no violation
 * at the end.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import t, { type Test } from 'tap';
import { startZone, type Zone, type ZonePlan } from './fleet-harness.ts';
import { FILE_TIMEOUT_MS } from './patience.ts';
import { noRedisServer } from './redis.ts';
import { Witness } from './witness.ts';
import { Workload } from './workload.ts';

export interface Stage {
  t: Test;
  zone: Zone;
  witness: Witness;
  work: Workload;
}

export interface FaultPlan extends ZonePlan {
  /**
   * Waits may end this much after their tasks. For tests in which waiting callers lose the
   * database.
   */
  waitSlackMs?: number;
}

/**
 * An instance that has just started marks no server `unknown` that it never held, for a while. With
 * the default the faults of most tests would be over by then, so wrong status changes would never
 * happen. Tests that stop the whole control plane need the default.
 */
const SHORT_START_GRACE = { startGraceMs: 2_000, reconnectMaxMs: 2_000 };
export const FULL_START_GRACE = { startGraceMs: 18_000, reconnectMaxMs: 8_000 };

export function faultTest(name: string, plan: FaultPlan, play: (stage: Stage) => Promise<void>): void {
  t.setTimeout(FILE_TIMEOUT_MS);
  t.test(name, { skip: noRedisServer, timeout: FILE_TIMEOUT_MS }, async (t) => {
    const zone = await startZone(t, { ...plan, config: { ...SHORT_START_GRACE, ...plan.config } });
    const work = new Workload({ zone, ...(plan.waitSlackMs === undefined ? {} : { waitSlackMs: plan.waitSlackMs }) });
    const witness = new Witness(zone, (text) => t.comment(text));
    await witness.start();
    await work.start();
    await sleep(2_000);
    try {
      await play({ t, zone, witness, work });
    } catch (error) {
      work.abandon();
      witness.abandon();
      throw error;
    }
    t.same(await work.finish(), [], 'every accepted task ended once and every wait was answered');
    t.same(await witness.finish(), [], 'no living server was ever unknown, and epochs only rose');
    t.comment(
      `${work.accepted} tasks, the latest wait ended after ${work.latestMs} ms; ${witness.answers} lists of servers`,
    );
  });
}
