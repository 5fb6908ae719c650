/**
 * One agent: it connects the link, journal, runner and reports with the legacy protocol (used while
 * there is no link) and the tasks posted to its HTTP port. main.ts runs one for a real machine; the
 * fleet runs thousands of simulated ones. The caller owns the journal (already read), the ticker
 * and the HTTP port (already listening). The agent owns the rest.
 */

import type { Logger } from '../platform/log.ts';
import type { Random } from '../platform/random.ts';
import { type Clock, settlesWithin } from '../platform/time/clock.ts';
import type {
  HelloFrame,
  PushOrderFrame,
  TaskAckFrame,
  TaskCancelFrame,
  TaskFrame,
  WelcomeFrame,
} from '../protocol/link/frames.ts';
import { PUSH_TASK } from '../protocol/push.ts';
import { capabilitiesOf } from './catalogue.ts';
import { buildInventory, type Journal } from './journal/journal.ts';
import { isPostedId } from './journal/posted-id.ts';
import type { HttpPort, HttpWorker } from './legacy/http-port.ts';
import { LegacyCnapiClient } from './legacy/legacy-cnapi-client.ts';
import { LegacyReporter } from './legacy/legacy-reporter.ts';
import { forgetPosted, type PostedTask, PostedTasks } from './legacy/posted-tasks.ts';
import { type AgentCredentials, NO_CREDENTIALS } from './link/credentials.ts';
import type { Endpoint } from './link/endpoints.ts';
import type { Protocol } from './link/fallback.ts';
import { LinkDriver, type LinkOwner } from './link/link-driver.ts';
import type { Dial } from './link/link-socket.ts';
import type { Ticker, TickerMember } from './link/ticker.ts';
import { PauseKeeper } from './pause/pause-keeper.ts';
import type { AllowedCommands } from './push/allow-list.ts';
import type { NodeState } from './push/node-state.ts';
import { PushParticipant } from './push/push-participant.ts';
import { refusalOf } from './push/refusal.ts';
import { Reports } from './reports/reports.ts';
import type { Outbox } from './runner/outbox.ts';
import { Runner } from './runner/runner.ts';
import type { AgentServices, Catalogue } from './runner/task-definition.ts';
import type { Trial } from './versions/trial.ts';

export interface AgentDeps {
  clock: Clock;
  random: Random;
  log: Logger;
  ticker: Ticker;
  dial: Dial;
  /** Sent with HTTP requests. `dial` has credentials of its own. */
  credentials?: AgentCredentials | undefined;
  resolve(): Promise<readonly Endpoint[]>;
  journal: Journal;
  services: AgentServices;
  tasks: Catalogue;
  serverUuid: string;
  agentVersion: string;
  allowReboot: boolean;
  /** The commands of push jobs that this agent may run; all if absent. */
  pushCommands?: AllowedCommands | undefined;
  /** Undefined if this process does not try out a new version. */
  trial?: Trial | undefined;
  /** Started. If absent, a drain does not survive this process. */
  pause?: PauseKeeper | undefined;
  protocol: Protocol;
  /** Receives posted tasks, if tasks may be posted to this agent. */
  httpPort?: HttpPort | undefined;
  /** A local address to connect from. */
  localAddress?: string | undefined;
}

/** How long a stopping agent waits for acknowledgements of the task ends that it has journalled. */
const ACK_WAIT_MS = 1000;
/** How long a stopping agent waits for running tasks to end. */
const STOP_WITHIN_MS = 8000;
/**
 * The link runs at every tick. Runner and reports run once a second, so thousands of agents fit in
 * one process.
 */
const CHORES_MS = 1000;

export class Agent implements LinkOwner, HttpWorker, TickerMember {
  readonly #deps: AgentDeps;
  readonly #link: LinkDriver;
  readonly #runner: Runner;
  readonly #push: PushParticipant;
  readonly #reports: Reports;
  readonly #posted: PostedTasks;
  readonly #legacyCnapi: LegacyCnapiClient;
  readonly #legacyReporter: LegacyReporter;
  readonly #capabilities: string[];
  /** When runner and reports run next. */
  #choresAt = 0;
  #stopped: Promise<void> | undefined;

