/** The observer on a simulated clock, over a database that counts the statements it is sent. */
import t from 'tap';
import { HeartbeatMonitor } from '../../../lib/control/legacy/heartbeat-monitor.ts';
import { DatabaseBusyError, DatabaseUnavailableError } from '../../../lib/platform/errors.ts';
import { silentLogger } from '../../../lib/platform/log.ts';
import type { Queryable, Values } from '../../../lib/platform/postgres/database.ts';
import { HealthyTimer } from '../../../lib/platform/time/healthy-timer.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const TIMES = { legacyHeartbeatLifetimeMs: 11_000, legacyHeartbeatRecordMs: 4000, legacyGraceMs: 1000 };

interface Row {
  heartbeats: number;
  isRunning: boolean;
}

/**
 * The two functions and the read, as far as an observer can tell. Servers are those that `exist`.
 */
class FakeTables {
  readonly exist = new Set<string>();
  readonly rows = new Map<string, Row>();
  statements: string[] = [];
  /** Up to which record they were removed, each time. */
  readonly folds: number[] = [];
  /** The newest record. */
  newest = 0;
  isAway = false;
  /** Servers whose rows another transaction has locked. */
  readonly locked = new Set<string>();
  beforeJudge = () => {};
  /** Resolves when there is a connection. */
  connected = async () => {};
  /** How old the recorded heartbeats were. */
  readonly agesMs: number[] = [];

  readonly database: Queryable = {
    query: async <Result>(text: string, given: Values = []) => {
      if (this.isAway) throw new DatabaseUnavailableError();
      await this.connected();
      const values = typeof given === 'function' ? given() : given;
      const rows = this.#answer(text, values) as Result[];
      return { rows, rowCount: rows.length };
    },
  };

  /** Another instance received a heartbeat. */
  seenElsewhere(serverUuid: string): void {
    this.#see(serverUuid);
  }
  count(kind: string): number {
    return this.statements.filter((one) => one === kind).length;
  }

  #answer(text: string, values: readonly unknown[]): object[] {
    if (text.includes('cnapi_record_heartbeats')) {
      this.statements.push('record');
      this.agesMs.push(...(values[2] as number[]));
      if ((values[1] as string[]).some((one) => this.locked.has(one))) throw new DatabaseBusyError('locked');
      return (values[1] as string[]).filter((one) => this.exist.has(one)).map((one) => this.#see(one));
    }
    if (text.includes('cnapi_record_legacy_silences')) {
      this.statements.push('silence');
      this.beforeJudge();
      const counts = values[3] as number[];
      return (values[1] as string[])
        .filter((one, n) => this.#isSilent(one, counts[n]))
        .map((server_uuid) => ({ server_uuid }));
    }
    if (text.includes('cnapi_fold_legacy_heartbeats')) {
      this.folds.push(values[0] as number);
      return [{ newest: this.newest }];
    }
    this.statements.push('read');
    return [...this.rows]
      .filter(([, { isRunning }]) => isRunning)
      .map(([serverUuid, { heartbeats }]) => ({ serverUuid, epoch: 1, lastRecord: heartbeats }));
  }

  #see(of_server: string) {
    const row = this.rows.get(of_server) ?? { heartbeats: 0, isRunning: false };
    const came_back = !row.isRunning;
    this.rows.set(of_server, { heartbeats: row.heartbeats + 1, isRunning: true });
    return { of_server, row_epoch: 1, record: row.heartbeats + 1, came_back };
  }

  #isSilent(serverUuid: string, heartbeats: number | undefined): boolean {
    const row = this.rows.get(serverUuid);
    if (row === undefined || row.heartbeats !== heartbeats) return false;
    row.isRunning = false;
    return true;
  }
}

