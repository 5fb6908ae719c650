/**
 * The clients: each lane does one round after the other until the run is over. Tasks are created
 * with a key and requested again with it when the answer is lost. Commands write a line when they
 * begin, while they run and when they end.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../lib/platform/random.ts';
import type { Instance } from '../support/fleet-harness.ts';
import { Caller } from './caller.ts';
import { between, pick } from './chance.ts';
import type { Intent, Workload } from './history.ts';
import { lockRound } from './lock-round.ts';
import { pushRound } from './push-round.ts';
import type { Recorder } from './recorder.ts';

export interface WorkPlan {
  instances: readonly Instance[];
  /** Servers with real agents, and with simulated ones. */
  real: readonly string[];
  simulated: readonly string[];
  recorder: Recorder;
  random: Random;
  /** The file for the lines of commands, and that for those of push jobs. */
  effects: string;
  pushEffects: string;
}

interface Order {
  server: string;
  task: string;
  params: Record<string, unknown>;
  intent?: Pick<Intent, 'token' | 'exitCode' | 'failure'>;
}

/** True when the round was completed. */
type Round = (caller: Caller) => Promise<boolean>;

const PAUSE_MS = 400;
const WAIT_SECONDS = 20;
const QUEUES = ['one', 'two'];

export class Workloads {
  readonly #plan: WorkPlan;
  readonly #lanes: Promise<void>[] = [];
  #tokens = 0;
  #isOver = false;

  constructor(plan: WorkPlan) {
    this.#plan = plan;
  }

