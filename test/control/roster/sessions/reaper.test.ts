/**
 * The slow poll: which sessions it closes and which rows it calls ownerless. Changes made after a
 * poll was sent are not held against any session, however slow the answer is.
 */
import t from 'tap';
import { Reaper } from '../../../../lib/control/roster/sessions/reaper.ts';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { SessionLosses } from '../../../../lib/control/roster/sessions/session-losses.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { MAX_RETURN_MS } from '../../../../lib/protocol/limits.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

interface PolledRow {
  server_uuid: string;
  run: string;
  epoch: number;
  is_running: boolean;
}

const GRACE_MS = 5_000;
const RECONNECT_MS = 8_000;

/** A reaper whose polls the test answers. */
function newReaper() {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: 250 });
  const sessions = new SessionTable();
  const writer = { cnapiUuid: 'me', run: 'old' };
  const polls: { answer(rows: PolledRow[]): void; fail(): void }[] = [];
  const judged: unknown[] = [];
  const grace = { isOver: true };
  /**
   * The latest time at which an instance told an agent to return, when the dead runs ended, and how
   * often this was read.
   */
  const deferral = {
    latestReturn: Number.NEGATIVE_INFINITY,
    endedAt: 0,
    reads: 0,
    fails: false,
    beforeAnswer: () => {},
  };
  const logged: Record<string, unknown>[] = [];
  const query = async <Row>(text: string, values?: readonly unknown[]) => {
    if (text.includes('union all'))
      return new Promise<{ rows: Row[]; rowCount: number }>((resolve, reject) => {
        const answer = (rows: PolledRow[]) => resolve({ rows: rows as Row[], rowCount: rows.length });
        polls.push({ answer, fail: () => reject(new DatabaseUnavailableError()) });
      });
    if (text.includes('latest_return_at')) {
      deferral.reads += 1;
      deferral.beforeAnswer();
      if (deferral.fails) throw new DatabaseUnavailableError();
      const [, runs, graceMs, longestMs] = values as [string, string[], number, number];
      const overAt = Math.min(deferral.latestReturn, deferral.endedAt + longestMs) + graceMs;
      const answer = { latest_return_at: new Date(deferral.latestReturn), over_in_ms: overAt - clock.now() };
      const rows = clock.now() > overAt ? [] : runs.map((run) => ({ run, ...answer }));
      return { rows: rows as Row[], rowCount: rows.length };
    }
    judged.push(values?.[0]);
    return { rows: [] as Row[], rowCount: 0 };
  };
  const database: Queryable = { query };
  const sessionLosses = new SessionLosses({ database, sessions, cnapiUuid: 'me', clock, log: silentLogger });
  const reaper = new Reaper({
    database,
    sessions,
    sessionLosses,
    healthyTimer,
    writer: () => ({ ...writer }),
    mayMarkOthersUnknown: () => grace.isOver,
    slowPollMs: () => 5000,
    ownerlessGraceMs: GRACE_MS,
    reconnectMaxMs: RECONNECT_MS,
    clock,
    log: recordingLogger(logged),
  });
  healthyTimer.start();
  reaper.start();
  const nextPoll = () => {
    const poll = polls.shift();
    if (poll === undefined) throw new Error('no poll is on its way');
    return poll;
  };
  const answer = (rows: PolledRow[]) => nextPoll().answer(rows);
  const failPoll = async () => {
    polls.shift()?.fail();
    await clock.advance(1250);
  };
  const poll = async (rows: PolledRow[], times = 1) => {
    for (let each = 0; each < times; each += 1) {
      // While rows only wait for returns, polls are slow.
      if (polls.length > 0) answer(rows);
      await clock.advance(1250);
    }
  };
  return { clock, sessions, writer, reaper, polls, answer, poll, failPoll, judged, grace, deferral, logged };
}

