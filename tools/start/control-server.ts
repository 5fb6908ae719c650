/**
 * The supervisor's side of the control socket: accepts one operation per connection, has it carried
 * out, and reports its progress. An operation continues after its client has disconnected. Started
 * and stopped by `npm start`. Limits: simultaneous connections, bytes of an operation, and the time
 * it may take to arrive; a connection that exceeds them is closed.
 */
import { rmSync } from 'node:fs';
import { createServer, type Server, type Socket } from 'node:net';
import { messageOf } from '../../lib/platform/errors.ts';
import type { Clock } from '../../lib/platform/time/clock.ts';
import { type ControlReply, encode, maxOperationBytes, type Operation, parseOperation } from './control.ts';

export interface ControlServerDeps {
  file: string;
  /** Resolves to a description of the resulting state. */
  operate: (operation: Operation, report: (text: string) => void) => Promise<string>;
  clock: Clock;
}

const maxConnections = 8;
const askWithinMs = 5_000;

export class ControlServer {
  readonly #deps: ControlServerDeps;
  readonly #connections = new Set<Socket>();
  #server: Server | undefined;

  constructor(deps: ControlServerDeps) {
    this.#deps = deps;
  }

  /**
   * @throws system errors when the socket file cannot be created: its path is too long, or the file
   * system has no sockets
   */
  async start(): Promise<void> {
    const { file } = this.#deps;
    // The data directory is locked by this process, so an existing file was left by a process that
    // was killed.
    rmSync(file, { force: true });
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#take(socket));
    server.maxConnections = maxConnections;
    await new Promise<void>((resolve, reject) => {
      server.on('error', reject);
      const mask = process.umask(0o177);
      // listen() creates the file before it returns, with these permissions.
      server.listen(file, resolve);
      process.umask(mask);
    });
    this.#server = server;
  }

  /** Also removes the file. */
  async stop(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    for (const socket of this.#connections) socket.destroy();
    if (server !== undefined) await new Promise((resolve) => server.close(resolve));
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #take(socket: Socket): void {
    const patience = this.#deps.clock.after(askWithinMs, () => socket.destroy());
    let asked = Buffer.alloc(0);
    this.#connections.add(socket);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => {
      patience.cancel();
      this.#connections.delete(socket);
    });
    socket.on('data', (chunk) => {
      asked = Buffer.concat([asked, chunk]);
      const end = asked.indexOf('\n');
      if (end < 0 && asked.length <= maxOperationBytes) return;
      patience.cancel();
      socket.removeAllListeners('data').resume();
      void this.#carryOut(socket, asked.subarray(0, Math.max(end, 0)).toString('utf8'));
    });
  }

  async #carryOut(socket: Socket, line: string): Promise<void> {
    const send = (reply: ControlReply) => void (socket.writable && socket.write(encode(reply)));
    try {
      const operation = parseOperation(line);
      if (operation === undefined) throw new Error('that is not an operation of this version; is it another checkout?');
      send({ done: await this.#deps.operate(operation, (progress) => send({ progress })) });
    } catch (error) {
      send({ refused: messageOf(error) });
    }
    socket.end();
  }
}
