/**
 * A primary hangs and its asynchronous standby, which is behind, is promoted. What the former
 * primary accepted after the last replicated change is lost. This test shows what exactly is lost
 * and how cnapi deals with it, as docs/failover.md describes.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import { lacks } from '../support/debian-programs.ts';
import { startZone, type Zone } from '../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS, HANG_MS } from '../support/patience.ts';
import { startPostgresPair } from '../support/postgres-pair.ts';
import { until } from '../support/until.ts';
import { firstAcceptedAt } from './stage.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const options = { skip: lacks('postgres', 'pg_basebackup', 'redis-server'), timeout: FILE_TIMEOUT_MS };

t.test('promoting an asynchronous standby that is behind loses only what it had not received', options, async (t) => {
  const pair = await startPostgresPair(t);
  const zone = await startZone(t, { databaseUrl: pair.url, instances: 2, agents: 2, simulated: 0 });
  const stage = new Stage(zone);
  const [worker, mover] = zone.agents;
  if (worker === undefined || mover === undefined) throw new Error('there are two agents');

  const before = await stage.command(worker.serverUuid, 'before');
  await stage.ended(before.id);
  const across = await stage.command(worker.serverUuid, 'across', stage.untilToldTo('end'));
  await until(() => stage.lines('across') === 1, 'the command to start');
  await until(
    async () => (await stage.task(across.id)).body.history?.some(({ name }) => name === 'started'),
    'the start to be recorded',
  );
  const ghost = await stage.ticket();
  t.equal((await stage.ask('GET', `/tickets/${ghost}/wait?timeout=30`)).status, 204);
  // Claimed, but its agent does not accept it before replication stops.
  mover.program.freeze();
  const unaccepted = await stage.command(mover.serverUuid, 'unaccepted');
  await until(async () => (await stage.stateOf(unaccepted.id)) === 'claimed', 'the task to be claimed');
  await pair.untilReplayed();
  await pair.parts();
  mover.program.thaw();

  t.match(await stage.ended(unaccepted.id), { status: 'complete' });
  stage.tellTo('end');
  t.match(await stage.ended(across.id), { status: 'complete', attempt: 1 });
  const lost = await stage.command(worker.serverUuid, 'lost');
  t.match(await stage.ended(lost.id), { status: 'complete' });
  const running = await stage.command(worker.serverUuid, 'running', 'sleep 6');
  await until(() => stage.lines('running') === 1, 'the command to start');
  t.equal((await stage.ask('PUT', `/tickets/${ghost}/release`)).status, 204);
  const held = await stage.ticket();
  t.equal((await stage.ask('GET', `/tickets/${held}/wait?timeout=30`)).status, 204, 'the next ticket holds the lock');
  await mover.program.kill();
  mover.program.start();
  const [formerEpoch, standbyEpoch] = await until(async () => {
    const epochs = [
      await epochOf(pair.onPrimary.bind(pair), mover),
      await epochOf(pair.onStandby.bind(pair), mover),
    ] as const;
    return epochs[0] > epochs[1] && epochs;
  }, 'its epoch to rise without the standby knowing');
  const waiting = stage.ask('GET', `/tasks/${running.id}/wait?timeout=60`);

  const hungAt = performance.now();
  pair.hang(pair.primary);
  const accepting = firstAcceptedAt(zone);
  await pair.promote();
  const promotedMs = performance.now() - hungAt;
  const acceptedMs = (await accepting) - hungAt;
  t.comment(`after it hung: promoted in ${promotedMs.toFixed()} ms, a task accepted in ${acceptedMs.toFixed()} ms`);

  t.match(await stage.task(before.id), { status: 200, body: { status: 'complete' } }, 'what was replicated is kept');
  t.equal(
    errorOf(await stage.ended(across.id)),
    'OutcomeUnknown',
    'a task that ended after replication stopped ends as unknown',
  );
  t.comment(`a task whose end was lost ended ${Math.round(performance.now() - hungAt)} ms after that`);
  t.equal(stage.lines('across'), 1, 'it did not run again');

  t.equal(
    errorOf(await stage.ended(unaccepted.id)),
    'TaskAlreadyEnded',
    'so does a task that was accepted after replication stopped',
  );
  t.equal(stage.lines('unaccepted'), 1);

  t.equal((await stage.task(lost.id)).status, 404, 'a task created after replication stopped is unknown');
  const again = await stage.command(worker.serverUuid, 'lost', '', lost.key);
  t.not(again.id, lost.id, 'the same key creates a new task');
  await stage.ended(again.id);
  t.equal(stage.lines('lost'), 2, 'which runs again');
  t.equal((await stage.task(running.id)).status, 404);
  t.equal((await waiting).status, 404, 'its waiter gets 404');

  const healed = await until(async () => {
    const epoch = await epochOf(pair.onStandby.bind(pair), mover);
    return epoch > formerEpoch && epoch;
  }, 'the epoch to be above all former ones');
  t.comment(`epochs: ${formerEpoch} at the former primary, ${standbyEpoch} at the standby, ${healed} in the end`);
  await zone.untilRunning(2);

  t.equal(
    (await stage.ask('POST', `/tickets/${held}/renew`, { expires_in: 60 })).status,
    404,
    'the holder of the lost ticket gets 404',
  );
  const third = await stage.ticket();
  t.equal(
    (await stage.ask('GET', `/tickets/${third}/wait?timeout=1`)).status,
    408,
    'the former holder has the lock again',
  );
  t.equal((await stage.ask('PUT', `/tickets/${ghost}/release`)).status, 204);
  t.equal((await stage.ask('GET', `/tickets/${third}/wait?timeout=30`)).status, 204);

  await stage.ended((await stage.command(worker.serverUuid, 'after')).id);
  await stage.ended((await stage.command(mover.serverUuid, 'after')).id);
  t.equal(stage.lines('after'), 2, 'new tasks run');

  pair.goOn(pair.primary);
  const left = `select count(*)::int as count from pg_stat_activity where application_name like 'cnapi%'`;
  await until(
    async () => (await pair.onPrimary<{ count: number }>(left))[0]?.count === 0,
    'no connection to be left at the former primary',
  );
});

interface Task {
  id: string;
  status: string;
  attempt: number;
  history?: { name: string; event: { error?: { code: string } } }[];
}

class Stage {
  readonly #zone: Zone;
  readonly #effects: string;

  constructor(zone: Zone) {
    this.#zone = zone;
    this.#effects = path.join(zone.directory, 'effects');
    writeFileSync(this.#effects, '');
  }

  /** Asks the instances in turn until one does not answer 503. */
  async ask<Body>(method: string, url: string, body?: object, key?: string): Promise<{ status: number; body: Body }> {
    for (let tries = 0; ; tries++) {
      const instance = this.#zone.instances[tries % this.#zone.instances.length];
      const headers = { 'content-type': 'application/json', ...(key === undefined ? {} : { 'idempotency-key': key }) };
      const sent = body === undefined ? {} : { body: JSON.stringify(body) };
      const signal = AbortSignal.timeout(2 * HANG_MS);
      const answer = await fetch(`${instance?.url}${url}`, { method, headers, signal, ...sent });
      const text = await answer.text();
      if (answer.status !== 503) return { status: answer.status, body: (text === '' ? {} : JSON.parse(text)) as Body };
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** A command that appends this line to a file and then runs `then`. */
  async command(serverUuid: string, line: string, then = '', key: string = randomUUID()) {
    const script = `#!/bin/sh\necho ${line} >> ${this.#effects}\n${then}\n`;
    const order = { task: 'command_execute', params: { script } };
    const { status, body } = await this.ask<Task>('POST', `/servers/${serverUuid}/tasks`, order, key);
    if (status !== 202) throw new Error(`${line}: ${status} ${JSON.stringify(body)}`);
    return { id: body.id, key };
  }

  untilToldTo(word: string): string {
    return `while [ ! -e ${this.#effects}-${word} ]; do sleep 0.1; done`;
  }

  tellTo(word: string): void {
    writeFileSync(`${this.#effects}-${word}`, '');
  }

  task(id: string): Promise<{ status: number; body: Task }> {
    return this.ask<Task>('GET', `/tasks/${id}`);
  }

  async stateOf(id: string): Promise<string | undefined> {
    const [row] = await this.#zone.sql<{ state: string }>('select state from cnapi_tasks where id = $1', [id]);
    return row?.state;
  }

  async ended(id: string): Promise<Task> {
    const { body } = await this.ask<Task>('GET', `/tasks/${id}/wait?timeout=60`);
    return body;
  }

  async ticket(): Promise<string | undefined> {
    const order = { scope: 'test', id: 'lock', expires_in: 600 };
    return (await this.ask<{ uuid?: string }>('POST', '/servers/default/tickets', order)).body.uuid;
  }

  lines(line: string): number {
    return readFileSync(this.#effects, 'utf8')
      .split('\n')
      .filter((each) => each === line).length;
  }
}

function errorOf({ history = [] }: Task): unknown {
  return history.find(({ name }) => name === 'error')?.event.error?.code;
}

async function epochOf(
  ask: <Row extends object>(text: string) => Promise<Row[]>,
  { serverUuid }: { serverUuid: string },
): Promise<number> {
  const rows = await ask<{ epoch: string }>(
    `select epoch from cnapi_roster_authority where server_uuid = '${serverUuid}'`,
  );
  return Number(rows[0]?.epoch);
}
