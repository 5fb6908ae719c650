/** What every connection of a pool is set to, and its sockets. Used by `pool.ts` only. */
import { Socket } from 'node:net';
import pg from 'pg';
import { parseInt8 } from './database.ts';

export const lockTimeoutMs = 2_000;

/** Limits that are the same for all: given up locks, idle transactions, idle connections, vanished peers. */
export const connectionSettings: pg.PoolConfig = {
  idle_in_transaction_session_timeout: 3_000,
  idleTimeoutMillis: 30_000,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  // UTC in texts; and the server's side of the keepalive, so that it lets go of a vanished client's locks, too.
  options: '-c timezone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3',
  types: exactTypes(),
};

/** The sockets of a pool, so that stopping can end those whose server no longer answers. */
export class Sockets {
  readonly #open = new Set<Socket>();

  create(): Socket {
    const socket = new Socket();
    this.#open.add(socket);
    socket.once('close', () => this.#open.delete(socket));
    return socket;
  }

  destroy(): void {
    for (const socket of this.#open) socket.destroy();
  }

  /** Resolves when those that are open now have closed. */
  async closed(): Promise<void> {
    await Promise.all([...this.#open].map((socket) => new Promise((resolve) => socket.once('close', resolve))));
  }
}

function exactTypes(): pg.CustomTypesConfig {
  const int8 = 20;
  const int8Array = 1016;
  const types = new pg.TypeOverrides();
  types.setTypeParser(int8, parseInt8);
  types.setTypeParser(int8Array, (text) => {
    const items = text.slice(1, -1).split(',');
    return text === '{}' ? [] : items.map((item) => (item === 'NULL' ? null : parseInt8(item)));
  });
  return types;
}
