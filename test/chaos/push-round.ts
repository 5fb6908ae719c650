/**
 * One push job of all servers: created, sometimes aborted, and followed to its end. Its command
 * writes a line on each real server; simulated ones only sleep.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Random } from '../../lib/platform/random.ts';
import type { Caller } from './caller.ts';
import { between } from './chance.ts';
import type { Recorder } from './recorder.ts';

export interface PushPlan {
  servers: readonly string[];
  caller: Caller;
  recorder: Recorder;
  random: Random;
  /** The file for the lines of commands. */
  effects: string;
}

const PAUSE_MS = 300;
/** A server that is down holds up the end of a job for so long. */
const VOTING_MS = 8_000;
const RUN_MS = 60_000;
const PATIENCE_MS = 150_000;

/** True when the job has ended. */
export async function pushRound({ servers, caller, recorder, random, effects }: PushPlan): Promise<boolean> {
  // The script is one quoted word: a simulated server prints it, and refuses commands that need a
  // shell.
  const line = `read -r up _ < /proc/uptime; echo "push $CHEF_PUSH_JOB_ID $$ $1 $up" >> ${effects}`;
  const command = `sh -c '${line}' sh $PPID\nsleep ${random.fraction() < 0.5 ? 0.1 : 3}`;
  const times = { voting_timeout_ms: VOTING_MS, run_timeout_ms: RUN_MS };
  const body = { command, servers, quorum: '50%', ...times };
  // A second job, because the answer about the first was lost, would take the servers from it.
  const headers = { 'idempotency-key': randomUUID() };
  const created = await caller.insist({ op: 'push', method: 'POST', path: '/push-jobs', body, headers });
  const id = created?.body.id;
  if (id === undefined) return false;
  const about = { job: id };
  if (random.fraction() < 0.25) {
    await sleep(between(0, 1_500, random));
    await caller.insist({ op: 'push-abort', method: 'PUT', path: `/push-jobs/${id}/abort`, about });
  }
  for (const until = recorder.now() + PATIENCE_MS; recorder.now() < until; ) {
    const answer = await caller.ask({ op: 'push-get', method: 'GET', path: `/push-jobs/${id}`, about });
    if (answer.status === 200 && !['voting', 'running', 'aborting'].includes(answer.body.status ?? '')) return true;
    await sleep(PAUSE_MS);
  }
  return false;
}
