/**
 * Faults in the middle of an answer of Postgres: tasks with large parameters are on their way to an
 * instance when it is frozen, when its connection loses everything, or when Postgres is frozen.
 * Postgres keeps what a statement has locked until its answer has been read, so no lock may remain
 * that another instance needs.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Instance, Zone } from '../support/fleet-harness.ts';
import { pick } from './chance.ts';
import type { FaultKind, Harm, Stage } from './harm.ts';

/** The prefix of the keys of these tasks: they belong to no workload, and no rule covers them. */
export const OF_A_FAULT = 'of-a-fault-';
/** Together more than the buffers between an instance and Postgres hold. */
const TASKS = 12;
const TASK_BYTES = 1_000_000;
/** Slow enough that a large answer takes a minute, while beats still pass. */
const BYTES_PER_SECOND = 100_000;
/** The time until the instance knows of the tasks and reads them. */
const READING_MS = 1_500;
/**
 * The time from the beginning of the fault is the sum of the agents' patience (`serverSilenceMs`),
 * the deadline for an unread answer (four fifths of `leaseMs`), and an accept that is retried.
 */
const LEFT_WITHIN_MS = 4_000 + 3_000 + 4_000 + 2_000;

interface Way {
  name: string;
  harm: Pick<Harm, 'part' | 'line' | 'lastsMs'>;
  /** Whether the agents of the instance leave it in time. */
  isLeft: boolean;
  begin(instance: Instance, zone: Zone): void;
  end(instance: Instance, zone: Zone): void;
}

const ways: Way[] = [
  {
    name: 'instance frozen in the middle of an answer',
    harm: { part: 'instance', lastsMs: 18_000 },
    isLeft: true,
    begin: ({ program }) => program.freeze(),
    end: ({ program }) => program.thaw(),
  },
  {
    name: 'instance to Postgres cut without FIN in the middle of an answer',
    harm: { part: 'line', line: 'database', lastsMs: 13_000 },
    isLeft: false,
    begin: ({ databaseProxy }) => databaseProxy?.swallow(),
    end: () => undefined,
  },
  {
    name: 'Postgres frozen in the middle of an answer',
    harm: { part: 'postgres', lastsMs: 4_000 },
    isLeft: false,
    begin: (_instance, { postgres }) => postgres.freeze(),
    end: (_instance, { postgres }) => postgres.thaw(),
  },
];

export const answerFaults: readonly FaultKind[] = ways.map(({ name, harm, isLeft, begin, end }) => ({
  name,
  prepare(stage) {
    const index = pick([...stage.zone.instances.keys()], stage.random);
    const instance = stage.zone.instances[index] as Instance;
    const servers = stage.health.roster.filter(({ owner }) => owner === instance.uuid).map(({ server }) => server);
    return {
      ...harm,
      ...(isLeft ? { moves: { servers, withinMs: LEFT_WITHIN_MS } } : {}),
      ...(harm.part === 'postgres' ? {} : { instance: index }),
      begin: async () => {
        // It claims them all at once when it continues.
        instance.program.freeze();
        await createLargeTasks(stage, instance);
        instance.databaseProxy?.throttle(BYTES_PER_SECOND);
        instance.program.thaw();
        await sleep(READING_MS);
        begin(instance, stage.zone);
      },
      end: () => {
        end(instance, stage.zone);
        instance.databaseProxy?.heal();
      },
    };
  },
}));

/**
 * Tasks for servers whose authority the instance is, created through any other one; refusals do not
 * matter.
 */
async function createLargeTasks({ zone, health, random }: Stage, { uuid }: Instance): Promise<void> {
  const servers = health.roster.filter(({ owner }) => owner === uuid).map(({ server }) => server);
  const others = zone.instances.filter((instance) => instance.uuid !== uuid);
  if (servers.length === 0 || others.length === 0) return;
  const body = JSON.stringify({ task: 'nop', params: { unused: 'x'.repeat(TASK_BYTES) } });
  await Promise.all(Array.from({ length: TASKS }, () => createTask(pick(others, random), pick(servers, random), body)));
}

async function createTask({ url }: Instance, server: string, body: string): Promise<void> {
  const headers = { 'content-type': 'application/json', 'idempotency-key': `${OF_A_FAULT}${randomUUID()}` };
  const answer = await fetch(`${url}/servers/${server}/tasks`, { method: 'POST', headers, body }).catch(
    () => undefined,
  );
  if (answer?.status === 400) throw new Error(`a task of a fault was refused: ${await answer.text()}`);
  await answer?.body?.cancel();
}
