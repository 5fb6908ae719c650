/**
 * Carries out what link-step.ts decides: sockets, timers, the journal's epoch, heartbeats and the
 * watch over the instance's silence. Owned by Agent, which supplies the hello's content and takes
 * the frames of the open session. A frame that cannot be parsed is answered with `error` and
 * otherwise ignored; too many of them end the session.
 */

import { messageOf } from '../../platform/errors.ts';
import { LogLimiter } from '../../platform/limiting/log-limiter.ts';
import type { Logger } from '../../platform/log.ts';
import type { Random } from '../../platform/random.ts';
import type { Clock, Timer } from '../../platform/time/clock.ts';
import { DEFAULT_LINK_TIMES, MAX_FRAME_BYTES, PROTOCOL_VERSION } from '../../protocol/limits.ts';
import { encodeFrame, encodeHeartbeat, FrameError, parseInstanceFrame } from '../../protocol/link/codec.ts';
import type {
  AgentFrame,
  HelloFrame,
  InstanceFrame,
  InventoryFrame,
  InventorySettledFrame,
  PushOrderFrame,
  TaskAckFrame,
  TaskCancelFrame,
  TaskFrame,
  WelcomeFrame,
} from '../../protocol/link/frames.ts';
import { SETTLED_CAPABILITY } from '../../protocol/tasks.ts';
import type { Endpoint } from './endpoints.ts';
import { isLegacyCnapi, type Protocol } from './fallback.ts';
import { logTransition } from './link-log.ts';
import type { Dial, LinkSocket, UpgradeRefusal } from './link-socket.ts';
import { initialLink, type LinkEffect, type LinkEvent, type LinkState, reasonOf } from './link-state.ts';
import { stepLink } from './link-step.ts';
import { beginWatch, checkSilence, isHeartbeatDue, type LinkWatch } from './link-watch.ts';
import { Refusals } from './refusals.ts';

/** What the link asks of the agent. */
export interface LinkOwner {
  hello(): Pick<HelloFrame, 'capabilities' | 'journalId' | 'bootId' | 'agentVersion' | 'sysinfoDigest'>;
  /** Resolves when the epoch is on disk. */
  journalEpoch(epoch: number): Promise<void>;
  /** Replaces the journal by a new one with another id. */
  renewJournal(): Promise<void>;
  /** Tasks of former processes are held if the instance `settles` inventories. */
  inventory(settles: boolean): InventoryFrame['tasks'];
  /** A new session is open and its inventory is sent. */
  onSessionOpened(welcome: WelcomeFrame, settles: boolean): void;
  /**
   * The instance has compared these held tasks of the inventory with what is recorded: they
   * continue.
   */
  onSettled(tasks: readonly string[]): void;
  /** No known instance has a link: the agent uses the legacy protocol until a session opens. */
  onFallBack(): void;
  onTask(frame: TaskFrame): void;
  onAck(frame: TaskAckFrame): void;
  onCancel(frame: TaskCancelFrame): void;
  onPush(frame: PushOrderFrame): void;
}

interface LinkDeps {
  clock: Clock;
  random: Random;
  log: Logger;
  dial: Dial;
  /** Called at first contact and whenever all known addresses have failed. */
  resolve(): Promise<readonly Endpoint[]>;
  owner: LinkOwner;
  serverUuid: string;
  incarnation: string;
  /** The journal's highest epoch. */
  epoch: number;
  protocol: Protocol;
  localAddress?: string | undefined;
}

const MAX_BAD_FRAMES = 10;
const MAX_UNREAD_BYTES = 16 * 1024 * 1024;
/** Above this many unsent bytes, live output is dropped and repeated ends wait. */
const MAX_BUFFERED_FOR_OUTPUT = 1024 * 1024;

export class LinkDriver {
  readonly #deps: LinkDeps;
  readonly #warnings: LogLimiter;
  readonly #refusals: Refusals;
  #state: LinkState;
  readonly #sockets = new Map<number, { socket: LinkSocket; badFrames: number }>();
  #live: LinkWatch | undefined;
  #timer: Timer | undefined;
  #departure: Timer | undefined;
  #sequence = 0;
  #lastFailure: string | undefined;
  /** Events that arrive while another one is carried out. */
  readonly #inbox: LinkEvent[] = [];
  #stepping = false;