function addSession(sessions: SessionTable, run: string): Session {
  const socket = idleSocket();
  const fields = { serverUuid: 'server', epoch: 1, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
  const added = sessions.add({ ...fields, socket, run, heardAt: 0 });
  return added?.session as Session;
}

const row = (run: string, epoch = 1, server = 'server'): PolledRow => ({
  server_uuid: server,
  run,
  epoch,
  is_running: true,
});

t.test('polls are slow, faster while a row is ownerless, and soon on request, after a pause', async (t) => {
  const { clock, reaper, polls, answer } = newReaper();
  const nextAfter = async (ms: number, name: string) => {
    await clock.advance(0);
    await clock.advance(ms - 50);
    t.equal(polls.length, 0, `${name}: not before ${ms} ms`);
    await clock.advance(100);
    t.equal(polls.length, 1, `${name}: after ${ms} ms`);
  };
  await clock.advance(0);
  answer([]);
  await nextAfter(5000, 'nothing is ownerless');
  answer([row('dead')]);
  await nextAfter(1000, 'a row is ownerless');
  answer([]);
  await nextAfter(5000, 'no row is ownerless any more');
  answer([]);
  await clock.advance(0);
  reaper.trigger();
  await nextAfter(200, 'asked for at once after a poll');
  answer([]);
  await clock.advance(1000);
  reaper.trigger();
  await clock.advance(0);
  t.equal(polls.length, 1, 'asked for later');
});

t.test('a session that followed its instance to a new run during a poll is left alone', async (t) => {
  const { clock, sessions, writer, answer } = newReaper();
  const session = addSession(sessions, 'old');
  writer.run = 'new';
  await clock.advance(0);
  answer([row('old')]);
  await clock.advance(5500);
  sessions.moveToRun(session, 'new');
  answer([]);
  await clock.advance(100);
  t.equal(session.isEnded, false);
});

t.test('a session that does not own its row in a poll sent after its accept is closed', async (t) => {
  const { clock, sessions, answer } = newReaper();
  const session = addSession(sessions, 'old');
  await clock.advance(0);
  answer([row('old')]);
  await clock.advance(5500);
  answer([row('old', 2)]);
  await clock.advance(100);
  t.equal(session.isEnded, true);
});

t.test('ticks during a hanging poll count for nothing', async (t) => {
  const { clock, answer, judged } = newReaper();
  await clock.advance(0);
  answer([row('dead')]);
  await clock.advance(1250);
  await clock.advance(10_000);
  answer([row('dead')]);
  await clock.advance(100);
  t.same(judged, [], 'it was seen ownerless for only a second');
  for (let second = 0; second < 6; second += 1) {
    await clock.advance(1250);
    answer([row('dead')]);
  }
  await clock.advance(100);
  t.same(judged[0], ['server']);
});

t.test('a session whose row says unknown is closed although it owns the row', async (t) => {
  const { clock, sessions, answer } = newReaper();
  const session = addSession(sessions, 'old');
  await clock.advance(0);
  answer([row('old')]);
  await clock.advance(5500);
  t.equal(session.isEnded, false);
  answer([{ ...row('old'), is_running: false }]);
  await clock.advance(100);
  t.equal(session.isEnded, true, 'only a new accept can set its server to running');
});

t.test('until the start grace is over, only its own rows count as ownerless', async (t) => {
  const { clock, answer, judged, grace } = newReaper();
  const rows = [row('dead', 1, 'of another'), row('old', 1, 'of its own')];
  const pollFor = async (seconds: number) => {
    for (let second = 0; second < seconds; second += 1) {
      answer(rows);
      await clock.advance(1250);
    }
  };
  grace.isOver = false;
  await clock.advance(0);
  await pollFor(10);
  t.same([...new Set(judged.flat())], ['of its own']);
  grace.isOver = true;
  judged.length = 0;
  await pollFor(3);
  t.notOk(judged.flat().includes('of another'), 'the time before the grace does not count');
  await pollFor(4);
  t.ok(judged.flat().includes('of another'));
});

t.test('a row that says unknown is not ownerless, whoever is on it', async (t) => {
  const { clock, answer, judged, reaper } = newReaper();
  await clock.advance(0);
  for (let poll = 0; poll < 10; poll += 1) {
    answer([{ ...row('old'), is_running: false }]);
    await clock.advance(5_250);
    t.equal(reaper.ownerlessRows, 0);
  }
  t.same(judged, []);
});

t.test('servers of a dead instance have until the last time at which an agent was told to return', async (t) => {
  const { clock, poll, judged, deferral, logged, reaper } = newReaper();
  await clock.advance(0);
  deferral.latestReturn = clock.now() + 30_000;
  const began = clock.now();
  while (judged.length === 0 && clock.now() - began < 2 * MAX_RETURN_MS) {
    await poll([row('dead')]);
    if (reaper.rowsAwaitingReturns > 0) t.equal(reaper.rowsAwaitingReturns, 1);
  }
  const tookMs = clock.now() - began;
  const expectedMs = 30_000 + RECONNECT_MS + GRACE_MS;
  t.ok(tookMs > expectedMs && tookMs < expectedMs + 3_000, `after ${tookMs} ms`);
  t.same(judged[0], ['server']);
  t.equal(reaper.rowsAwaitingReturns, 0);
  const told = logged.filter(({ msg }) => String(msg).includes('stay running longer'));
  matchLists(t, told, [{ level: 'info', servers: 1, latest_return_at: new Date(30_000) }]);
});

for (const failedRead of ['poll', 'latest return'] as const)
  t.test(
    `agents told to return again and again delay it by the longest time, though the ${failedRead} often fails`,
    async (t) => {
      const { clock, poll, failPoll, judged, deferral } = newReaper();
      await clock.advance(0);
      const longest = MAX_RETURN_MS + RECONNECT_MS + GRACE_MS;
      for (let round = 1; judged.length === 0 && clock.now() < 2 * longest; round += 1) {
        deferral.latestReturn = clock.now() + 1_000;
        const isFailing = round % 30 === 0;
        deferral.fails = isFailing && failedRead === 'latest return';
        await (isFailing && failedRead === 'poll' ? failPoll() : poll([row('dead')]));
      }
      t.ok(clock.now() > longest && clock.now() <= longest + GRACE_MS + 3_000, `after ${clock.now()} ms`);
    },
  );

t.test('while rows only wait for returns, polls are slow until the first row waits no longer', async (t) => {
  const { clock, poll, answer, polls, deferral, reaper } = newReaper();
  await clock.advance(0);
  deferral.latestReturn = clock.now() + 10_000;
  while (reaper.rowsAwaitingReturns === 0) await poll([row('dead')]);
  let reads = 0;
  for (; clock.now() < 10_000 + RECONNECT_MS + GRACE_MS; await clock.advance(250)) {
    if (polls.length === 0) continue;
    reads += 1;
    answer([row('dead')]);
  }
  t.ok(reads >= 2 && reads <= 4, `${reads} polls within ${10_000 + RECONNECT_MS} ms`);
});

t.test('without an agent that was told to return, servers have the usual grace', async (t) => {
  const { clock, poll, judged, deferral } = newReaper();
  await clock.advance(0);
  await poll([row('dead')], 3);
  t.equal(deferral.reads, 0, 'no row is due, so nothing is read');
  await poll([row('dead')], 3);
  t.same(judged[0], ['server']);
});

t.test('while it cannot be read whether agents were told to return, the rows of dead runs wait', async (t) => {
  const { clock, poll, judged, deferral } = newReaper();
  await clock.advance(0);
  deferral.fails = true;
  await poll([row('dead'), row('old', 1, 'of its own')], 8);
  t.ok(deferral.reads > 0);
  t.same([...new Set(judged.flat())], ['of its own']);
  deferral.fails = false;
  judged.length = 0;
  await poll([row('dead')]);
  t.same(judged[0], ['server'], 'the grace did not begin again');
});

t.test('a run that ended while it was read whether agents were told to return marks nothing', async (t) => {
  const { clock, poll, judged, deferral, writer } = newReaper();
  await clock.advance(0);
  deferral.beforeAnswer = () => {
    writer.run = 'new';
  };
  await poll([row('dead')], 6);
  t.equal(deferral.reads, 1);
  t.same(judged, []);
});

t.test('a row of its own is not ownerless while a session or an accept in progress holds it', async (t) => {
  const { clock, sessions, answer, judged, reaper } = newReaper();
  const session = addSession(sessions, 'old');
  sessions.addPending('accepted soon');
  const rows = [row('old'), row('old', 1, 'accepted soon')];
  await clock.advance(0);
  for (let poll = 0; poll < 3; poll += 1) {
    answer(rows);
    await clock.advance(5_250);
    t.equal(reaper.ownerlessRows, 0);
  }
  t.equal(session.isEnded, false);
  sessions.removePending('accepted soon');
  answer(rows);
  await clock.advance(0);
  t.equal(reaper.ownerlessRows, 1, 'the accept failed');
  t.same(judged, []);
});

t.test('a row of this instance has no more time while agents are told to return: its agent left', async (t) => {
  const { clock, poll, judged, deferral } = newReaper();
  deferral.latestReturn = 30_000;
  await clock.advance(0);
  await poll([row('old', 1, 'of its own'), row('dead', 1, 'of another')], 8);
  t.same([...new Set(judged.flat())], ['of its own']);
});
