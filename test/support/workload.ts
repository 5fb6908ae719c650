/**
 * Keeps a zone working while faults happen. Each lane runs one task after the other, created
 * through one instance and awaited through another. Each command writes one line to a file when it
 * runs, so what ran is known independently of what was reported. At the end everything that was
 * accepted is compared with the database and these lines. docs/design.md: I3, I5, I6.
 *
 * A wait that nothing wakes and that no slow poll checks ends at its own timeout. That timeout is
 * far longer than both, even on a slow machine, so such a wait is distinguished from a late one.
 * The longest delay is printed in a comment.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { systemClock } from '../../lib/platform/time/clock.ts';
import type { Zone } from './fleet-harness.ts';
import { Caller, type TaskBody, type TaskOrder } from './retrying-caller.ts';

export interface WorkloadPlan {
  zone: Zone;
  /** A wait may answer this much after its task's end; default: the slow poll's period. */
  waitSlackMs?: number;
}

interface Accepted {
  id: string;
  serverUuid: string;
  token: string | undefined;
  /** `heldFrom`: since when the answering instance could have answered. */
  seenEnd?: { status: string; at: number; heldFrom: number };
}

interface StoredTask {
  id: string;
  key: string;
  state: string;
  outcome: string | null;
  attempt: number;
  error: { code: string; message: string } | null;
  ended_at: Date | null;
  ends: number;
  retries: number;
}

const SLOW_POLL_MS = 5_000;
/** Longer than any slack plus the delay of a busy machine. */
const WAIT_SECONDS = 90;
/** A delay up to this is attributed to the machine. */
const BUSY_MS = 30_000;
/** Longest time without an answer from any instance, or without an end. */
const PATIENCE_MS = 180_000;

export class Workload {
  readonly violations: string[] = [];
  readonly #plan: WorkloadPlan;
  readonly #caller: Caller;
  readonly #effects: string;
  readonly #accepted: Accepted[] = [];
  /** Idempotency keys of all requests; a request may have arrived although its answer did not. */
  readonly #keys = new Set<string>();
  readonly #lanes: Promise<void>[] = [];
  readonly #mayFail = new Map<string, readonly string[]>();
  #latestMs = 0;
  #count = 0;
  readonly #abandoned = new AbortController();
  #isOver = false;

  constructor(plan: WorkloadPlan) {
    this.#plan = plan;
    const urls = plan.zone.instances.map(({ url }) => url);
    this.#caller = new Caller({ urls, clock: systemClock, signal: this.#abandoned.signal });
    this.#effects = path.join(plan.zone.directory, 'effects');
    writeFileSync(this.#effects, '');
  }

  get accepted(): number {
    return this.#accepted.length;
  }

  /** After `finish`: the longest time from a task's end to the end of its wait. */
  get latestMs(): number {
    return this.#latestMs;
  }

  /**
   * The faults of this test affect that server. Requests may be answered that it is not running,
   * and its tasks may fail with these codes. All other tasks must complete.
   */
  mayFail(serverUuid: string, codes: readonly string[]): void {
    this.#mayFail.set(serverUuid, codes);
  }

  /**
   * Runs short and long commands on every real server, and a mix of tasks on the simulated ones.
   */
  async start(): Promise<void> {
    const { zone } = this.#plan;
    const real = zone.agents.map(({ serverUuid }) => serverUuid);
    for (const serverUuid of real) {
      this.#lane(() => this.command(serverUuid, 0.1));
      this.#lane(() => this.command(serverUuid, 4));
    }
    const simulated = (await zone.serverUuids).filter((uuid) => !real.includes(uuid));
    if (simulated.length === 0) return;
    const pick = () => simulated[this.#count++ % simulated.length] as string;
    this.#lane(() => this.task(pick(), { task: 'nop' }));
    this.#lane(() => this.task(pick(), { task: 'sleep', params: { timeout: 2_000 } }));
  }

  /** A command that writes its line at once and then runs for some time. */
  command(serverUuid: string, seconds: number): Promise<TaskBody | undefined> {
    return this.#command(serverUuid, `sleep ${seconds}`);
  }

  /** A command that runs until that file exists, or for some minutes. */
  commandUntil(serverUuid: string, file: string): Promise<TaskBody | undefined> {
    return this.#command(
      serverUuid,
      `tries=0; while [ ! -e ${file} ] && [ $((tries+=1)) -lt 600 ]; do sleep 0.5; done`,
    );
  }

  #command(serverUuid: string, work: string): Promise<TaskBody | undefined> {
    const token = `token-${this.#count++}`;
    const script = `#!/bin/sh\necho ${token} >> ${this.#effects}\n${work}\n`;
    return this.task(serverUuid, { task: 'command_execute', params: { script } }, token);
  }