  constructor(deps: AgentDeps) {
    this.#deps = deps;
    const { clock, random, log, dial, resolve, journal, services, tasks, serverUuid, agentVersion, localAddress } =
      deps;
    const { machine, vms } = services;
    this.#capabilities = capabilitiesOf(tasks);
    this.#link = new LinkDriver({
      clock,
      random,
      log,
      dial,
      serverUuid,
      localAddress,
      resolve,
      protocol: deps.protocol,
      owner: this,
      incarnation: random.uuid(),
      epoch: journal.state.epoch,
    });
    const outbox = this.#outbox();
    const pause = deps.pause ?? new PauseKeeper({ clock, log, bootId: '', files: undefined });
    this.#push = new PushParticipant({
      clock,
      log,
      serverUuid,
      send: (frame) => this.#link.send(frame),
      refusalOf: (prepare) =>
        refusalOf(prepare, { machine, reasonPaused: pause.reasonPaused, allowed: deps.pushCommands }),
    });
    const pushJobs = this.#push;
    this.#runner = new Runner({
      clock,
      log,
      serverUuid,
      journal,
      outbox,
      tasks,
      services,
      allowReboot: deps.allowReboot,
      pushJobs,
      pause,
    });
    this.#reports = new Reports({ clock, machine, outbox: this.#link, log, serverUuid, vms });
    this.#posted = new PostedTasks({
      clock,
      random,
      give: (frame) => this.#runner.onTask(frame),
      acknowledge: (frame) => this.#runner.onAck(frame),
    });
    const found = (addresses: readonly Endpoint[]) => this.#link.found(addresses);
    const credentials = deps.credentials ?? NO_CREDENTIALS;
    this.#legacyCnapi = new LegacyCnapiClient({
      clock,
      random,
      serverUuid,
      agentVersion,
      resolve,
      credentials,
      found,
      localAddress,
    });
    this.#legacyReporter = new LegacyReporter({
      clock,
      random,
      log,
      machine,
      vms,
      cnapi: this.#legacyCnapi,
      serverUuid,
    });
  }

  /** Sends frames about a posted task to PostedTasks and all other frames to the link. */
  #outbox(): Outbox {
    const link = this.#link;
    return {
      get maxFrameBytes() {
        return link.maxFrameBytes;
      },
      hasRoomFor: (taskId) => isPostedId(taskId) || link.hasRoom,
      send: (frame) => {
        if (!('id' in frame && isPostedId(frame.id))) return link.send(frame);
        this.#posted.receive(frame);
        return true;
      },
    };
  }

  get serverUuid(): string {
    return this.#deps.serverUuid;
  }

  /** The state of this agent in push jobs. */
  get pushState(): NodeState {
    return this.#push.state;
  }

  get link(): LinkDriver {
    return this.#link;
  }

  /** True while the agent uses the legacy protocol. */
  get isLegacyCnapi(): boolean {
    return this.#legacyReporter.isRunning;
  }

  /** Resolves when the agent has begun to connect to its first instance. */
  async start(): Promise<void> {
    const { journal, services, ticker, protocol, httpPort } = this.#deps;
    await forgetPosted(journal, services.machine);
    await Promise.all([this.#runner.recover(), this.#reports.start()]);
    this.#push.recovered();
    if (this.#stopped) return;
    httpPort?.serve(this);
    ticker.add(this);
    if (protocol === 'legacy') this.#legacyReporter.start();
    else this.#link.start();
  }

  /**
   * Ends running tasks, reports their ends if it can, and disconnects. The caller closes the
   * journal.
   */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #stop(): Promise<void> {
    const { clock, httpPort } = this.#deps;
    this.#push.stop();
    this.#reports.stop();
    await settlesWithin(clock, STOP_WITHIN_MS, this.#runner.stop());
    this.#posted.giveUp();
    await httpPort?.stop();
    await this.#legacyReporter.stop();
    const until = clock.now() + ACK_WAIT_MS;
    while (this.#link.isLive && this.#hasUnacknowledgedEnds() && clock.now() < until) await clock.sleep(20);
    this.#deps.ticker.remove(this);
    this.#link.stop();
  }

  #hasUnacknowledgedEnds(): boolean {
    for (const task of this.#deps.journal.state.tasks.values()) if (task.state === 'ended') return true;
    return false;
  }

  /** Simulates a crash, for the fleet: ends no task and sends nothing. */
  abandon(): void {
    this.#stopped ??= Promise.resolve();
    this.#deps.ticker.remove(this);
    this.#reports.stop();
    this.#link.stop();
    void this.#legacyReporter.stop();
    void this.#runner.abandon();
  }

  tick(now: number, healthyMs: number): void {
    this.#link.tick(now, healthyMs);
    this.#deps.trial?.tick(now, this.#link.isLive);
    if (now < this.#choresAt || !this.#link.isLive) return;
    this.#choresAt = now + CHORES_MS;
    this.#runner.tick(now);
    this.#reports.tick(now);
  }

  hello(): Pick<HelloFrame, 'capabilities' | 'journalId' | 'bootId' | 'agentVersion' | 'sysinfoDigest'> {
    return {
      capabilities: this.#capabilities,
      journalId: this.#deps.journal.state.journalId,
      bootId: this.#deps.services.machine.bootId,
      agentVersion: this.#deps.agentVersion,
      sysinfoDigest: this.#reports.digest,
    };
  }

  journalEpoch(epoch: number): Promise<void> {
    return this.#deps.journal.append({ record: 'epoch', epoch });
  }

  async renewJournal(): Promise<void> {
    this.#deps.log.warn({ server_uuid: this.serverUuid }, 'journal: refused by an instance; starting a new one');
    await this.#runner.abandon();
    this.#posted.giveUp();
    await this.#deps.journal.renew();
  }

  inventory(settles: boolean): ReturnType<typeof buildInventory> {
    const { state } = this.#deps.journal;
    return settles ? buildInventory(state, (task) => this.#runner.isHeld(task)) : buildInventory(state);
  }

  onSessionOpened(welcome: WelcomeFrame, settles: boolean): void {
    this.#choresAt = 0;
    this.#runner.sessionOpened({ settles });
    this.#push.sessionOpened();
    this.#reports.sessionOpened(this.#deps.clock.now(), welcome.sendSysinfo);
    void this.#legacyReporter.stop();
  }

  onSettled(tasks: readonly string[]): void {
    this.#runner.onSettled(tasks);
  }

  onFallBack(): void {
    this.#legacyCnapi.know(this.#link.state.known);
    this.#legacyReporter.start();
  }

  onTask(frame: TaskFrame): void {
    if (!isPostedId(frame.id)) this.#runner.onTask(frame);
  }

  onPush(frame: PushOrderFrame): void {
    if (frame.type === 'push_abort') this.#push.onAbort(frame);
    else if (frame.type === 'push_timeout') this.#push.onTimeout(frame);
    else void this.#push.onPrepare(frame);
  }

  onAck(frame: TaskAckFrame): void {
    if (!isPostedId(frame.id)) this.#runner.onAck(frame);
  }

  onCancel(frame: TaskCancelFrame): void {
    if (!isPostedId(frame.id)) this.#runner.onCancel(frame);
  }

  get isPaused(): boolean {
    return this.#runner.isPaused;
  }

  get isFull(): boolean {
    return this.#posted.isFull;
  }

  get history(): PostedTasks['history'] {
    return this.#posted.history;
  }

  knows(taskName: string): boolean {
    // The start of a push job comes over the link only.
    return taskName !== PUSH_TASK && this.#deps.tasks.has(taskName);
  }

  post(task: PostedTask): ReturnType<PostedTasks['post']> {
    return this.#posted.post(task);
  }
}
