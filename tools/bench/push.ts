/** REST requests and readings of the figures of push jobs. */
import { systemClock as clock } from '../../lib/platform/time/clock.ts';
import { JOB_ENDS } from '../../lib/protocol/api/push/job-schemas.ts';
import { type BenchCaller, expectStatus } from './caller.ts';
import type { BenchContext } from './figure.ts';
import { number } from './table.ts';
import type { Zone } from './zone.ts';

/** The part of an answered job that the figures read. */
export interface PushJobAnswer {
  id: string;
  status: string;
  counts: Record<string, number>;
}

export interface NewJob {
  url: string;
  servers: readonly string[];
  command?: string;
}

/** A heartbeat's cost, of all instances, on the machine for which the limits in seconds hold. */
const HEARTBEAT_US_OF_LIMITS = 20;
const HEARTBEATS_OVER_MS = 5_000;
const CONNECTS_PER_SECOND = 400;
const LOOK_MS = 50;
const GIVE_UP_MS = 120_000;

/** Starts three instances, and servers whose hostnames are known. */
export async function startPushZone({ startZone, isQuick }: BenchContext, nodes: number): Promise<Zone> {
  const zone = await startZone();
  await zone.addFleet({ agents: nodes, processes: isQuick ? 1 : 3, rate: CONNECTS_PER_SECOND });
  await zone.untilKnown(nodes);
  return zone;
}

export async function readServers(zone: Zone): Promise<string[]> {
  const rows = await zone.sql<{ uuid: string }>(`select uuid from cnapi_servers where uuid is not null order by uuid`);
  return rows.map(({ uuid }) => uuid);
}

/** A job that needs all of its servers. */
export async function postJob(caller: BenchCaller, { url, servers, command = 'true' }: NewJob): Promise<PushJobAnswer> {
  return JSON.parse(expectStatus(await caller.post(`${url}/push-jobs`, { servers, command }), 201).text);
}

export async function getJob(caller: BenchCaller, url: string, id: string): Promise<PushJobAnswer> {
  return JSON.parse(expectStatus(await caller.get(`${url}/push-jobs/${id}`), 200).text);
}

/** Polls until `isSo` is true; returns the last answer. @throws when that takes too long */
export async function untilJob(
  caller: BenchCaller,
  { url, id }: { url: string; id: string },
  isSo: (job: PushJobAnswer) => boolean,
): Promise<PushJobAnswer> {
  const deadline = clock.now() + GIVE_UP_MS;
  for (;;) {
    const job = await getJob(caller, url, id);
    if (isSo(job)) return job;
    if (clock.now() > deadline) throw new Error(`push job ${id}: ${job.status}, ${JSON.stringify(job.counts)}`);
    await clock.sleep(LOOK_MS);
  }
}

/** @throws when it did not run successfully on all of its nodes, with their reasons */
async function expectSuccess(zone: Zone, { id, status, counts }: PushJobAnswer, nodes: number): Promise<void> {
  if (status === 'complete' && counts.succeeded === nodes) return;
  const reasons = await zone.sql<{ state: string; reason: string | null; count: number }>(
    `select state, reason, count(*)::int as count from cnapi_push_nodes where job = $1::uuid
       group by 1, 2 order by 3 desc`,
    [id],
  );
  const ends = reasons.map(({ state, reason, count }) => `${count} ${state} (${reason ?? 'no reason'})`).join(', ');
  const losses = await zone.sql<{ reason: string; count: number; ms: number }>(
    `select h.reason, count(*)::int as count,
         round(extract(epoch from percentile_cont(0.5) within group (order by h.since - j.created_at)) * 1000)::int as ms
       from cnapi_push_jobs j join cnapi_status_history h on h.since >= j.created_at
       where j.id = $1::uuid and h.status = 'unknown' group by 1 order by 2 desc`,
    [id],
  );
  const unknown = losses.map(({ reason, count, ms }) => `${count} ${reason}, half of them by ${ms} ms`).join('; ');
  throw new Error(
    `push job ${id} of ${nodes} nodes ended as ${status}: ${ends}; servers that became unknown: ${unknown || 'none'}`,
  );
}

/** Seconds, from the POST at the first instance until the second one answers that all succeeded. */
export async function runJob(caller: BenchCaller, zone: Zone, servers: readonly string[]): Promise<number> {
  const [first, second] = zone.instances;
  if (first === undefined || second === undefined) throw new Error('the zone has too few instances');
  const startedAt = clock.now();
  const { id } = await postJob(caller, { url: first.url, servers });
  const job = await untilJob(caller, { url: second.url, id }, ({ status }) => isEnd(status));
  await expectSuccess(zone, job, servers.length);
  return (clock.now() - startedAt) / 1000;
}

export const isEnd = (status: string): boolean => JOB_ENDS.some((end) => end === status);

/** How slow this machine is at present. */
export interface Slowness {
  /** The cost of a heartbeat here divided by its cost on the machine of the limits; at least 1. */
  factor: number;
  says: string;
}

export async function measureSlowness(zone: Zone): Promise<Slowness> {
  const cpuMs = async () => {
    const answers = await Promise.all(zone.instances.map(({ helper }) => helper.ask<{ cpuMs: number }>('cpu')));
    return answers.reduce((sum, answer) => sum + answer.cpuMs, 0);
  };
  const [beats, before] = [(await zone.fleetStatus()).heartbeats, await cpuMs()];
  await clock.sleep(HEARTBEATS_OVER_MS);
  const usEach = (((await cpuMs()) - before) * 1000) / ((await zone.fleetStatus()).heartbeats - beats);
  const says =
    `a heartbeat costs the instances ${number(usEach)} µs of CPU time now; ` +
    `the limit is for ${HEARTBEAT_US_OF_LIMITS} µs, and in proportion`;
  return { factor: Math.max(1, usEach / HEARTBEAT_US_OF_LIMITS), says };
}
