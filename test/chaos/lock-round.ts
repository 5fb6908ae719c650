/**
 * One client's use of a lock: a ticket, waits and renewals until its turn, a moment as holder, a
 * release. Some clients vanish instead.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../lib/platform/random.ts';
import type { Caller } from './caller.ts';
import { between } from './chance.ts';
import type { Recorder } from './recorder.ts';

export interface LockDeps {
  caller: Caller;
  recorder: Recorder;
  random: Random;
}

/** The same for every ticket and renewal, so that a later one only prolongs. */
const EXPIRES_IN_SECONDS = 8;
const WAIT_SECONDS = 3;
const PATIENCE_MS = 60_000;

export async function lockRound({ caller, recorder, random }: LockDeps, queue: string): Promise<boolean> {
  const expiry = { expires_in: EXPIRES_IN_SECONDS };
  const about = { queue, expiresInMs: EXPIRES_IN_SECONDS * 1000 };
  const body = { scope: 'chaos', id: queue, ...expiry };
  const created = await caller.ask({ op: 'ticket', method: 'POST', path: '/servers/default/tickets', body, about });
  const ticket = created.body.uuid;
  if (created.status !== 202 || ticket === undefined) return false;
  const renew = () =>
    caller.ask({
      op: 'renew',
      method: 'POST',
      path: `/tickets/${ticket}/renew`,
      body: expiry,
      about: { ...about, ticket },
    });
  if (!(await itsTurn({ caller, recorder, random }, ticket, renew))) return false;
  for (let times = random.fraction() < 0.1 ? 4 : 0; times > 0; times--) {
    await sleep(between(100, 600, random));
    await renew();
  }
  await sleep(between(10, 250, random));
  if (random.fraction() < 0.06) return true;
  const path = `/tickets/${ticket}/release`;
  return (await caller.insist({ op: 'release', method: 'PUT', path, about: { ticket } }))?.status === 204;
}

/** False: it expired before. */
async function itsTurn(
  { caller, recorder }: LockDeps,
  ticket: string,
  renew: () => Promise<unknown>,
): Promise<boolean> {
  for (const until = recorder.now() + PATIENCE_MS; recorder.now() < until; ) {
    const { status } = await caller.ask({
      op: 'ticket-wait',
      method: 'GET',
      path: `/tickets/${ticket}/wait?timeout=${WAIT_SECONDS}`,
      about: { ticket, timeoutMs: WAIT_SECONDS * 1000 },
      withinMs: WAIT_SECONDS * 1000 + 10_000,
    });
    if (status === 204) return true;
    if (status === 500 || status === 409 || status === 404) return false;
    if (status === 408) await renew();
    else await sleep(200);
  }
  return false;
}
