/**
 * The instance's end of the agent link: takes upgrades over from the HTTP listener, greets agents, and hands what they
 * send to the roster, the tasks and the servers. Owns every open connection.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { CnapiError, DatabaseUnavailableError, messageOf } from '../errors.ts';
import type { Logger } from '../log.ts';
import type { Clock } from '../ports/clock.ts';
import type { Roster } from '../roster/coordinator.ts';
import type { Session } from '../roster/session.ts';
import type { TaskSession } from '../tasks/sessions.ts';
import type {
  Address,
  AgentFrame,
  HelloFrame,
  InventoryFrame,
  SysinfoFrame,
  TaskEndFrame,
  TaskEventFrame,
} from '../wire/frames.ts';
import { type LinkTimes, MAX_FRAME_BYTES, OLDEST_PROTOCOL_VERSION, PROTOCOL_VERSION } from '../wire/limits.ts';
import { reasonNotStorable } from '../wire/storable.ts';
import { Connection, type ConnectionDeps, type ConnectionHandlers, type ConnectionParts } from './connection.ts';
import { Latest } from './latest.ts';
import type { Registry } from './registry.ts';

/** What the link needs of the tasks. */
export interface TaskLink {
  onInventory(session: TaskSession, frame: InventoryFrame): void;
  onTaskEvent(session: TaskSession, frame: TaskEventFrame): void;
  onTaskEnd(session: TaskSession, frame: TaskEndFrame): void;
}

/** What the link needs of the servers. */
export interface ServerLink {
  /** Digest of the stored sysinfo; undefined when there is none. */
  sysinfoDigest(serverUuid: string): Promise<string | undefined>;
  recordSysinfo(serverUuid: string, sysinfo: Record<string, unknown>, digest: string): Promise<unknown>;
  queueReport(serverUuid: string, report: Record<string, unknown>): void;
}

export interface LinkServerDeps {
  roster: Roster;
  registry: Registry;
  tasks: TaskLink;
  servers: ServerLink;
  config: Pick<LinkTimes, 'heartbeatMs' | 'serverSilenceMs' | 'reconnectMaxMs'> & { maxAgents: number };
  cnapiUuid: string;
  clock: Clock;
  log: Logger;
}

/** This instance takes no agent now; another one may. */
export class AgentNotTakenError extends CnapiError {
  constructor(message: string) {
    super('ServiceUnavailable', 503, message, { retryAfterSeconds: RETRY_AFTER_MS / 1000 });
  }
}

/** The upgrade asks for a WebSocket, but not as RFC 6455 has it. */
export class HandshakeError extends CnapiError {
  constructor(cause: Error) {
    super('BadRequest', 400, cause.message, { cause });
  }
}

const RETRY_AFTER_MS = 1000;
const INVENTORY_RETRY_MS = 500;
const UPGRADE_BACKLOG = 2_000;
const SYSINFO_RETRY_MS = 2_000;
/** Of all sysinfos that wait for the database; one has some 40 KB. */
const MAX_SYSINFO_BYTES_HELD = 64 * 1024 * 1024;

export class LinkServer {
  readonly #deps: LinkServerDeps;
  readonly #server: WebSocketServer;
  readonly #connections = new Set<Connection>();
  readonly #connectionDeps: ConnectionDeps;
  /** Being kept: one at a time of each agent, the last one counts. */
  readonly #latestSysinfo = new Latest<Connection>();
  #sysinfoBytesHeld = 0;
  #isStopping = false;

