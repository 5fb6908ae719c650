/**
 * A server of socket.io with the Redis adapter: it notifies the other servers when one of its
 * clients is gone.
 */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createAdapter } from '@socket.io/redis-adapter';
import { Redis } from 'ioredis';
import { Server } from 'socket.io';
import { answerQuestions } from '../../bench/asked.ts';
import { machineMs } from '../../bench/machine-clock.ts';

/** Like ours: one heartbeat per second, and at most two seconds without a sign of life. */
const TIMES = { pingInterval: 1_000, pingTimeout: 1_000 };

const goneAt: Record<string, number> = {};

answerQuestions({
  async listen({ redisUrl }: { redisUrl: string }): Promise<{ url: string }> {
    const http = createServer();
    const adapter = createAdapter(new Redis(redisUrl), new Redis(redisUrl));
    const server = new Server(http, { ...TIMES, transports: ['websocket'], adapter });
    server.on('connection', (socket) => {
      socket.once('disconnect', () => server.serverSideEmit('gone', socket.handshake.auth.id));
    });
    server.on('gone', (id: string) => {
      goneAt[id] ??= machineMs();
    });
    await new Promise<void>((resolve) => http.listen({ port: 0, host: '127.0.0.1', backlog: 4096 }, resolve));
    return { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` };
  },
  gone: (): Record<string, number> => goneAt,
});
