/**
 * Redlock on Redis, and Postgres's advisory locks. All contenders run in this process; for advisory
 * locks each has its own connection.
 */
import { Redis } from 'ioredis';
import pg from 'pg';
import Redlock from 'redlock';
import { answerQuestions } from '../../bench/asked.ts';
import { contend, handOver, type Lock, type LockPlan } from '../contention.ts';

const KEY = 42;
const TTL_MS = 30_000;

let lock: Lock | undefined;

answerQuestions({
  redlock({ redisUrl = '', databaseUrl, retry }: LockPlan) {
    // The default gives up after ten attempts; here every contender gets the lock eventually.
    const redlock = new Redlock([new Redis(redisUrl)], { ...retry, retryCount: -1 });
    redlock.on('clientError', (error) => console.error(error));
    const resource = new URL(databaseUrl).pathname;
    lock = {
      async acquire() {
        const held = await redlock.lock(resource, TTL_MS);
        return () => held.unlock();
      },
    };
  },
  async advisory({ databaseUrl, contenders }: LockPlan) {
    const clients = Array.from({ length: contenders }, () => new pg.Client({ connectionString: databaseUrl }));
    await Promise.all(clients.map((client) => client.connect()));
    lock = {
      async acquire(contender) {
        const client = clients[contender] as pg.Client;
        await client.query({ name: 'lock', text: 'select pg_advisory_lock($1)', values: [KEY] });
        return () => client.query({ name: 'unlock', text: 'select pg_advisory_unlock($1)', values: [KEY] });
      },
    };
  },
  handOver: (order: { seconds: number }) => handOver(theLock(), order),
  contend: (order: { contenders: number; seconds: number }) => contend(theLock(), order),
});

function theLock(): Lock {
  if (lock === undefined) throw new Error('there is no lock yet');
  return lock;
}
