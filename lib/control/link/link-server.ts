/**
 * The instance's end of the agent link: takes over upgrades from the HTTP listener, greets agents,
 * and passes their frames to the roster and to the listeners of the nouns. Owns every open
 * connection.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { CnapiError, DatabaseUnavailableError, isTemporary } from '../../platform/errors.ts';
import type { Logger } from '../../platform/log.ts';
import type { Clock } from '../../platform/time/clock.ts';
import { reasonNotStorable } from '../../protocol/json/storable.ts';
import {
  type LinkTimes,
  MAX_FRAME_BYTES,
  MAX_RETURN_MS,
  OLDEST_PROTOCOL_VERSION,
  PROTOCOL_VERSION,
} from '../../protocol/limits.ts';
import {
  FRAMES_CUT_TO_STORABLE,
  type HelloFrame,
  type InstanceAddress,
  type InventoryFrame,
  type SessionFrame,
} from '../../protocol/link/frames.ts';
import { SETTLED_CAPABILITY } from '../../protocol/tasks.ts';
import type { Roster } from '../roster/roster.ts';
import type { Session } from '../roster/sessions/session.ts';
import { type AgentListener, dispatchFrame } from './agent-listener.ts';
import { countVersions } from './agent-versions.ts';
import {
  AgentConnection,
  type ConnectionDeps,
  type ConnectionHandlers,
  type ConnectionParts,
  type LinkCounters,
} from './connection.ts';
import { type Sender, SenderQuotas } from './sender-quotas.ts';
import { SysinfoWriter } from './sysinfo-writer.ts';
import type { UnsentFrames } from './unsent-frames.ts';

/** What the link needs of the servers. */
interface ServerLink {
  /** Digest of the stored sysinfo; undefined when there is none. */
  sysinfoDigest(serverUuid: string): Promise<string | undefined>;
  recordSysinfo(serverUuid: string, sysinfo: Record<string, unknown>, digest: string): Promise<unknown>;
}

/**
 * Why an agent of an unknown server is not accepted; undefined if it is. Called when such an agent
 * connects.
 */
type RefusalOfNew = () => { message: string; retryAfterMs: number } | undefined;

interface UpgradedSocket extends Sender {
  socket: Duplex;
  head: Buffer;
}

interface OpenSocket extends Omit<ConnectionParts, 'quota'>, Sender {}

interface LinkServerDeps {
  roster: Roster;
  unsent: UnsentFrames;
  servers: ServerLink;
  config: Pick<LinkTimes, 'heartbeatMs' | 'serverSilenceMs' | 'reconnectMaxMs'>;
  cnapiUuid: string;
  /** Whether this address may cause another line of the log. */
  mayLog(address: string): boolean;
  clock: Clock;
  log: Logger;
}

/** This instance accepts no agent now; another one may. */
class AgentNotAdmittedError extends CnapiError {
  constructor(message: string, retryAfterMs: number) {
    super('ServiceUnavailable', 503, message, { retryAfterSeconds: Math.ceil(retryAfterMs / 1000) });
  }
}

/** 429: what the sender's earlier connections sent exceeds its quota. */
class SenderOverQuotaError extends CnapiError {
  constructor(pauseMs: number) {
    super('TooManyRequests', 429, 'The earlier connections of this agent sent too much; wait and connect again', {
      retryAfterSeconds: Math.ceil(Math.min(pauseMs, MAX_RETURN_MS) / 1000),
    });
  }
}

/** The upgrade asks for a WebSocket, but not in the form of RFC 6455. */
class HandshakeError extends CnapiError {
  constructor(cause: Error) {
    super('BadRequest', 400, cause.message, { cause });
  }
}

const RETRY_AFTER_MS = 1000;
const INVENTORY_RETRY_MS = 500;

export class LinkServer {
  readonly #deps: LinkServerDeps;
  #listeners: readonly AgentListener[] = [];
  readonly #server: WebSocketServer;
  /** Open connections. The value marks the arrival as finished. */
  readonly #connections = new Map<AgentConnection, () => void>();
  readonly #quotas = new SenderQuotas();
  readonly #counters: LinkCounters = { framesRefused: 0, readsPaused: 0 };
  readonly #connectionDeps: ConnectionDeps;
  /** Checks for new servers, by connection, until the agent is greeted. */
  readonly #refusalsOfNew = new WeakMap<AgentConnection, RefusalOfNew>();
  readonly #sysinfo: SysinfoWriter;
  #isStopping = false;
  /** Upgrades answered with a time to return. */
  refused = 0;