  constructor(deps: LinkDeps) {
    this.#deps = deps;
    this.#warnings = new LogLimiter(deps);
    this.#refusals = new Refusals(deps);
    this.#state = initialLink(deps.epoch, DEFAULT_LINK_TIMES.reconnectMaxMs);
  }

  get state(): LinkState {
    return this.#state;
  }

  /** True while a session is open. */
  get isLive(): boolean {
    return this.#live !== undefined;
  }

  /** Heartbeats sent so far, over all sessions. */
  get heartbeats(): number {
    return this.#sequence;
  }

  /** The session's limit for a frame sent to it. */
  get maxFrameBytes(): number {
    return this.#live?.maxFrameBytes ?? MAX_FRAME_BYTES;
  }

  /** True while the newest session has few unsent bytes. */
  get hasRoom(): boolean {
    return this.#live !== undefined && this.#live.socket.bufferedBytes < MAX_BUFFERED_FOR_OUTPUT;
  }

  start(): void {
    this.#on({ type: 'start' });
  }

  stop(): void {
    this.#on({ type: 'stop' });
    this.#timer?.cancel();
    this.#departure?.cancel();
    this.#live = undefined;
  }

  /** Addresses of instances that were learnt outside the link. */
  found(addresses: readonly Endpoint[]): void {
    this.#on({ type: 'found', addresses });
  }

  /** Sends on the newest session; false when there is none. */
  send(frame: AgentFrame): boolean {
    if (!this.#live) return false;
    this.#sendOn(this.#live.number, frame);
    return true;
  }

  /** Called at each tick, after the poll phase. */
  tick(now: number, healthyMs: number): void {
    const heard = this.#live && checkSilence(this.#live, healthyMs);
    if (this.#live && heard) this.#on({ type: heard, socketId: this.#live.number });
    // One heartbeat a second cannot pile up, so the unsent bytes are not checked.
    if (this.#live && isHeartbeatDue(this.#live, now)) this.#live.socket.send(this.#nextHeartbeat());
  }

  #sendHeartbeat({ number, socket }: LinkWatch): void {
    this.#write(number, socket, this.#nextHeartbeat());
  }

  #nextHeartbeat(): string {
    this.#sequence += 1;
    return encodeHeartbeat(this.#sequence);
  }

  #on(event: LinkEvent): void {
    this.#inbox.push(event);
    if (this.#stepping) return;
    this.#stepping = true;
    try {
      for (let next = this.#inbox.shift(); next; next = this.#inbox.shift()) this.#step(next);
    } finally {
      this.#stepping = false;
    }
  }

  #step(event: LinkEvent): void {
    const { clock, random } = this.#deps;
    const before = this.#state;
    const { state, effects } = stepLink(before, event, { now: clock.now(), chance: random.fraction() });
    this.#state = state;
    if (before.session && before.session.socketId !== state.session?.socketId) this.#dropLive(before.session.socketId);
    this.#lastFailure = reasonOf(event) ?? this.#lastFailure;
    logTransition(this.#deps, { before, event, after: state, lastFailure: this.#lastFailure });
    for (const effect of effects) this.#carryOut(effect);
  }

  #dropLive(socketId: number): void {
    if (this.#live?.number === socketId) this.#live = undefined;
    this.#departure?.cancel();
    this.#departure = undefined;
  }

  #carryOut(effect: LinkEffect): void {
    switch (effect.do) {
      case 'resolve':
        return void this.#resolve(effect.timerGeneration);
      case 'connect':
        return this.#connect(effect.socketId, effect.endpoint);
      case 'greet':
        return this.#greet(effect.socketId, effect.conn);
      case 'journal-epoch':
        return void this.#journalEpoch(effect.socketId, effect.epoch);
      case 'renew-journal':
        return void this.#renewJournal();
      case 'enter':
        return this.#enter(effect.socketId, effect.welcome);
      case 'fall-back':
        return this.#deps.owner.onFallBack();
      case 'close':
        return this.#close(effect.socketId, effect.reason);
      case 'arm':
        this.#timer?.cancel();
        this.#timer = this.#afterPollIn(effect.ms, { type: 'expired', timerGeneration: effect.timerGeneration });
        return;
      case 'arm-departure':
        this.#departure?.cancel();
        this.#departure = this.#afterPollIn(effect.ms, { type: 'departure', socketId: effect.socketId });
        return;
      default:
        return effect satisfies never;
    }
  }

  /** After a freeze, reads what arrived in time before it decides that an instance is late. */
  #afterPollIn(ms: number, event: LinkEvent): Timer {
    const { clock } = this.#deps;
    return clock.after(ms, () => clock.afterPoll(() => this.#on(event)));
  }

  async #resolve(timerGeneration: number): Promise<void> {
    const addresses = await this.#deps.resolve().catch((err: unknown) => {
      this.#deps.log.warn({ server_uuid: this.#deps.serverUuid, err }, 'link: found no instance address; trying again');
      return [];
    });
    this.#on({ type: 'resolved', timerGeneration, addresses });
  }