  constructor(deps: LinkServerDeps) {
    this.#deps = deps;
    this.#server = new WebSocketServer({
      noServer: true,
      perMessageDeflate: false,
      maxPayload: MAX_FRAME_BYTES,
      clientTracking: false,
      skipUTF8Validation: false,
    });
    const handlers: ConnectionHandlers = {
      hello: (connection, hello) => this.#hello(connection, hello),
      inventory: (_connection, session, frame) => this.#inventory(session, frame),
      frame: (connection, session, frame) => this.#frame(connection, session, frame),
      closed: (connection, session) => this.#closed(connection, session),
      broken: (_connection, session, reason, detail) => deps.roster.verdicts.lose(session, reason, detail),
    };
    this.#connectionDeps = { handlers, ticker: deps.roster.ticker, clock: deps.clock, log: deps.log };
  }

  get connections(): number {
    return this.#connections.size;
  }

  /** Takes over the socket of an upgrade of GET /agents/:server_uuid/link, or says why no agent can be taken now. */
  upgrade(request: IncomingMessage, stream: Duplex, head: Buffer, serverUuid: string): CnapiError | undefined {
    let refusal: CnapiError | undefined = this.refusal();
    if (refusal !== undefined) return refusal;
    const onRefused = (error: Error) => {
      refusal = new HandshakeError(error);
    };
    // Where somebody hears of it, ws leaves the answer to them. It says so before `handleUpgrade` returns.
    this.#server.once('wsClientError', onRefused);
    this.#server.handleUpgrade(request, stream, head, (socket) =>
      this.take({ socket, stream: request.socket, serverUuid }),
    );
    this.#server.off('wsClientError', onRefused);
    return refusal;
  }

  /** Why no agent can be taken now, if so. */
  refusal(): AgentNotTakenError | undefined {
    const refusal = this.#upgradeRefusal();
    return refusal === undefined ? undefined : new AgentNotTakenError(refusal);
  }

  /** A WebSocket of an agent stands: what comes over it is heard from now on. */
  take(parts: ConnectionParts): void {
    this.#connections.add(new Connection(parts, this.#connectionDeps));
  }

  /** Asks every agent to go elsewhere at once and closes; writes no verdict. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    const addresses = this.#otherAddresses();
    for (const connection of this.#connections) {
      connection.send({ type: 'goaway', reason: 'the instance is stopping', withinMs: 0, addresses });
      connection.terminate('the instance is stopping');
    }
    this.#server.close();
    for (let waited = 0; this.#connections.size > 0 && waited < 1500; waited += 50) await this.#deps.clock.sleep(50);
  }

  #upgradeRefusal(): string | undefined {
    if (this.#isStopping) return 'the instance is stopping';
    const { ready, reasons } = this.#deps.roster.readinessForAgents();
    if (!ready) return reasons.join('; ');
    if (this.#connections.size >= this.#deps.config.maxAgents) return 'the instance is full';
    if (this.#deps.roster.authority.waiting >= UPGRADE_BACKLOG) return 'too many agents are coming in';
    return undefined;
  }

  async #hello(connection: Connection, hello: HelloFrame): Promise<void> {
    const wrong = this.#wrongHello(connection, hello);
    if (wrong !== undefined) return connection.refuse(wrong, this.#addresses());
    try {
      await this.#accept(connection, hello);
    } catch (error) {
      if (!(error instanceof DatabaseUnavailableError)) throw error;
      const message = 'the instance cannot reach its database';
      connection.refuse({ code: 'no-database', message, retryAfterMs: RETRY_AFTER_MS }, this.#otherAddresses());
    }
  }

  #wrongHello(
    connection: Connection,
    hello: HelloFrame,
  ): { code: 'version' | 'protocol'; message: string } | undefined {
    if (hello.serverUuid !== connection.serverUuid) {
      return { code: 'protocol', message: 'hello.serverUuid differs from the uuid in the path' };
    }
    if (hello.version >= OLDEST_PROTOCOL_VERSION) return undefined;
    return { code: 'version', message: `this instance speaks protocol versions from ${OLDEST_PROTOCOL_VERSION} on` };
  }

  async #accept(connection: Connection, hello: HelloFrame): Promise<void> {
    const { roster, servers, config, cnapiUuid } = this.#deps;
    // Before the accept: once accepted, an agent that waits for its welcome would count as silent.
    const digest = await servers.sysinfoDigest(hello.serverUuid);
    const acceptance = await roster.authority.accept({ hello, socket: connection, isOpen: () => connection.isOpen });
    if (acceptance.kind === 'gone') return;
    if (acceptance.kind === 'refused') return connection.refuse(acceptance.refusal, this.#addresses());
    connection.welcome(acceptance.session, {
      type: 'welcome',
      version: PROTOCOL_VERSION,
      capabilities: [],
      cnapiUuid,
      epoch: acceptance.session.epoch,
      heartbeatMs: config.heartbeatMs,
      serverSilenceMs: config.serverSilenceMs,
      reconnectMaxMs: config.reconnectMaxMs,
      maxFrameBytes: MAX_FRAME_BYTES,
      addresses: this.#addresses(),
      sendSysinfo: digest !== hello.sysinfoDigest,
    });
  }

  /** While the database is away the session waits with its inventory; it is not the agent's fault. */
  async #inventory(session: Session, frame: InventoryFrame): Promise<void> {
    const { roster, tasks, registry, clock } = this.#deps;
    while (!session.isEnded) {
      try {
        if (await roster.authority.confirmInventory(session)) tasks.onInventory(registry.view(session), frame);
        return;
      } catch (error) {
        if (!(error instanceof DatabaseUnavailableError)) throw error;
        await clock.sleep(INVENTORY_RETRY_MS);
      }
    }
  }

  #frame(connection: Connection, session: Session, frame: AgentFrame): void {
    const { registry, servers, tasks } = this.#deps;
    const { serverUuid } = session;
    const reason = reasonNotToKeep(frame);
    if (reason !== undefined) {
      connection.send({ type: 'error', code: 'not-kept', message: `${frame.type} ${reason}` });
      return;
    }
    switch (frame.type) {
      case 'task_event':
        tasks.onTaskEvent(registry.view(session), frame);
        break;
      case 'task_end':
        tasks.onTaskEnd(registry.view(session), frame);
        break;
      case 'sysinfo':
        this.#latestSysinfo.run(connection, () => this.#keepSysinfo(connection, frame));
        break;
      case 'status':
        servers.queueReport(serverUuid, frame.status);
        break;
    }
  }

  /** It comes again with the next session only, so while the database is away and the connection stands it is tried again. */
  async #keepSysinfo(connection: Connection, { sysinfo, digest }: SysinfoFrame): Promise<void> {
    const { servers, clock } = this.#deps;
    for (let tries = 1; connection.isOpen || tries === 1; tries++) {
      try {
        await servers.recordSysinfo(connection.serverUuid, sysinfo, digest);
        return;
      } catch (error) {
        const bytes = JSON.stringify(sysinfo).length;
        const isHeld =
          error instanceof DatabaseUnavailableError && this.#sysinfoBytesHeld + bytes <= MAX_SYSINFO_BYTES_HELD;
        if (tries === 1 || !isHeld) this.#noteNotKept(connection, error, isHeld);
        if (!isHeld) return;
        this.#sysinfoBytesHeld += bytes;
        await clock.sleep(SYSINFO_RETRY_MS);
        this.#sysinfoBytesHeld -= bytes;
      }
    }
  }

  #noteNotKept({ serverUuid }: Connection, error: unknown, isHeld: boolean): void {
    const fields = { server_uuid: serverUuid, reason: messageOf(error), tried_again: isHeld };
    this.#deps.log.warn(fields, 'server: its sysinfo was not kept');
  }

  #closed(connection: Connection, session: Session | undefined): void {
    this.#connections.delete(connection);
    if (session === undefined) return;
    if (this.#isStopping) this.#deps.roster.sessions.end(session);
    else this.#deps.roster.verdicts.lose(session, 'closed');
  }

  #addresses(): Address[] {
    return this.#deps.roster.addresses();
  }

  #otherAddresses(): Address[] {
    return this.#addresses().filter(({ uuid }) => uuid !== this.#deps.cnapiUuid);
  }
}

/** One report that the database refuses would take those with it that are written in the same statement. */
function reasonNotToKeep(frame: AgentFrame): string | undefined {
  if (frame.type === 'sysinfo') return reasonNotStorable(frame.sysinfo);
  return frame.type === 'status' ? reasonNotStorable(frame.status) : undefined;
}
