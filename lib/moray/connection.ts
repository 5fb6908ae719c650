/** What the connections of a pool are set to, and their sockets. Used by `pool.ts` only. */
import { Socket } from 'node:net';
import pg from 'pg';
import { parseInt8 } from './database.ts';
import type { Limits } from './limited-query.ts';

export const lockTimeoutMs = 2_000;

export const idleInTransactionMs = 3_000;

/** Idle connections, vanished peers, exact types: this side's. */
export const socketSettings = {
  idleTimeoutMillis: 30_000,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  types: exactTypes(),
} satisfies pg.PoolConfig;

/** What the server's session is set to when it starts; a pooler refuses these. */
export function sessionSettings({ statementTimeoutMs, lockTimeoutMs, idleInTransactionMs }: Limits) {
  return {
    statement_timeout: statementTimeoutMs,
    lock_timeout: lockTimeoutMs,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    // UTC in texts; and the server's side of the keepalive, so that it lets go of a vanished client's locks, too.
    options: '-c timezone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3',
  } satisfies pg.ClientConfig;
}

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