  #connect(socketId: number, endpoint: Endpoint): void {
    const { serverUuid, localAddress, dial } = this.#deps;
    const events = {
      begun: () => this.#on({ type: 'begun', socketId }),
      opened: () => this.#on({ type: 'opened', socketId }),
      heard: () => this.#onBytes(socketId),
      received: (text: string) => this.#onText(socketId, text),
      closed: (reason: string, refusal?: UpgradeRefusal) => {
        this.#refusals.log(refusal, endpoint, reason);
        this.#onClosed(socketId, reason, refusal);
      },
    };
    try {
      const opened = dial({ endpoint, serverUuid, maxFrameBytes: MAX_FRAME_BYTES, localAddress }, events);
      this.#sockets.set(socketId, { socket: opened, badFrames: 0 });
    } catch (error) {
      this.#onClosed(socketId, `not an address: ${messageOf(error)}`);
    }
  }

  #onBytes(socketId: number): void {
    if (this.#live?.number === socketId) this.#live.hasReceived = true;
  }

  #onClosed(socketId: number, reason: string, refusal?: UpgradeRefusal): void {
    const mayFallBack = this.#deps.protocol === 'auto' && isLegacyCnapi(refusal?.status);
    this.#on({ type: 'closed', socketId, reason, retryAfterMs: refusal?.retryAfterMs, isLegacyCnapi: mayFallBack });
    this.#sockets.delete(socketId);
  }

  #greet(socketId: number, conn: number): void {
    const { owner, serverUuid, incarnation } = this.#deps;
    const greeting = { version: PROTOCOL_VERSION, serverUuid, incarnation, conn, epoch: this.#state.epoch };
    this.#sendOn(socketId, { type: 'hello', ...greeting, ...owner.hello() });
  }

  async #journalEpoch(socketId: number, epoch: number): Promise<void> {
    await this.#deps.owner.journalEpoch(epoch);
    this.#on({ type: 'journalled', socketId });
  }

  async #renewJournal(): Promise<void> {
    await this.#deps.owner.renewJournal();
    if (this.#state.phase === 'renewing') this.#on({ type: 'renewed' });
  }

  #enter(number: number, welcome: WelcomeFrame): void {
    const socket = this.#sockets.get(number)?.socket;
    if (!socket) return;
    this.#live = beginWatch(number, { socket, welcome, now: this.#deps.clock.now() });
    const settles = welcome.capabilities.includes(SETTLED_CAPABILITY);
    this.#sendOn(number, { type: 'inventory', epoch: welcome.epoch, tasks: this.#deps.owner.inventory(settles) });
    this.#sendHeartbeat(this.#live);
    this.#refusals.forget();
    this.#deps.owner.onSessionOpened(welcome, settles);
  }

  #sendOn(socketId: number, frame: AgentFrame): void {
    const held = this.#sockets.get(socketId);
    if (held) this.#write(socketId, held.socket, encodeFrame(frame));
  }

  /** An instance that does not read its answers must not fill this agent's memory. */
  #write(number: number, socket: LinkSocket, text: string): void {
    if (socket.bufferedBytes <= MAX_UNREAD_BYTES) socket.send(text);
    else this.#leave(number, 'it does not read what it is sent');
  }

  #leave(socketId: number, reason: string): void {
    this.#close(socketId, reason);
    this.#on({ type: 'closed', socketId, reason });
  }

  #close(socketId: number, reason: string): void {
    this.#sockets.get(socketId)?.socket.close(1000, reason);
    this.#sockets.delete(socketId);
  }

  #onText(socketId: number, text: string): void {
    let frame: InstanceFrame;
    try {
      frame = parseInstanceFrame(text, this.#sockets.get(socketId)?.socket);
    } catch (error) {
      if (!(error instanceof FrameError)) throw error;
      return this.#onBadFrame(socketId, error);
    }
    this.#onFrame(socketId, frame);
  }

  #onFrame(socketId: number, frame: InstanceFrame): void {
    switch (frame.type) {
      case 'heartbeat':
        return this.#onHeartbeat(socketId, frame.sequence);
      case 'welcome':
        return this.#on({ type: 'welcomed', socketId, welcome: frame });
      case 'refuse':
        return this.#on({ type: 'refused', socketId, refusal: frame });
      case 'goaway':
        return this.#on({ type: 'goaway', socketId, withinMs: frame.withinMs, addresses: frame.addresses });
      case 'inventory_settled':
      case 'task':
        return this.#onFenced(socketId, frame);
      case 'task_ack':
        return this.#deps.owner.onAck(frame);
      case 'task_cancel':
        return this.#state.session ? this.#deps.owner.onCancel(frame) : undefined;
      case 'push_prepare':
      case 'push_timeout':
      case 'push_abort':
        return this.#state.session?.socketId === socketId ? this.#deps.owner.onPush(frame) : undefined;
      case 'error':
        return this.#warnings.warn(
          { server_uuid: this.#deps.serverUuid, code: frame.code, reason: frame.message },
          'link: the instance did not understand a frame',
        );
      default:
        return frame satisfies never;
    }
  }

  /** Either the answer to our heartbeat, or (a sequence not sent yet) a probe, which we answer. */
  #onHeartbeat(socketId: number, sequence: number): void {
    const live = this.#live;
    if (live?.number !== socketId) return;
    if (sequence > this.#sequence) return this.#sendHeartbeat(live);
    if (live.steady) return;
    live.steady = true;
    this.#on({ type: 'steady', socketId });
  }

  /** Only the session of the highest epoch may send these; a new welcome raises that epoch. */
  #onFenced(socketId: number, frame: TaskFrame | InventorySettledFrame): void {
    const { session, epoch: highest } = this.#state;
    const { owner, serverUuid } = this.#deps;
    if (session?.socketId !== socketId || session.epoch !== highest || frame.epoch !== highest) {
      const fields = { server_uuid: serverUuid, type: frame.type, epoch: frame.epoch, highest };
      this.#warnings.warn(fields, 'link: frame refused, not from the session of the highest epoch');
    } else if (frame.type === 'task') owner.onTask(frame);
    else owner.onSettled(frame.tasks);
  }

  #onBadFrame(socketId: number, error: FrameError): void {
    const held = this.#sockets.get(socketId);
    if (!held || (error.code === 'type' && (this.#live?.peerVersion ?? 0) > PROTOCOL_VERSION)) return;
    this.#warnings.warn({ server_uuid: this.#deps.serverUuid, reason: error.message }, 'link: frame not understood');
    held.badFrames += 1;
    if (held.badFrames < MAX_BAD_FRAMES) {
      return this.#sendOn(socketId, { type: 'error', code: error.code, message: error.message.slice(0, 1000) });
    }
    this.#leave(socketId, 'too many frames that were not understood');
  }
}
