/**
 * A scripted agent that answers the tasks of VMs, images and ZFS as its test says, and reports VMs.
 */

import type { JsonObject } from '../../../lib/protocol/json/bounded-json.ts';
import type { TaskFrame } from '../../../lib/protocol/link/frames.ts';
import { STREAM_TASKS } from '../../../lib/protocol/streams/stream.ts';
import { TASK_KINDS } from '../../../lib/protocol/tasks.ts';
import type { TestApp } from '../../support/apps.ts';
import { joinAgent, type Machine, newMachine, type ScriptedAgent } from '../../support/scripted-agent.ts';
import { until } from '../../support/until.ts';

/** The names of tasks about VMs, without their beginning `machine_`. */
/** The result of a task, or its error; undefined: it does not end. */
type Answer = { result: JsonObject } | { error: { code: string; message: string } } | undefined;

export class VmAgent {
  readonly agent: ScriptedAgent;
  readonly machine: Machine;
  /** The params of the tasks that it received, by their ids. */
  readonly received = new Map<string, TaskFrame>();
  /** False: a task that ends has never started. */
  startsTasks = true;
  answer: (task: TaskFrame) => Answer = () => ({ result: {} });

  constructor(agent: ScriptedAgent, machine: Machine) {
    this.agent = agent;
    this.machine = machine;
    agent.socket.on('message', (data) => {
      const frame = JSON.parse(String(data)) as TaskFrame;
      if (frame.type === 'task') this.#do(frame);
    });
  }

  /** Connects to the instance; resolves when the server is there and running. */
  static async start(app: Pick<TestApp, 'url' | 'get'>, machine: Machine = newMachine()): Promise<VmAgent> {
    const names = [...Object.keys(TASK_KINDS), ...Object.keys(STREAM_TASKS)];
    const { agent } = await joinAgent(app.url, machine, { capabilities: names.map((name) => `task:${name}`) });
    await until(async () => {
      const { status, body } = await app.get<{ status: string }>(`/servers/${machine.serverUuid}`);
      return status === 200 && body.status === 'running';
    }, 'the server to run');
    return new VmAgent(agent, machine);
  }

  report(...vms: (JsonObject & { uuid: string })[]): void {
    this.agent.send({ type: 'status', status: { vms: Object.fromEntries(vms.map((vm) => [vm.uuid, vm])) } });
  }

  #do({ id, attempt, ...task }: TaskFrame): void {
    this.received.set(id, { id, attempt, ...task });
    const reportedAt = new Date().toISOString();
    const names = this.startsTasks ? (['accepted', 'started'] as const) : (['accepted'] as const);
    for (const name of names) this.agent.send({ type: 'task_event', id, attempt, event: { name, reportedAt } });
    const answer = this.answer({ id, attempt, ...task });
    if (answer === undefined) return;
    const outcome = 'error' in answer ? 'failure' : 'complete';
    this.agent.send({ type: 'task_end', id, attempt, outcome, ...answer, reportedAt });
  }
}