  start(): void {
    const { real, simulated, random, instances } = this.#plan;
    const any = () => pick(simulated, random);
    for (const server of real) {
      this.#lane('commands', (caller) => this.#toItsEnd(caller, 'commands', this.#command(server, 0.2)));
      this.#lane('commands', (caller) => this.#toItsEnd(caller, 'commands', this.#slowCommand(server)));
    }
    for (let each = 0; each < 2; each++)
      this.#lane('tasks', (caller) => this.#toItsEnd(caller, 'tasks', this.#simple(any())));
    this.#lane('waits', (caller) => this.#waits(caller, any()));
    this.#lane('cancels', (caller) => this.#cancel(caller, this.#long(pick(real, random))));
    this.#lane('cancels', (caller) =>
      this.#cancel(caller, { server: any(), task: 'sleep', params: { timeout: 100_000 } }),
    );
    this.#lane('keys', (caller) => this.#keys(caller, this.#simple(any())));
    this.#lane('keys', (caller) => this.#keys(caller, this.#command(pick(real, random), 0.1)));
    for (let each = 0; each < 5; each++) {
      const queue = QUEUES[each % QUEUES.length] as string;
      this.#lane('locks', (caller) => lockRound({ caller, recorder: this.#plan.recorder, random }, queue));
    }
    const { recorder, pushEffects } = this.#plan;
    const servers = [...real, ...simulated];
    this.#lane('jobs', (caller) => pushRound({ servers, caller, recorder, random, effects: pushEffects }));
    for (const [instance] of instances.entries()) this.#lane('status', (caller) => this.#look(caller, instance));
  }

  /** Resolves when every started round is over. */
  async finish(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#lanes);
  }

  #lane(workload: Workload, round: Round): void {
    const { recorder } = this.#plan;
    const caller = new Caller(this.#plan, workload);
    const run = async () => {
      while (!this.#isOver) {
        const begunAt = recorder.now();
        if (await round(caller)) recorder.roundDone(workload, begunAt);
        await sleep(PAUSE_MS);
      }
    };
    this.#lanes.push(run());
  }

  async #toItsEnd(caller: Caller, workload: Workload, order: Order): Promise<boolean> {
    const key = this.#intend(workload, order);
    const id = await this.#create(caller, order, key);
    if (id === undefined) return false;
    if (this.#plan.random.fraction() < 0.3) await this.#get(caller, id);
    return this.#end(caller, id);
  }

  /** Waits at every instance: as long as the task takes, and for less. */
  async #waits(caller: Caller, server: string): Promise<boolean> {
    const order = { server, task: 'sleep', params: { timeout: 1_500 } };
    const id = await this.#create(caller, order, this.#intend('waits', order));
    if (id === undefined) return false;
    const all = [...this.#plan.instances.keys()];
    await Promise.all(
      all.flatMap((instance) => [1, 12].map((seconds) => this.#wait(caller, id, { seconds, instance }))),
    );
    return this.#end(caller, id);
  }

  async #cancel(caller: Caller, order: Order): Promise<boolean> {
    const id = await this.#create(caller, order, this.#intend('cancels', order));
    if (id === undefined) return false;
    await sleep(between(0, 1_200, this.#plan.random));
    const about = { task: id, server: order.server };
    await caller.insist({ op: 'cancel', method: 'POST', path: `/tasks/${id}/cancel`, about });
    return this.#end(caller, id);
  }

  /** The same request to all instances at once, and sometimes another one with its key. */
  async #keys(caller: Caller, order: Order): Promise<boolean> {
    const key = this.#intend('keys', order);
    const all = [...this.#plan.instances.keys()];
    const answers = await Promise.all(all.map((instance) => caller.ask(this.#creation(order, key, { instance }))));
    const other = { ...order, params: { ...order.params, timeout: 86_399 } };
    if (this.#plan.random.fraction() < 0.3) await caller.ask(this.#creation(other, key, { body: 'other' }));
    const id = answers.find(({ status }) => status === 202)?.body.id ?? (await this.#create(caller, order, key));
    return id !== undefined && this.#end(caller, id);
  }

  async #look(caller: Caller, instance: number): Promise<boolean> {
    const { real, simulated } = this.#plan;
    const path = `/servers?uuids=${[...real, ...simulated].join()}&extras=status&fields=uuid,status`;
    return (await caller.ask({ op: 'servers', method: 'GET', path, instance })).status === 200;
  }

  #intend(workload: Workload, { server, intent = {} }: Order): string {
    const { recorder } = this.#plan;
    const key = randomUUID();
    recorder.write({ kind: 'intent', at: recorder.now(), workload, server, key, ...intent });
    return key;
  }

  #creation({ server, task, params }: Order, key: string, { body = 'first', instance = -1 } = {}) {
    return {
      op: 'create' as const,
      method: 'POST' as const,
      path: `/servers/${server}/tasks`,
      body: { task, params },
      headers: { 'Idempotency-Key': key },
      about: { server, key, body },
      ...(instance < 0 ? {} : { instance }),
    };
  }

  /** Undefined: not accepted, because its server counts as gone. */
  async #create(caller: Caller, order: Order, key: string): Promise<string | undefined> {
    const answer = await caller.insist(this.#creation(order, key));
    return answer?.status === 202 ? answer.body.id : undefined;
  }

  async #get(caller: Caller, id: string): Promise<void> {
    await caller.ask({ op: 'get', method: 'GET', path: `/tasks/${id}`, about: { task: id } });
  }

  async #wait(caller: Caller, id: string, { seconds, instance = -1 }: { seconds: number; instance?: number }) {
    return caller.ask({
      op: 'wait',
      method: 'GET',
      path: `/tasks/${id}/wait?timeout=${seconds}`,
      about: { task: id, timeoutMs: seconds * 1000 },
      withinMs: seconds * 1000 + 10_000,
      ...(instance < 0 ? {} : { instance }),
    });
  }

  /** Waits at one instance after the other until one returns the end. */
  async #end(caller: Caller, id: string): Promise<boolean> {
    const { recorder } = this.#plan;
    for (const until = recorder.now() + 150_000; recorder.now() < until; ) {
      const { status, body } = await this.#wait(caller, id, { seconds: WAIT_SECONDS });
      if (status === 200 && body.status !== 'active') return true;
      if (status === 404) return false;
      if (status !== 200) await sleep(PAUSE_MS);
    }
    return false;
  }

  #simple(server: string): Order {
    const kind = this.#plan.random.fraction();
    if (kind < 0.5) return { server, task: 'nop', params: {} };
    if (kind < 0.7) return { server, task: 'nop', params: { error: 'as ordered' }, intent: { failure: 'NopError' } };
    return { server, task: 'sleep', params: { timeout: 1_200 } };
  }

  #slowCommand(server: string): Order {
    return this.#plan.random.fraction() < 0.8
      ? this.#command(server, 4)
      : this.#command(server, 30, { timeout: 1_500 });
  }

  #long(server: string): Order {
    return this.#command(server, 100);
  }

  /**
   * A command that runs longer than a moment checks whether this process still lives: nothing may
   * survive a run.
   */
  #command(server: string, seconds: number, { timeout }: { timeout?: number } = {}): Order {
    const token = `t${this.#tokens++}`;
    const exitCode = this.#plan.random.fraction() < 0.8 ? 0 : 7;
    const line = (event: string, rest = '') =>
      `read -r up _ < /proc/uptime; echo "${event} ${token} \${0##*/} $$ $PPID $up${rest}" >> ${this.#plan.effects}`;
    const beats = Math.floor(seconds / 0.5);
    const script = [
      '#!/bin/sh',
      line('begin'),
      `i=0; while [ $i -lt ${beats} ] && kill -0 ${process.pid} 2>/dev/null; do`,
      `sleep 0.5; i=$((i+1)); ${line('beat')}; done`,
      `sleep ${seconds < 0.5 ? seconds : 0}`,
      line('end', ` ${exitCode}`),
      `echo ${token}; exit ${exitCode}`,
    ].join('\n');
    const isLate = timeout !== undefined;
    const intent = isLate ? { token, failure: 'TaskTimeout' } : { token, exitCode };
    return { server, task: 'command_execute', params: { script, ...(isLate ? { timeout } : {}) }, intent };
  }
}
