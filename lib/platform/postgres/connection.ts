/** Settings of a pool's connections, and their sockets. Used by `pool.ts` only. */
import { Socket } from 'node:net';
import pg from 'pg';
import { parseInt8 } from './database.ts';
import type { StatementLimits } from './limited-query.ts';

export const LOCK_TIMEOUT_MS = 2_000;

export const IDLE_IN_TRANSACTION_MS = 3_000;

/** Settings of this side: idle connections, keepalives for vanished peers, exact types. */
export const socketSettings = {
  idleTimeoutMillis: 30_000,
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  types: exactTypes(),
} satisfies pg.PoolConfig;

/**
 * Settings of the server's session, sent when it starts; a pooler refuses them.
 *
 * A client that stops or is cut off while it reads an answer would hold the statement's locks for
 * ever: keepalives do not run while data is unsent, and `statement_timeout` does not end a write to
 * a socket. `tcp_user_timeout` does, after `answerMs`.
 */
export function sessionSettings(
  { statementTimeoutMs, lockTimeoutMs, idleInTransactionMs }: StatementLimits,
  { answerMs }: { answerMs: number },
) {
  return {
    statement_timeout: statementTimeoutMs,
    lock_timeout: lockTimeoutMs,
    idle_in_transaction_session_timeout: idleInTransactionMs,
    // Texts in UTC. The server's own keepalives make it release the locks of a client that
    // vanished.
    options:
      '-c timezone=UTC -c tcp_keepalives_idle=10 -c tcp_keepalives_interval=3 -c tcp_keepalives_count=3 ' +
      `-c tcp_user_timeout=${Math.ceil(answerMs)}`,
  } satisfies pg.ClientConfig;
}

/** The sockets of a pool, which let `stop` end those whose server no longer answers. */
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

  /** Resolves when all sockets that are open now have closed. */
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
