/**
 * How long a push job of many servers takes that does nothing: from the POST until another instance
 * answers that it is complete. Also how many statements each phase sends to the database, and what
 * a running job costs the instances in memory.
 */
import { BenchCaller, expectStatus } from '../caller.ts';
import type { BenchContext, Figure, Result } from '../figure.ts';
import { isEnd, measureSlowness, postJob, readServers, runJob, startPushZone, untilJob } from '../push.ts';
import { FLOOR_OF, measureTasksFloor } from '../push-floor.ts';
import { logStatements } from '../statement-log.ts';
import { median } from '../statistics.ts';
import { number } from '../table.ts';
import type { Zone } from '../zone.ts';

export const pushJob: Figure = {
  name: 'push-job',
  says: 'a push job of 10,000 servers that does nothing: its time, statements in each phase, memory for each node',
  seconds: 240,
  measure,
};

const WITHIN_S = 6;
const ROUNDS = 3;
/** A statement of a phase must cover at least this many nodes on average. */
const NODES_OF_STATEMENT = 50;
/** A part of the nodes, for the memory of a smaller job. */
const PART = 0.2;
/** Memory for each node of the large job and of the small one differ by chance. */
const LINEAR = 1.3;

/**
 * A phase by words of its statements. The others, such as polls and heartbeats, are not the job's.
 */
const PHASES: Readonly<Record<string, readonly string[]>> = {
  vote: ['e.server_uuid as "serverUuid"', "encode(file, 'base64')", 'cnapi_store_push_votes'],
  start: ['cnapi_start_push_nodes', 'cnapi_claim_for_sessions', 'with ordinality as given (id, attempt'],
  report: ['cnapi_record_task_reports'],
  decide: ['cnapi_advance_push_job', 'cnapi_end_push_job'],
};

async function measure(context: BenchContext): Promise<readonly Result[]> {
  const nodes = context.isQuick ? 200 : context.nodes;
  const zone = await startPushZone(context, nodes);
  const servers = await readServers(zone);
  using caller = new BenchCaller();
  await runJob(caller, zone, servers);
  const slowness = await measureSlowness(zone);
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    times.push(await runJob(caller, zone, servers));
    context.say(`${number(times.at(-1) ?? 0)} s`);
  }
  const large = `${number(nodes)} nodes`;
  return [
    {
      what: `push job, ${large}: POST to complete`,
      value: median(times),
      unit: 's',
      floor: { of: FLOOR_OF, value: await measureTasksFloor(context, nodes) },
      limit: { on: 'value', atMost: WITHIN_S * slowness.factor },
      notes: [`median of ${times.map(number).join(', ')} s`, slowness.says],
    },
    ...(await measureStatements(context, caller, zone, servers)),
    await measureMemory(caller, zone, servers),
  ];
}

async function measureStatements(
  { foundation }: BenchContext,
  caller: BenchCaller,
  zone: Zone,
  servers: readonly string[],
): Promise<Result[]> {
  const texts = await logStatements(foundation, () => runJob(caller, zone, servers));
  if (texts === undefined) return [];
  return Object.entries(PHASES).map(([phase, words]) => ({
    what: `push job, ${number(servers.length)} nodes: statements to ${phase}`,
    value: texts.filter((text) => words.some((word) => text.includes(word))).length,
    unit: '',
    limit: { on: 'value', atMost: Math.ceil(servers.length / NODES_OF_STATEMENT) },
  }));
}

/** Measures the memory of three instances together, while every node's command runs. */
async function measureMemory(caller: BenchCaller, zone: Zone, servers: readonly string[]): Promise<Result> {
  const few = servers.slice(0, Math.ceil(servers.length * PART));
  const ofFew = await memoryOfNode(caller, zone, few);
  const ofAll = await memoryOfNode(caller, zone, servers);
  return {
    what: `push job, ${number(servers.length)} nodes: memory of the instances for each node`,
    value: ofAll,
    unit: 'KB',
    floor: { of: `for each of ${number(few.length)}`, value: ofFew },
    limit: { on: 'ratio', atMost: LINEAR },
    notes: ['heap and external after collections, while all commands run, beside before the job'],
  };
}

async function memoryOfNode(caller: BenchCaller, zone: Zone, servers: readonly string[]): Promise<number> {
  const [{ url } = { url: '' }] = zone.instances;
  const before = await heldBytes(zone);
  const { id } = await postJob(caller, { url, servers, command: 'sleep 600' });
  await untilJob(caller, { url, id }, ({ counts }) => counts.running === servers.length);
  const during = await heldBytes(zone);
  expectStatus(await caller.put(`${url}/push-jobs/${id}/abort`), 202);
  await untilJob(caller, { url, id }, ({ status }) => isEnd(status));
  return (during - before) / servers.length / 1024;
}

async function heldBytes(zone: Zone): Promise<number> {
  const answers = await Promise.all(
    zone.instances.map(({ helper }) => helper.ask<{ heapBytes: number; externalBytes: number }>('memory')),
  );
  return answers.reduce((sum, { heapBytes, externalBytes }) => sum + heapBytes + externalBytes, 0);
}
