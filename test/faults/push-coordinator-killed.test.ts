/**
 * The instance that carries out a push job is killed while agents vote, while commands run, and
 * while they are aborted: another one continues, each command runs once, and no server is kept.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import t from 'tap';
import type { PushJob, PushNode } from '../../lib/protocol/api/push/job-schemas.ts';
import { ENDS } from '../control/push/jobs.ts';
import { type Instance, startZone, type Zone } from '../support/fleet-harness.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { until } from '../support/until.ts';

const AGENTS = 3;
const timeout = FILE_TIMEOUT_MS;
t.setTimeout(timeout);

t.test('a push job goes on when its coordinator is killed', { skip: noRedisServer, timeout }, async (t) => {
  const zone = await startZone(t, { agents: AGENTS, simulated: 0 });
  const jobs = new Jobs(zone);
  const [slow] = zone.agents;
  if (slow === undefined) throw new Error('there are no agents');

  await t.test('while agents vote: the last vote starts it', async (t) => {
    slow.program.freeze();
    const { id } = await jobs.create(`echo once >> ${jobs.effects('voting')}`);
    await jobs.until(id, ({ counts }) => counts.ready === AGENTS - 1);
    const dead = await jobs.killCoordinator(id);
    slow.program.thaw();
    t.match(await jobs.end(id), { status: 'complete', counts: { succeeded: AGENTS } });
    t.equal(jobs.linesOf('voting'), AGENTS, 'each command ran once');
    await jobs.restart(dead);
  });

  await t.test('while commands run: they end, and are not started again', async (t) => {
    const { id } = await jobs.create(`echo once >> ${jobs.effects('running')}; sleep 3; exit 4`);
    await jobs.until(id, ({ counts }) => counts.running === AGENTS);
    const dead = await jobs.killCoordinator(id);
    t.match(await jobs.end(id), { status: 'complete', counts: { failed: AGENTS } });
    const nodes = await jobs.nodes(id);
    t.strictSame(
      nodes.map(({ exit_code: code }) => code),
      [4, 4, 4],
      'with what their commands returned',
    );
    t.equal(jobs.linesOf('running'), AGENTS, 'each command ran once');
    await jobs.restart(dead);
  });

  await t.test('while commands are aborted: all of them end', async (t) => {
    const { id } = await jobs.create(`while sleep 0.1; do echo still >> ${jobs.effects('aborting')}; done`);
    await jobs.until(id, ({ counts }) => counts.running === AGENTS);
    slow.program.freeze();
    await jobs.abort(id);
    await jobs.until(id, ({ status, counts }) => status === 'aborting' && counts.aborted === AGENTS - 1);
    const dead = await jobs.killCoordinator(id);
    slow.program.thaw();
    const { status, counts } = await jobs.end(id);
    t.equal(status, 'aborted');
    // An agent that is frozen for long counts as down.
    t.equal((counts.aborted ?? 0) + (counts.crashed ?? 0), AGENTS);
    await jobs.untilFree();
    const lines = jobs.linesOf('aborting');
    await jobs.restart(dead);
    t.equal(jobs.linesOf('aborting'), lines, 'none runs any more');
  });

  await jobs.untilFree();
  const { id } = await jobs.create('true');
  t.match(await jobs.end(id), { status: 'complete', counts: { succeeded: AGENTS } }, 'all of them take the next job');
});

/** Push jobs of all servers of a zone, asked for at any instance that is up. */
class Jobs {
  readonly #zone: Zone;

  constructor(zone: Zone) {
    this.#zone = zone;
  }

  create(command: string): Promise<PushJob> {
    const servers = this.#zone.agents.map(({ serverUuid }) => serverUuid);
    return this.#ask('POST', '/push-jobs', { command, servers });
  }

  async abort(id: string): Promise<void> {
    await this.#ask('PUT', `/push-jobs/${id}/abort`);
  }

  nodes(id: string): Promise<PushNode[]> {
    return this.#ask('GET', `/push-jobs/${id}/nodes`);
  }

  until(id: string, isSo: (job: PushJob) => boolean): Promise<PushJob> {
    return until(async () => {
      const job = await this.#ask<PushJob>('GET', `/push-jobs/${id}`);
      return isSo(job) ? job : undefined;
    }, `push job ${id} to get so far`);
  }

  end(id: string): Promise<PushJob> {
    return this.until(id, ({ status }) => ENDS.includes(status));
  }

  /** Resolves when no server is in a job or in rehab. */
  async untilFree(): Promise<void> {
    const isFree = async () => (await this.#zone.sql('select 1 from cnapi_push_busy')).length === 0;
    await until(isFree, 'all servers to be free');
  }

  async killCoordinator(id: string): Promise<Instance> {
    const [row] = await this.#zone.sql<{ uuid: string }>(
      'select i.cnapi_uuid as uuid from cnapi_duties d join cnapi_instances i on i.run = d.run where d.id = $1',
      [id],
    );
    const coordinator = this.#zone.instances.find(({ uuid }) => uuid === row?.uuid);
    if (coordinator === undefined) throw new Error(`no instance carries out ${id}`);
    await coordinator.program.kill();
    return coordinator;
  }

  async restart(instance: Instance): Promise<void> {
    instance.program.start();
    await this.#zone.ready(instance);
  }

  /** A file in which commands leave traces. */
  effects(name: string): string {
    const file = path.join(this.#zone.directory, `effects-${name}`);
    writeFileSync(file, '');
    return file;
  }

  linesOf(name: string): number {
    return readFileSync(path.join(this.#zone.directory, `effects-${name}`), 'utf8').split('\n').length - 1;
  }

  async #ask<Body>(method: string, path: string, body?: object): Promise<Body> {
    const up = this.#zone.instances.find(({ program }) => program.isAlive);
    const headers = { 'content-type': 'application/json' };
    const response = await fetch(`${up?.url}${path}`, {
      method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return (await response.json()) as Body;
  }
}