function newRig(t: { teardown(work: () => unknown): void }, servers: string[] = []) {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const tables = new FakeTables();
  for (const server of servers) tables.exist.add(server);
  const fitness = { mayJudge: true };
  const observer = new HeartbeatMonitor({
    database: tables.database,
    cnapiUuid: 'me',
    times: TIMES,
    healthyTimer,
    mayMarkOthersUnknown: () => fitness.mayJudge,
    clock,
    log: silentLogger,
  });
  t.teardown(async () => {
    healthyTimer.stop();
    await Promise.all([observer.stop(), clock.advance(5000)]);
  });
  healthyTimer.start();
  observer.start();
  const isRunning = (server: string) => tables.rows.get(server)?.isRunning;
  return { clock, tables, observer, fitness, isRunning };
}

t.test('a first heartbeat is recorded at once, later ones of all servers once per period', async (t) => {
  const servers = Array.from({ length: 300 }, (_, n) => `server-${n}`);
  const { clock, tables, observer } = newRig(t, servers);
  await clock.advance(500);
  observer.heartbeat('server-0');
  await clock.advance(0);
  t.equal(tables.rows.get('server-0')?.heartbeats, 1);
  for (const server of servers) observer.heartbeat(server);
  await clock.advance(4000);
  tables.statements = [];
  for (let second = 0; second < 20; second += 1) {
    for (const server of servers) observer.heartbeat(server);
    await clock.advance(1000);
  }
  t.same(tables.statements.toSorted(), [...Array(5).fill('read'), ...Array(5).fill('record')].toSorted(), 'in 20 s');
  t.equal(observer.heartbeating, 300);
  t.equal(observer.stats.returned, 300);
});

t.test('records are removed once they are older than a silence', async (t) => {
  const { clock, tables } = newRig(t);
  for (const newest of [7, 12, 30]) {
    tables.newest = newest;
    await clock.advance(16_000);
  }
  t.same(tables.folds, [0, 7, 12]);
});

t.test(
  'a server is unknown after 16 s of silence in healthy ticks, and running again at its next heartbeat',
  async (t) => {
    const { clock, observer, isRunning } = newRig(t, ['s']);
    observer.heartbeat('s');
    await clock.advance(15_750);
    t.equal(isRunning('s'), true);
    await clock.advance(500);
    t.equal(isRunning('s'), false);
    t.match(observer.stats, { silent: 1, heardElsewhere: 0 });
    observer.heartbeat('s');
    await clock.advance(250);
    t.equal(isRunning('s'), true);
  },
);

t.test('a locked row delays no other server, and is recorded when it is free', async (t) => {
  const servers = Array.from({ length: 100 }, (_, n) => `server-${n}`);
  const { clock, tables, observer, isRunning } = newRig(t, servers);
  tables.locked.add('server-7');
  for (const server of servers) observer.heartbeat(server);
  await clock.advance(500);
  t.same(
    servers.filter((server) => !isRunning(server)),
    ['server-7'],
  );
  tables.locked.clear();
  await clock.advance(5_000);
  t.equal(isRunning('server-7'), true);
});

t.test('a heartbeat that waited for a connection is recorded as old as it is', async (t) => {
  const { clock, tables, observer } = newRig(t, ['s', 'made']);
  await clock.advance(1_000);
  tables.connected = () => clock.sleep(3_000);
  observer.heartbeat('s');
  const created = observer.created('made');
  await clock.advance(5_000);
  await created;
  t.ok(tables.agesMs.length >= 2, 'both');
  for (const ageMs of tables.agesMs) t.ok(ageMs >= 3_000 && ageMs <= 3_250, `${ageMs} ms`);
});

t.test('a server that another instance hears is not set unknown, even if that was due', async (t) => {
  const { clock, tables, observer, isRunning } = newRig(t, ['s']);
  observer.heartbeat('s');
  for (let posts = 0; posts < 10; posts += 1) {
    await clock.advance(5000);
    tables.seenElsewhere('s');
  }
  t.equal(tables.count('silence'), 0);
  await clock.advance(4000);
  tables.beforeJudge = () => tables.seenElsewhere('s');
  await clock.advance(16_250);
  t.same([isRunning('s'), tables.count('silence')], [true, 1], 'seen since the last read');
  t.match(observer.stats, { silent: 0, heardElsewhere: 1 });
  tables.beforeJudge = () => {};
  await clock.advance(24_000);
  t.equal(isRunning('s'), false);
});

