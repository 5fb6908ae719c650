/**
 * How long it takes to abort a push job whose command runs on many servers: until it has ended, and
 * every agent has said that nothing of it runs any more.
 */
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { isEnd, measureSlowness, postJob, readServers, startPushZone, untilJob } from '../push.ts';
import { number } from '../table.ts';

export const pushAbort: Figure = {
  name: 'push-abort',
  says: 'the abort of a push job that runs on 10,000 servers: until all agents have ended their commands',
  seconds: 100,
  measure,
};

const WITHIN_S = 3;

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const nodes = context.isQuick ? 200 : context.nodes;
  const zone = await startPushZone(context, nodes);
  const [first, second] = zone.instances;
  if (first === undefined || second === undefined) throw new Error('the zone has too few instances');
  using caller = new BenchCaller();
  const { id } = await postJob(caller, { url: first.url, servers: await readServers(zone), command: 'sleep 600' });
  await untilJob(caller, { url: first.url, id }, ({ counts }) => counts.running === nodes);
  const slowness = await measureSlowness(zone);
  const startedAt = clock.now();
  expectStatus(await caller.put(`${second.url}/push-jobs/${id}/abort`), 202);
  const job = await untilJob(caller, { url: second.url, id }, ({ status }) => isEnd(status));
  const tookS = (clock.now() - startedAt) / 1000;
  const [busy] = await zone.sql<{ count: number }>('select count(*)::int as count from cnapi_push_busy');
  return [
    {
      what: `abort of a push job that runs on ${number(nodes)} nodes: until all have ended`,
      value: tookS,
      unit: 's',
      limit: { on: 'value', atMost: WITHIN_S * slowness.factor },
      notes: [`${job.status}, ${JSON.stringify(job.counts)}; ${busy?.count} servers in rehab then`, slowness.says],
    },
  ];
}
