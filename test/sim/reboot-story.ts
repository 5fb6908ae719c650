/**
 * What a caller does who reboots a server: asks for it, waits for the job, and cancels it if it
 * takes too long.
 */
import type { Operation } from './plan.ts';
import type { SimClient } from './sim-client.ts';
import type { World } from './world.ts';

type RebootOperation = Extract<Operation, { kind: 'reboot' }>;

const WAIT_S = 20;
/** A caller's timeout; a wait without an answer long after it is lost. */
const PATIENCE_MS = 40_000;
const MAX_TRIES = 12;

export async function runReboot(world: World, client: SimClient, operation: RebootOperation): Promise<void> {
  const job = await create(world, client, operation);
  if (job === undefined) return;
  await Promise.all([untilEnd(world, client, job), cancelLater(world, client, { job, ...operation })]);
}

/** Undefined: another job of the server is unfinished, or the server is away. */
async function create(world: World, client: SimClient, { agent, drain }: RebootOperation): Promise<string | undefined> {
  const params = { server_uuid: world.agents[agent]?.uuid, drain };
  let wasLost = false;
  for (let tries = 0; tries < MAX_TRIES || wasLost; tries += 1) {
    const { status, ...answer } = await client.ask({ route: 'RebootServer', params });
    const body = 'body' in answer ? answer.body : {};
    if (status === 202) return String(body.job_uuid);
    // What was created by a request without an answer is found again by the same request.
    if (status === 'lost' || status === 503) wasLost = true;
    else if (body.code === 'ServerHasWorkflowJob') return undefined;
    await client.sleep(client.random.between(200, 2_000));
  }
  return undefined;
}

async function untilEnd(world: World, client: SimClient, job: string): Promise<void> {
  for (;;) {
    const since = world.time.now;
    const params = { uuid: job, timeout: WAIT_S };
    const answer = await client.ask({ route: 'WaitWorkflowJob', params, patienceMs: PATIENCE_MS });
    const isOver = answer.status === 200 && !['queued', 'running'].includes(String(answer.body.execution));
    if (answer.status === 'lost' || answer.status === 200) {
      const seen = answer.status === 'lost' ? 'lost' : isOver ? 'event' : 'timeout';
      const causeAt = world.checks.workflows.endedAt(job);
      world.checks.waited({ what: `workflow job ${job}`, since, timeoutMs: WAIT_S * 1000, answer: seen, causeAt });
    }
    if (isOver) return world.checks.workflows.answered(job, String(answer.body.execution));
    if (answer.status === 404)
      return world.violated('I6', `workflow job ${job} was accepted and is not known any more`);
    if (answer.status !== 200) await client.sleep(client.random.between(100, 1000));
  }
}

async function cancelLater(
  world: World,
  client: SimClient,
  { job, cancelAfterMs }: { job: string; cancelAfterMs: number },
): Promise<void> {
  await client.sleep(cancelAfterMs);
  if (world.checks.workflows.endedAt(job) !== undefined) return;
  await client.insist({ route: 'CancelWorkflowJob', params: { uuid: job } });
}