  constructor(deps: LinkServerDeps) {
    this.#deps = deps;
    this.#sysinfo = new SysinfoWriter(deps);
    this.#server = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
      clientTracking: false,
      skipUTF8Validation: false,
    });
    const handlers: ConnectionHandlers = {
      onHello: (connection, hello) => this.#hello(connection, hello),
      onInventory: (connection, session, frame) => this.#inventory(connection, session, frame),
      onFrame: (connection, session, frame, size) => this.#frame(connection, session, frame, size),
      onClosed: (connection, session) => this.#closed(connection, session),
      onBroken: (_connection, session, reason, detail) => deps.roster.sessionLosses.lose(session, reason, detail),
      onBackedUp: (connection) => deps.roster.arrivals.noteBackedUp(connection),
    };
    const { clock, log } = deps;
    const mayLog = (address: string) => deps.mayLog(address);
    const { healthyTimer } = deps.roster;
    this.#connectionDeps = {
      handlers,
      healthyTimer,
      counters: this.#counters,
      unsent: deps.unsent,
      mayLog,
      clock,
      log,
    };
  }

  /** `listeners` receive the frames of agents, each the types of its noun. */
  start(listeners: readonly AgentListener[]): void {
    this.#listeners = listeners;
  }

  get counters(): Readonly<LinkCounters> {
    return this.#counters;
  }

  /** The present factor for the cost of input beyond a sender's share. */
  get costFactor(): number {
    return this.#quotas.costFactor(this.#deps.clock.now());
  }

  /** Bytes of frames that agents have not read yet. */
  get unsentBytes(): number {
    return this.#deps.unsent.bytes;
  }

  get connections(): number {
    return this.#connections.size;
  }

  /**
   * Takes over the socket of an upgrade of GET /agents/:server_uuid/link, or returns why no agent
   * can be accepted now.
   */
  upgrade(
    request: IncomingMessage,
    { socket: stream, head, serverUuid, group }: UpgradedSocket,
    refusalOfNew?: RefusalOfNew,
  ): CnapiError | undefined {
    const sender = { serverUuid, group };
    let refusal: CnapiError | undefined =
      this.#overQuota(sender) ?? this.#tooMany(sender) ?? this.refuseArrival(() => true);
    if (refusal !== undefined) return refusal;
    const onRefused = (error: Error) => {
      refusal = new HandshakeError(error);
    };
    // If the event has a listener, ws sends no answer itself. It emits the event before
    // `handleUpgrade` returns.
    this.#server.once('wsClientError', onRefused);
    this.#server.handleUpgrade(request, stream, head, (socket) =>
      this.take({ socket, stream: request.socket, serverUuid, group }, refusalOfNew),
    );
    this.#server.off('wsClientError', onRefused);
    return refusal;
  }

  /** Whether an agent that arrives now is accepted. */
  get takesAgents(): boolean {
    return this.#refusalReason() === undefined;
  }

  /**
   * Called for each arriving agent before any other work: why it is not accepted and when to
   * return. `isKnown`: whether this instance has already seen who it is.
   */
  refuseArrival(isKnown: () => boolean): AgentNotAdmittedError | undefined {
    const reason = this.#refusalReason();
    if (reason === undefined) return undefined;
    this.refused += 1;
    const { arrivals } = this.#deps.roster;
    const retryAfterMs = this.#isStopping ? RETRY_AFTER_MS : arrivals.defer(isKnown() ? 'known' : 'unknown');
    return new AgentNotAdmittedError(reason, retryAfterMs);
  }

  /** Takes an agent's open WebSocket and reads its frames from now on. */
  take({ group, ...parts }: OpenSocket, refusalOfNew?: RefusalOfNew): void {
    const settle = this.#deps.roster.arrivals.admit();
    const quota = this.#quotas.join({ serverUuid: parts.serverUuid, group }, this.#deps.clock.now());
    const connection = new AgentConnection({ ...parts, quota }, this.#connectionDeps);
    this.#connections.set(connection, quota.arrive(settle));
    if (refusalOfNew !== undefined) this.#refusalsOfNew.set(connection, refusalOfNew);
  }

  /** Sends every agent a goaway and closes its connection; writes no status change. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    const addresses = this.#otherAddresses();
    for (const connection of this.#connections.keys()) {
      connection.send({ type: 'goaway', reason: 'the instance is stopping', withinMs: 0, addresses });
      connection.terminate('the instance is stopping');
    }
    this.#server.close();
    for (let waited = 0; this.#connections.size > 0 && waited < 1500; waited += 50) await this.#deps.clock.sleep(50);
  }

  /** The agents with a session, by version. */
  agentsByVersion(): Record<string, number> {
    return countVersions([...this.#connections.keys()].flatMap(({ agentVersion }) => agentVersion ?? []));
  }

  #overQuota(sender: Sender): SenderOverQuotaError | undefined {
    const pauseMs = this.#quotas.pauseMsOf(sender, this.#deps.clock.now());
    if (pauseMs === 0) return undefined;
    this.refused += 1;
    return new SenderOverQuotaError(pauseMs);
  }

  #tooMany(sender: Sender): AgentNotAdmittedError | undefined {
    if (!this.#quotas.hasTooManyArriving(sender)) return undefined;
    this.refused += 1;
    const message = 'too many connections of this agent, of its token or of its address have not begun their session';
    return new AgentNotAdmittedError(message, this.#deps.roster.arrivals.defer('known'));
  }

  #refusalReason(): string | undefined {
    if (this.#isStopping) return 'the instance is stopping';
    const { ready, reasons } = this.#deps.roster.readinessForAgents();
    return ready ? this.#deps.roster.arrivals.refusalReason : reasons.join('; ');
  }

  async #hello(connection: AgentConnection, hello: HelloFrame): Promise<void> {
    const wrong = this.#wrongHello(connection, hello);
    if (wrong !== undefined) return connection.refuse(wrong, this.#deps.roster.addresses());
    try {
      await this.#accept(connection, hello);
    } catch (error) {
      if (!isTemporary(error)) throw error;
      const isDown = error instanceof DatabaseUnavailableError;
      const message = isDown ? 'the instance cannot reach its database' : 'the row of this server is in use';
      connection.refuse({ code: 'no-database', message, retryAfterMs: RETRY_AFTER_MS }, this.#otherAddresses());
    }
  }

  #wrongHello(
    connection: AgentConnection,
    hello: HelloFrame,
  ): { code: 'version' | 'protocol'; message: string } | undefined {
    if (hello.serverUuid !== connection.serverUuid) {
      return { code: 'protocol', message: 'hello.serverUuid differs from the uuid in the path' };
    }
    const reason = reasonNotStorable(hello);
    if (reason !== undefined) return { code: 'protocol', message: `hello ${reason}` };
    if (hello.version >= OLDEST_PROTOCOL_VERSION) return undefined;
    return { code: 'version', message: `this instance speaks protocol versions from ${OLDEST_PROTOCOL_VERSION} on` };
  }

  async #accept(connection: AgentConnection, hello: HelloFrame): Promise<void> {
    const { roster, servers, config, cnapiUuid } = this.#deps;
    // Reads before the accept: an accepted agent that waits for its welcome would count as silent.
    const digest = await servers.sysinfoDigest(hello.serverUuid);
    const refusal = digest === undefined ? this.#refusalsOfNew.get(connection)?.() : undefined;
    this.#refusalsOfNew.delete(connection);
    if (refusal !== undefined) {
      const { message, retryAfterMs } = refusal;
      return connection.refuse({ code: 'too-many-new-servers', message, retryAfterMs }, this.#deps.roster.addresses());
    }
    const acceptance = await roster.authority.accept({ hello, socket: connection, isOpen: () => connection.isOpen });
    if (acceptance.kind === 'gone') return;
    if (acceptance.kind === 'refused') return connection.refuse(acceptance.refusal, this.#deps.roster.addresses());
    connection.agentVersion = hello.agentVersion;
    connection.welcome(acceptance.session, {
      type: 'welcome',
      version: PROTOCOL_VERSION,
      capabilities: [SETTLED_CAPABILITY],
      cnapiUuid,
      epoch: acceptance.session.epoch,
      heartbeatMs: config.heartbeatMs,
      serverSilenceMs: config.serverSilenceMs,
      reconnectMaxMs: config.reconnectMaxMs,
      maxFrameBytes: MAX_FRAME_BYTES,
      addresses: this.#deps.roster.addresses(),
      sendSysinfo: digest !== hello.sysinfoDigest,
    });
  }

  /**
   * If the database is unreachable, the session waits with its inventory; it is not the agent's
   * fault.
   */
  async #inventory(connection: AgentConnection, session: Session, frame: InventoryFrame): Promise<void> {
    const { roster, clock } = this.#deps;
    while (!session.isEnded) {
      try {
        if (await roster.authority.confirmInventory(session)) {
          for (const listener of this.#listeners) listener.onSessionBegan?.(session, frame);
        }
        this.#connections.get(connection)?.();
        return;
      } catch (error) {
        if (!isTemporary(error)) throw error;
        await clock.sleep(INVENTORY_RETRY_MS);
      }
    }
  }

  #frame(connection: AgentConnection, session: Session, frame: SessionFrame, size: number): void {
    // The database would refuse this frame's content, and everything else in the same statement.
    const reason = FRAMES_CUT_TO_STORABLE.has(frame.type) ? undefined : reasonNotStorable(frame);
    if (reason !== undefined) {
      connection.send({ type: 'error', code: 'not-kept', message: `${frame.type} ${reason}` });
      return;
    }
    if (frame.type === 'sysinfo') this.#sysinfo.write(connection, frame, size);
    else dispatchFrame(this.#listeners, { session, frame, size });
  }

  #closed(connection: AgentConnection, session: Session | undefined): void {
    this.#connections.get(connection)?.();
    if (this.#connections.delete(connection)) this.#quotas.leave(connection.quota, this.#deps.clock.now());
    if (session === undefined) return;
    if (this.#isStopping) this.#deps.roster.sessions.end(session);
    else this.#deps.roster.sessionLosses.lose(session, 'closed');
  }

  #otherAddresses(): InstanceAddress[] {
    return this.#deps.roster.addresses().filter(({ uuid }) => uuid !== this.#deps.cnapiUuid);
  }
}
