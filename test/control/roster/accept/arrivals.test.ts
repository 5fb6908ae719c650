/**
 * More arrivals than an instance can admit, on a simulated clock: it keeps its sessions, and the
 * others are admitted in turn.
 */
import t from 'tap';
import { FIRST_RATE, MAX_CONCURRENT_ADMISSIONS } from '../../../../lib/control/roster/accept/admission.ts';
import { Arrivals } from '../../../../lib/control/roster/accept/arrivals.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const TICK_MS = 250;

interface Limits {
  /** Agents that the machine can admit in a second, in addition to its heartbeats. */
  greetsPerSecond: number;
  /** The number of sessions whose heartbeats take all its time. */
  carries: number;
}

/** A machine with a queue of work. Work that does not fit into a tick makes it late. */
class Machine {
  readonly clock = new ManualClock();
  readonly healthyTimer = new HealthyTimer({ clock: this.clock, checkMs: TICK_MS });
  readonly #limits: Limits;
  readonly #greeting: (() => void)[] = [];
  #busyShare = 0;
  #backlogMs = 0;
  sessions = 0;
  mostConcurrent = 0;
  /** The longest time that a session's heartbeat waited. */
  longestMs = 0;
  readonly arrivals: Arrivals;

  constructor(limits: Limits, maxAgents = 100_000) {
    this.#limits = limits;
    this.arrivals = new Arrivals({
      healthyTimer: this.healthyTimer,
      eventLoop: { busyShare: () => this.#busyShare },
      sessions: () => this.sessions,
      quiet: () => 0,
      statementMs: () => 0,
      roundTripMs: () => 0,
      takesAgents: () => true,
      maxAgents,
      clock: this.clock,
      log: silentLogger,
    });
    this.healthyTimer.start();
  }

  /** True if the agent was admitted. */
  knock(): boolean {
    if (this.arrivals.refusalReason !== undefined) return false;
    this.#greeting.push(this.arrivals.admit());
    this.mostConcurrent = Math.max(this.mostConcurrent, this.arrivals.concurrentAdmissions);
    return true;
  }

  /** One tick: heartbeats first, then admissions, as far as the time allows. */
  async tick(): Promise<void> {
    const { carries, greetsPerSecond } = this.#limits;
    const heartbeatsMs = (TICK_MS * this.sessions) / carries;
    const greetsMs = (this.#greeting.length * 1_000) / greetsPerSecond;
    for (const settle of this.#greeting.splice(0)) {
      settle();
      this.sessions += 1;
    }
    const workMs = this.#backlogMs + heartbeatsMs + greetsMs;
    this.#busyShare = Math.min(1, workMs / TICK_MS);
    this.#backlogMs = Math.max(0, workMs - TICK_MS);
    this.longestMs = Math.max(this.longestMs, this.#backlogMs);
    if (this.#backlogMs < 1) return await this.clock.advance(TICK_MS);
    const lateMs = this.#backlogMs;
    this.#backlogMs = 0;
    await this.clock.stall(TICK_MS + lateMs);
  }
}

/** Agents that connect, and connect again when they were told to. */
async function offer(
  machine: Machine,
  { agents, perSecond, ticks }: { agents: number; perSecond: number; ticks: number },
) {
  const waiting: number[] = [];
  const beganAt = machine.clock.now();
  let arrived = 0;
  let knocks = 0;
  for (let tick = 0; tick < ticks; tick++) {
    const now = machine.clock.now();
    const sofar = Math.min(agents, ((now - beganAt) * perSecond) / 1_000);
    for (; arrived < sofar; arrived++) waiting.push(now);
    const due = waiting.filter((at) => at <= now);
    const later = waiting.filter((at) => at > now);
    waiting.splice(0, waiting.length, ...later);
    knocks += due.length;
    for (const _agent of due) if (!machine.knock()) waiting.push(now + machine.arrivals.defer('known'));
    await machine.tick();
  }
  return { waiting: waiting.length, knocks };
}

t.test('the reported rate is zero while an instance is late', async (t) => {
  const machine = new Machine({ greetsPerSecond: 100, carries: 1_000 });
  t.equal(machine.arrivals.rate, FIRST_RATE);
  machine.sessions = 10_000;
  for (let tick = 0; tick < 4; tick++) await machine.tick();
  t.equal(machine.arrivals.rate, 0);
});

t.test('many connections that do not read make an instance late, each counted once, while it lasts', async (t) => {
  const machine = new Machine({ greetsPerSecond: 100, carries: 100_000 });
  const connections = Array.from({ length: 11 }, () => ({}));
  const after = async (backedUp: readonly object[]) => {
    for (const connection of backedUp) machine.arrivals.noteBackedUp(connection);
    await machine.tick();
    return machine.arrivals.admission;
  };
  const ten = connections.slice(1);
  t.equal(await after([...ten, ...ten]), 'open');
  t.equal(await after(connections), 'closed');
  t.equal(await after([]), 'open');
});

t.test('the agents that were admitted and deferred are counted', async (t) => {
  const { arrivals } = new Machine({ greetsPerSecond: 100, carries: 1_000 });
  for (let each = 0; each < 3; each++) arrivals.admit();
  for (let each = 0; each < 2; each++) arrivals.defer('known');
  t.same([arrivals.admitted, arrivals.deferred, arrivals.concurrentAdmissions], [3, 2, 3]);
});

t.test('the last return time is reported as long as the process lives', async (t) => {
  const machine = new Machine({ greetsPerSecond: 100, carries: 1_000 });
  t.equal(machine.arrivals.latestReturnInMs, undefined, 'no agent was told to return');
  const inMs = machine.arrivals.defer('known');
  t.equal(machine.arrivals.latestReturnInMs, inMs);
  for (let tick = 0; tick < 8; tick++) await machine.tick();
  t.equal(machine.arrivals.latestReturnInMs, inMs - 8 * TICK_MS, 'the time is over');
});

t.test('arrivals at four times the possible rate are all admitted, and no heartbeat waits long', async (t) => {
  const machine = new Machine({ greetsPerSecond: 100, carries: 10_000 });
  const { waiting, knocks } = await offer(machine, { agents: 4_000, perSecond: 400, ticks: 600 });
  t.equal(waiting, 0);
  t.equal(machine.sessions, 4_000);
  t.ok(machine.mostConcurrent <= MAX_CONCURRENT_ADMISSIONS);
  t.ok(machine.longestMs < 2_000, `the longest wait was ${Math.round(machine.longestMs)} ms`);
  t.ok(knocks < 10 * 4_000, `${knocks} attempts of 4,000 agents`);
});

t.test('with more agents than it can carry, an instance stops admitting before heartbeats are late', async (t) => {
  const machine = new Machine({ greetsPerSecond: 1_000, carries: 2_000 });
  const { waiting } = await offer(machine, { agents: 8_000, perSecond: 1_000, ticks: 400 });
  t.ok(waiting > 0, 'some agents are told to return again and again');
  t.ok(machine.sessions >= 1_500, `${machine.sessions} sessions`);
  t.ok(machine.longestMs < 2_000, `the longest wait was ${Math.round(machine.longestMs)} ms`);
  t.equal(machine.arrivals.admission === 'open', false, 'it reports that it refuses agents');
});

t.test('a full instance counts the agents being admitted', async (t) => {
  const machine = new Machine({ greetsPerSecond: 1_000, carries: 10_000 }, 3);
  t.same([machine.knock(), machine.knock(), machine.knock(), machine.knock()], [true, true, true, false]);
  t.match(machine.arrivals.refusalReason, /full/);
  t.equal(machine.arrivals.admission, 'closed');
});

t.test('an admission that is settled twice counts once', async (t) => {
  const { arrivals } = new Machine({ greetsPerSecond: 1_000, carries: 10_000 });
  const settle = arrivals.admit();
  arrivals.admit();
  settle();
  settle();
  t.equal(arrivals.concurrentAdmissions, 1);
});

t.test('one agent that does not read keeps no other out, however often it is answered', async (t) => {
  const machine = new Machine({ greetsPerSecond: 1_000, carries: 10_000 });
  machine.sessions = 100;
  const connection = {};
  for (let ticks = 0; ticks < 80; ticks += 1) {
    for (let answers = 0; answers < 500; answers += 1) machine.arrivals.noteBackedUp(connection);
    await machine.tick();
  }
  t.equal(machine.arrivals.admission, 'open');
});
