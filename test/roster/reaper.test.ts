/** The slow poll whose answer is slow: what happened since it was sent is not held against anybody. */
import t from 'tap';
import { silentLogger } from '../../lib/log.ts';
import type { Queryable } from '../../lib/moray/database.ts';
import { Reaper } from '../../lib/roster/reaper.ts';
import { type Session, SessionTable } from '../../lib/roster/session.ts';
import { Ticker } from '../../lib/roster/ticker.ts';
import { Verdicts } from '../../lib/roster/verdicts.ts';
import { ManualClock } from '../support/manual-clock.ts';

interface PolledRow {
  server_uuid: string;
  run: string;
  epoch: number;
  is_running: boolean;
}

/** A reaper whose polls are answered when the test says so. */
function newReaper() {
  const clock = new ManualClock();
  const ticker = new Ticker({ clock, checkMs: 250 });
  const sessions = new SessionTable();
  const writer = { cnapiUuid: 'me', run: 'old' };
  const polls: ((rows: PolledRow[]) => void)[] = [];
  const judged: unknown[] = [];
  const query = async <Row>(text: string, values?: readonly unknown[]) => {
    if (text.includes('union all'))
      return new Promise<{ rows: Row[]; rowCount: number }>((resolve) => {
        polls.push((rows) => resolve({ rows: rows as Row[], rowCount: rows.length }));
      });
    judged.push(values?.[0]);
    return { rows: [] as Row[], rowCount: 0 };
  };
  const database: Queryable = { query };
  const verdicts = new Verdicts({ database, sessions, cnapiUuid: 'me', clock, log: silentLogger });
  const reaper = new Reaper({
    database,
    sessions,
    verdicts,
    ticker,
    writer: () => ({ ...writer }),
    mayJudgeStrangers: () => true,
    slowPollMs: () => 5000,
    adoptGraceMs: 5000,
    clock,
    log: silentLogger,
  });
  ticker.start();
  reaper.start();
  const answer = (rows: PolledRow[]) => {
    const poll = polls.shift();
    if (poll === undefined) throw new Error('no poll is on its way');
    poll(rows);
  };
  return { clock, sessions, writer, answer, judged };
}

function addSession(sessions: SessionTable, run: string): Session {
  const socket = {
    isUnread: false,
    send: () => true,
    probe() {},
    answersProbe: async () => true,
    askToLeave() {},
    terminate() {},
  };
  const fields = { serverUuid: 'server', epoch: 1, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
  const added = sessions.add({ ...fields, socket, run, heardAt: 0 });
  return added?.session as Session;
}

const row = (run: string, epoch = 1): PolledRow => ({ server_uuid: 'server', run, epoch, is_running: true });

t.test('a session that followed its instance to a new run while a poll was on its way is left alone', async (t) => {
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

t.test('a session whose row is not its own in a poll sent after it stood is closed', async (t) => {
  const { clock, sessions, answer } = newReaper();
  const session = addSession(sessions, 'old');
  await clock.advance(0);
  answer([row('old')]);
  await clock.advance(5500);
  answer([row('old', 2)]);
  await clock.advance(100);
  t.equal(session.isEnded, true);
});

t.test('ticks that pass while a poll hangs count for nothing', async (t) => {
  const { clock, answer, judged } = newReaper();
  await clock.advance(0);
  answer([row('dead')]);
  await clock.advance(1250);
  await clock.advance(10_000);
  answer([row('dead')]);
  await clock.advance(100);
  t.same(judged, [], 'seen ownerless for a second only');
  for (let second = 0; second < 6; second += 1) {
    await clock.advance(1250);
    answer([row('dead')]);
  }
  await clock.advance(100);
  t.same(judged[0], ['server']);
});
