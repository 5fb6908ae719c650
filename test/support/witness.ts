/**
 * Observes a zone from outside while faults happen, and reports violations. It asks every running
 * instance for every server's status, reads the roster, and at the end the status history. It
 * checks I1 (a living server is never `unknown`) and I2 (epochs only rise) of docs/design.md.
 * A server whose agent a test kills, freezes or cuts off is excused meanwhile.
 *
 * It asserts that a dead server becomes `unknown`, why, and not before its agent was gone. It only
 * reports how long that took, beside the design's bound: on a busy machine the processes that
 * should detect it are suspended as well (patience.ts).
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { Excuses } from './excuses.ts';
import type { Instance, Zone } from './fleet-harness.ts';
import { HANG_MS } from './patience.ts';
import { until } from './until.ts';

interface Change {
  server_uuid: string;
  status: string;
  reason: string;
  since: Date;
  epoch: string;
}

interface RosterRow {
  server_uuid: string;
  epoch: string;
}

const LOOK_MS = 250;

export class Witness {
  /** Violations, as text. */
  readonly violations: string[] = [];
  /** How many requests were answered: a witness that saw nothing proves nothing. */
  answers = 0;
  readonly #zone: Zone;
  readonly #comment: (text: string) => void;
  readonly #excuses = new Excuses();
  readonly #epochs = new Map<string, number>();
  readonly #stopping = new AbortController();
  #expected = new Set<string>();
  readonly #looking: Promise<void>[] = [];

  constructor(zone: Zone, comment: (text: string) => void) {
    this.#zone = zone;
    this.#comment = comment;
  }

  /** Begins the check that every existing server stays, and stays `running`. */
  async start(): Promise<void> {
    this.#expected = new Set(await this.#zone.serverUuids);
    for (const instance of this.#zone.instances) this.watch(instance);
    this.#looking.push(this.#repeat(() => this.#readRoster()));
  }

  /** Also observes an instance that was added later. */
  watch(instance: Instance): void {
    this.#looking.push(this.#repeat(() => this.#ask(instance)));
  }

  /**
   * Makes the server's agent count as dead, whatever its status. Call it before the fault begins,
   * and wait for it.
   */
  async excuse(serverUuid: string): Promise<void> {
    const from = Date.now();
    const epoch = Number((await this.#newest(serverUuid))?.epoch ?? 0);
    this.#excuses.begin(serverUuid, { from, epoch });
  }

  /**
   * Requires that the agent gets a session after the excused one; the server then counts as living
   * again.
   */
  async excuseEnds(serverUuid: string): Promise<void> {
    const lost = this.#excuses.lastEpoch(serverUuid);
    let epoch = 0;
    const isBack = async () => {
      const newest = await this.#newest(serverUuid);
      epoch = Number(newest?.epoch ?? 0);
      return newest?.status === 'running' && epoch > lost;
    };
    await until(isBack, `a new session of ${serverUuid}`, 2 * HANG_MS);
    this.#excuses.end(serverUuid, { at: Date.now(), epoch });
  }

  /**
   * Requires that the dead server becomes `unknown`, not before `sinceMs`; returns the reason.
   * `promisedMs` is the design's bound.
   */
  async seesUnknown(
    serverUuid: string,
    { sinceMs, promisedMs }: { sinceMs: number; promisedMs: number },
  ): Promise<string> {
    const isUnknown = async () => (await this.#newest(serverUuid))?.status === 'unknown';
    await until(isUnknown, `${serverUuid} to be unknown`, promisedMs + HANG_MS);
    const change = await this.#newest(serverUuid);
    const tookMs = (change?.since.getTime() ?? Number.POSITIVE_INFINITY) - sinceMs;
    this.#comment(`${serverUuid} became unknown after ${tookMs} ms, promised within ${promisedMs} ms`);
    if (tookMs < 0) this.#report(`${serverUuid} was unknown ${-tookMs} ms before its agent was gone`);
    return change?.reason ?? '';
  }

  /** Stops observing, reads the history, and returns all violations. */
  async finish(): Promise<string[]> {
    this.#stopping.abort();
    await Promise.all(this.#looking);
    for (const change of await this.#history()) this.#judge(change);
    if (this.answers === 0) this.#report('no instance ever answered');
    return this.violations;
  }

  /** Stops observing without a result, after a failed test. */
  abandon(): void {
    this.#stopping.abort();
  }

  async #repeat(look: () => Promise<void>): Promise<void> {
    const { signal } = this.#stopping;
    while (!signal.aborted) {
      await look();
      await sleep(LOOK_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  /** Only answers count as facts; a failed request proves nothing. */
  async #ask({ url, program }: Instance): Promise<void> {
    if (!program.isRunning) return;
    const askedAt = Date.now();
    let servers: { uuid: string; status: string }[];
    try {
      const response = await fetch(`${url}/servers?extras=status`, { signal: AbortSignal.timeout(5_000) });
      if (response.status !== 200) return void (await response.arrayBuffer());
      servers = (await response.json()) as typeof servers;
    } catch {
      return;
    }
    this.answers += 1;
    const statuses = new Map(servers.map(({ uuid, status }) => [uuid, status]));
    for (const serverUuid of this.#expected) {
      const status = statuses.get(serverUuid);
      if (status === undefined) this.#report(`${program.name} does not list server ${serverUuid}`);
      else if (status !== 'running' && !this.#excuses.coverAnswer(serverUuid, askedAt, Date.now()))
        this.#report(`${program.name} says ${serverUuid} is ${status}, and it lives`);
    }
  }

  async #readRoster(): Promise<void> {
    const rows = await this.#zone
      .sql<RosterRow>('select server_uuid, epoch from cnapi_roster_authority')
      .catch(() => []);
    for (const { server_uuid, epoch } of rows) {
      const before = this.#epochs.get(server_uuid) ?? 0;
      if (Number(epoch) < before) this.#report(`the epoch of ${server_uuid} fell from ${before} to ${epoch}`);
      this.#epochs.set(server_uuid, Number(epoch));
    }
  }

  #judge({ server_uuid, status, reason, since, epoch }: Change): void {
    const before = this.#epochs.get(`history ${server_uuid}`) ?? 0;
    const mayEqual = status === 'unknown';
    if (mayEqual ? Number(epoch) < before : Number(epoch) <= before)
      this.#report(`history: ${server_uuid} became ${status} under epoch ${epoch} after ${before}`);
    this.#epochs.set(`history ${server_uuid}`, Number(epoch));
    if (status === 'unknown' && !this.#excuses.coverChange(server_uuid, { at: since.getTime(), epoch: Number(epoch) }))
      this.#report(`history: ${server_uuid} became unknown (${reason}) at ${since.toISOString()}, and it lived`);
  }

  #history(): Promise<Change[]> {
    return this.#zone.sql<Change>(
      'select server_uuid, status, reason, since, epoch from cnapi_status_history order by id',
    );
  }

  async #newest(serverUuid: string): Promise<Change | undefined> {
    const rows = await this.#zone
      .sql<Change>(
        `select server_uuid, status, reason, since, epoch from cnapi_status_history
         where server_uuid = $1 order by id desc limit 1`,
        [serverUuid],
      )
      .catch(() => []);
    return rows[0];
  }

  #report(violation: string): void {
    if (this.violations.length < 50) this.violations.push(`${new Date().toISOString()} ${violation}`);
  }
}
