/**
 * A runner for tests. The disk of its journal can be blocked, and its tasks run until a test
 * releases them.
 */
import type { Test } from 'tap';
import { z } from 'zod';
import { catalogueOf } from '../../lib/agent/catalogue.ts';
import type { Journal, JournalRecord } from '../../lib/agent/journal/journal.ts';
import { MemoryJournal } from '../../lib/agent/journal/journal-memory.ts';
import type { Machine } from '../../lib/agent/machine/machine.ts';
import { PauseKeeper } from '../../lib/agent/pause/pause-keeper.ts';
import { Runner } from '../../lib/agent/runner/runner.ts';
import { defineTask, pause, type TaskDefinition } from '../../lib/agent/runner/task-definition.ts';
import { SimulatedMachine } from '../../lib/agent/simulated/simulated-machine.ts';
import { silentLogger } from '../../lib/platform/log.ts';
import { systemRandom as random } from '../../lib/platform/random.ts';
import { type Clock, systemClock } from '../../lib/platform/time/clock.ts';
import type { AgentFrame, TaskEndFrame, TaskFrame } from '../../lib/protocol/link/frames.ts';
import { until } from '../support/until.ts';
import { taskFrame } from './frames.ts';

export const serverUuid = random.uuid();

/** A journal on a slow disk: nothing is durable before `sync`. */
export class HeldJournal implements Journal {
  readonly #inner = new MemoryJournal({ clock: systemClock, random });
  #waiting: (() => void)[] = [];
  held = false;
  readonly written: JournalRecord[] = [];

  get state() {
    return this.#inner.state;
  }

  async append(record: JournalRecord): Promise<void> {
    await Promise.all([
      this.#inner.append(record),
      this.held ? new Promise<void>((done) => this.#waiting.push(done)) : 0,
    ]);
    this.written.push(record);
  }

  /** Makes at most this many records durable, the oldest first. */
  sync(most = Number.POSITIVE_INFINITY): void {
    for (const done of this.#waiting.splice(0, most)) done();
  }

  renew = () => this.#inner.renew();
  close = () => this.#inner.close();
}

/** A task that runs until a test releases it. */
function gatedTask() {
  const runs: { id: string; finish: () => void }[] = [];
  const task: TaskDefinition = defineTask({
    lane: 'parallel',
    params: z.object({}),
    run: (_params, { id, signal }) =>
      new Promise((done, fail) => {
        runs.push({ id, finish: () => done({ ran: id }) });
        signal.addEventListener('abort', () => fail(signal.reason));
      }),
  });
  return { task, runs };
}

export function setUp(
  t: Test,
  journal: Journal = new HeldJournal(),
  {
    clock = systemClock,
    allowReboot = false,
    ...machine
  }: Partial<Machine> & { clock?: Clock; allowReboot?: boolean } = {},
) {
  const sent: AgentFrame[] = [];
  const outbox = {
    live: true,
    hasRoom: true,
    hasRoomFor: () => outbox.hasRoom,
    maxFrameBytes: 1024 * 1024,
    send(frame: AgentFrame) {
      if (outbox.live) sent.push(frame);
      return outbox.live;
    },
  };
  const { task, runs } = gatedTask();
  const serial: TaskDefinition = { ...task, lane: 'serial' };
  const continuing: TaskDefinition = { ...serial, continues: true };
  const unbegun: TaskDefinition = { ...task, startsItself: true };
  const slow = defineTask({
    lane: 'parallel',
    params: z.object({}),
    run: async (_params, context) => {
      await pause(60_000, context);
      return {};
    },
  });
  const simulated = new SimulatedMachine({
    clock,
    random,
    serverUuid,
    number: 1,
    agentVersion: '1',
    sysinfoSize: 'small',
  });
  const runner = new Runner({
    clock,
    log: silentLogger,
    serverUuid,
    journal,
    services: { machine: Object.assign(simulated, machine) },
    outbox,
    tasks: new Map([
      ...catalogueOf({}),
      ['self-starting', task],
      ['serial', serial],
      ['continuing', continuing],
      ['unbegun', unbegun],
      ['slow', slow],
    ]),
    allowReboot,
    pause: new PauseKeeper({ clock, log: silentLogger, bootId: '', files: undefined }),
    pushJobs: { begin: () => t.fail('no push job was prepared') as never },
  });
  t.teardown(() => runner.abandon());
  const ends = (id?: string) =>
    sent.filter((frame): frame is TaskEndFrame => frame.type === 'task_end' && (id === undefined || frame.id === id));
  const events = (id: string) =>
    sent.flatMap((frame) => (frame.type === 'task_event' && frame.id === id ? [frame.event.name] : []));
  const end = (id: string) => until(() => ends(id)[0], `the end of ${id}`);
  const give = (fields: Partial<TaskFrame> = {}) => {
    const frame = taskFrame({ id: random.uuid(), name: 'self-starting', ...fields });
    runner.onTask(frame);
    return frame.id;
  };
  return { runner, journal, sent, outbox, runs, ends, events, end, give };
}

export const settled = () => new Promise((done) => setTimeout(done, 20));