t.test('an observer that may not decide yet, or was stopped, changes no status', async (t) => {
  const { clock, tables, observer, fitness, isRunning } = newRig(t, ['s']);
  fitness.mayJudge = false;
  observer.heartbeat('s');
  await clock.advance(60_000);
  t.equal(isRunning('s'), true);
  fitness.mayJudge = true;
  tables.seenElsewhere('s');
  await clock.advance(4250);
  for (let stalls = 0; stalls < 10; stalls += 1) await clock.stall(20_000);
  t.equal(isRunning('s'), true);
  t.equal(tables.count('silence'), 0);
});

t.test('a post that waited while this process was stopped proves nothing', async (t) => {
  const { clock, tables, observer } = newRig(t, ['s']);
  await clock.advance(1000);
  await clock.stall(60_000);
  observer.heartbeat('s');
  await clock.advance(5000);
  t.equal(tables.rows.get('s'), undefined);
  observer.heartbeat('s');
  await clock.advance(250);
  t.equal(tables.rows.get('s')?.isRunning, true);
});

t.test('during a database outage no status changes, heartbeats are kept, and silences restart', async (t) => {
  const { clock, tables, observer, isRunning } = newRig(t, ['s', 'late']);
  observer.heartbeat('s');
  await clock.advance(12_000);
  tables.isAway = true;
  observer.heartbeat('late');
  await clock.advance(12_000);
  tables.isAway = false;
  await clock.advance(1250);
  t.equal(isRunning('late'), undefined, 'it posted more than 11 s ago');
  t.equal(isRunning('s'), true);
  await clock.advance(13_000);
  t.equal(isRunning('s'), true);
  await clock.advance(5000);
  t.equal(isRunning('s'), false);
  t.ok(observer.stats.failedWrites > 0);
  tables.isAway = true;
  observer.heartbeat('late');
  await clock.advance(3000);
  tables.isAway = false;
  await clock.advance(1250);
  t.equal(isRunning('late'), true);
});

t.test(
  'thousands of random uuids per second cost a bounded table and few statements, and create no server',
  async (t) => {
    const { clock, tables, observer, isRunning } = newRig(t, ['s']);
    observer.heartbeat('s');
    await clock.advance(250);
    tables.statements = [];
    for (let step = 0, n = 0; step < 1000; step += 1) {
      for (let posts = 0; posts < 400; posts += 1) observer.heartbeat(`unknown-${n++}`);
      if (step % 250 === 0) observer.heartbeat('s');
      await clock.advance(20);
    }
    t.ok(tables.count('record') <= 200, `${tables.count('record')} statements in 20 s`);
    t.same([...tables.rows.keys()], ['s']);
    t.equal(isRunning('s'), true);
    t.ok(observer.stats.dropped > 100_000);
    t.equal(observer.heartbeating < 1100, true);
  },
);

t.test(
  'a server created by its agent is running when the request is answered; a stop records the last posts',
  async (t) => {
    const { clock, tables, observer, isRunning } = newRig(t, ['made', 's']);
    await observer.created('made');
    t.equal(isRunning('made'), true);
    observer.heartbeat('s');
    await clock.advance(500);
    observer.heartbeat('s');
    const stopped = observer.stop();
    await clock.advance(5000);
    await stopped;
    await observer.stop();
    t.equal(tables.rows.get('s')?.heartbeats, 2);
    await clock.advance(60_000);
    t.equal(isRunning('s'), true, 'a stopped observer changes no status');
  },
);

t.test('a locked row does not lose the last heartbeats of other servers', async (t) => {
  const servers = Array.from({ length: 10 }, (_, n) => `server-${n}`);
  const { clock, tables, observer } = newRig(t, servers);
  for (const server of servers) observer.heartbeat(server);
  await clock.advance(500);
  for (const server of servers) observer.heartbeat(server);
  tables.locked.add('server-7');
  const stopped = observer.stop();
  await clock.advance(5000);
  await stopped;
  t.same(
    servers.filter((server) => tables.rows.get(server)?.heartbeats !== 2),
    ['server-7'],
  );
});