  /**
   * Creates a task and waits for its end; undefined when it was not accepted because its server
   * counts as gone.
   */
  async task(serverUuid: string, order: Omit<TaskOrder, 'key'>, token?: string): Promise<TaskBody | undefined> {
    const { zone } = this.#plan;
    const key = randomUUID();
    this.#keys.add(key);
    const created = await this.#caller.createTask(serverUuid, { ...order, key }, PATIENCE_MS);
    if (created.status === 409 && created.body.code === 'ServerNotRunning' && this.#mayFail.has(serverUuid)) {
      await sleep(500);
      return undefined;
    }
    if (created.status !== 202) {
      this.#report(`POST of ${order.task} for ${serverUuid}: ${created.status} ${JSON.stringify(created.body)}`);
      return undefined;
    }
    const accepted: Accepted = { id: created.body.id, serverUuid, token };
    this.#accepted.push(accepted);
    const ended = await this.#caller.awaitTask(accepted.id, PATIENCE_MS, WAIT_SECONDS);
    if (ended.status !== 200) this.#report(`wait for ${accepted.id}: ${ended.status} ${JSON.stringify(ended.body)}`);
    else if (ended.body.status === 'active') this.#report(`${accepted.id} has no end after ${PATIENCE_MS} ms`);
    const { runsSince } = zone.instances.find(({ url }) => url === ended.url)?.program ?? { runsSince: 0 };
    const heldFrom = Math.max(ended.askedAt, runsSince);
    accepted.seenEnd = { status: ended.body.status, at: Date.now(), heldFrom };
    return ended.body;
  }

  /**
   * Finishes what was begun and compares everything with the database and the lines; returns the
   * violations.
   */
  async finish(): Promise<string[]> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
    const stored = new Map((await this.#readTasks()).map((task) => [task.id, task]));
    const lines = countLines(readFileSync(this.#effects, 'utf8'));
    for (const accepted of this.#accepted) this.#judge(accepted, stored.get(accepted.id), lines);
    for (const { id, key } of stored.values())
      if (!this.#keys.delete(key)) this.#report(`${id} was not asked for, or asked for once and created twice`);
    if (this.#accepted.length === 0) this.#report('no task was ever accepted');
    return this.violations;
  }

  /** Stops without further requests or checks, after a failed test. */
  abandon(): void {
    this.#isOver = true;
    this.#abandoned.abort();
  }

  #lane(work: () => Promise<unknown>): void {
    const run = async () => {
      while (!this.#isOver) {
        await work().catch((error: unknown) => this.#report(String(error)));
        await sleep(200);
      }
    };
    this.#lanes.push(run());
  }

  #judge({ id, serverUuid, token, seenEnd }: Accepted, task: StoredTask | undefined, lines: Map<string, number>): void {
    if (task === undefined) return this.#report(`${id} was accepted and is not in the database`);
    const { state, outcome, attempt, error, ends, retries } = task;
    if (state !== 'ended' || ends !== 1) this.#report(`${id} is ${state} with ${ends} ends`);
    if (seenEnd !== undefined && seenEnd.status !== outcome)
      this.#report(`${id} was answered as ${seenEnd.status} and is stored as ${outcome}`);
    if (outcome === 'failure' && !this.#mayFail.get(serverUuid)?.includes(error?.code ?? ''))
      this.#report(`${id} failed: ${error?.code} ${error?.message}`);
    if (outcome === 'complete' && attempt !== retries + 1)
      this.#report(`${id} completed at attempt ${attempt} after ${retries} retries`);
    this.#judgeLines(task, token, lines);
    this.#judgeWait(task, seenEnd);
  }

  #judgeLines({ id, outcome }: StoredTask, token: string | undefined, lines: Map<string, number>): void {
    if (token === undefined) return;
    const ran = lines.get(token) ?? 0;
    if (ran > 1 || (outcome === 'complete' && ran !== 1)) this.#report(`${id} ended ${outcome} and ran ${ran} times`);
  }

  #judgeWait({ id, ended_at }: StoredTask, seenEnd: Accepted['seenEnd']): void {
    if (seenEnd === undefined || ended_at === null) return;
    const lateMs = seenEnd.at - Math.max(ended_at.getTime(), seenEnd.heldFrom);
    this.#latestMs = Math.max(this.#latestMs, lateMs);
    const slackMs = this.#plan.waitSlackMs ?? SLOW_POLL_MS;
    if (lateMs > slackMs + BUSY_MS) this.#report(`the wait for ${id} ended ${lateMs} ms after its task`);
  }

  /** Other callers of the same test send no keys. */
  #readTasks(): Promise<StoredTask[]> {
    return this.#plan.zone.sql<StoredTask>(
      `select t.id, t.idempotency_key as key, t.state, t.outcome, t.attempt, t.error, t.ended_at,
         count(e.*) filter (where e.name = 'end')::int as ends, count(e.*) filter (where e.name = 'retry')::int as retries
       from cnapi_tasks t left join cnapi_task_events e on e.task_id = t.id
       where t.idempotency_key is not null group by t.id`,
    );
  }

  #report(violation: string): void {
    if (this.violations.length < 50) this.violations.push(`${new Date().toISOString()} ${violation}`);
  }
}

function countLines(text: string): Map<string, number> {
  const counts = new Map<string, number>();
  for (const line of text.split('\n')) if (line !== '') counts.set(line, (counts.get(line) ?? 0) + 1);
  return counts;
}
