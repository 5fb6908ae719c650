/** SessionLosses on a database that answers when the test says so. */
import t from 'tap';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { SessionLosses } from '../../../../lib/control/roster/sessions/session-losses.ts';
import { DatabaseUnavailableError } from '../../../../lib/platform/errors.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

function newSessionLosses() {
  const sessions = new SessionTable();
  const clock = new ManualClock();
  const logged: Record<string, unknown>[] = [];
  const world = {
    isDatabaseAway: false,
    defect: undefined as Error | undefined,
    written: [] as string[],
    runs: [] as string[],
    locked: new Set<string>(),
    onAnswer: () => {},
  };
  const query = async <Row>(_text: string, values: readonly unknown[] = []) => {
    if (world.isDatabaseAway) throw new DatabaseUnavailableError();
    if (world.defect !== undefined) throw world.defect;
    const servers = values[0] as string[];
    world.runs.push(...(values[1] as string[]));
    world.written.push(...servers.filter((one) => !world.locked.has(one)));
    world.onAnswer();
    const rows = servers.map((server_uuid) => ({ server_uuid, is_applied: !world.locked.has(server_uuid) }));
    return { rows: rows as Row[], rowCount: rows.length };
  };
  const database: Queryable = { query };
  const sessionLosses = new SessionLosses({ database, sessions, cnapiUuid: 'me', clock, log: recordingLogger(logged) });
  const connect = (serverUuid: string, epoch = 1): Session => {
    const socket = idleSocket();
    const fields = { serverUuid, epoch, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
    const added = sessions.add({ ...fields, socket, run: 'run', heardAt: 0 });
    return added?.session as Session;
  };
  return { clock, sessions, sessionLosses, world, connect, logged };
}

t.test('a session loss is written even if it comes just as the previous write ends', async (t) => {
  for (let microtasks = 0; microtasks < 20; microtasks += 1) {
    const { clock, sessionLosses, world, connect } = newSessionLosses();
    const [first, second] = [connect('first'), connect('second')];
    world.onAnswer = () => {
      world.onAnswer = () => {};
      let later = Promise.resolve();
      for (let each = 0; each < microtasks; each += 1) later = later.then(() => {});
      void later.then(() => sessionLosses.lose(second, 'closed'));
    };
    sessionLosses.lose(first, 'closed');
    await clock.advance(0);
    t.same(world.written, ['first', 'second'], `${microtasks} microtasks after the answer`);
  }
});

t.test('losses that cannot be written are kept, the highest epoch of each server', async (t) => {
  const { clock, sessionLosses, world, connect } = newSessionLosses();
  world.isDatabaseAway = true;
  sessionLosses.lose(connect('server', 1), 'silent');
  await clock.advance(2000);
  sessionLosses.lose(connect('server', 2), 'closed');
  sessionLosses.lose(connect('other'), 'closed');
  await clock.advance(2000);
  t.same([world.written, sessionLosses.queued], [[], 2]);
  world.isDatabaseAway = false;
  await clock.advance(1000);
  t.same([world.written, sessionLosses.queued], [['server', 'other'], 0]);
});

t.test('a session lost while its row moved to a new run is lost under the new run', async (t) => {
  const { clock, sessions, sessionLosses, world, connect } = newSessionLosses();
  const [lost, live] = [connect('lost'), connect('live')];
  sessionLosses.lose(lost, 'silent');
  await clock.advance(0);
  for (const session of [lost, live]) {
    sessions.moveToRun(session, 'new');
    sessionLosses.followRun(session);
  }
  await clock.advance(2000);
  t.same(world.written, ['lost', 'lost']);
  t.same(world.runs, ['run', 'new']);
});

t.test('a session ends once; one that is superseded or stopped with its instance is not a loss', async (t) => {
  const { clock, sessionLosses, world, connect, logged } = newSessionLosses();
  const [lost, superseded, late] = [connect('lost'), connect('superseded'), connect('late')];
  sessionLosses.lose(lost, 'silent');
  sessionLosses.lose(lost, 'closed');
  sessionLosses.supersede(superseded, 'another has its place');
  sessionLosses.lose(superseded, 'closed');
  await clock.advance(0);
  await sessionLosses.stop();
  const lines = logged.length;
  sessionLosses.lose(late, 'closed');
  sessionLosses.followRun(lost);
  await clock.advance(1000);
  t.same(world.written, ['lost']);
  t.equal(logged.length, lines, 'an agent that is left behind has no line in the log');
  t.same([lost.isEnded, superseded.isEnded, late.isEnded], [true, true, true]);
});

t.test('an error other than an outage is logged as an error, and the session loss is kept', async (t) => {
  const { clock, sessionLosses, world, connect, logged } = newSessionLosses();
  world.defect = new Error('column "x" does not exist');
  sessionLosses.lose(connect('server'), 'closed');
  await clock.advance(0);
  const failures = logged.filter(({ level }) => level !== 'info');
  matchLists(t, failures, [{ level: 'error', err: world.defect, key: 'server' }]);
  t.equal(sessionLosses.queued, 1);
  world.defect = undefined;
  await clock.advance(2000);
  t.same([world.written, sessionLosses.queued], [['server'], 0]);
});

t.test('a pending session loss is dropped when the server’s agent is accepted again', async (t) => {
  const { clock, sessionLosses, world, connect } = newSessionLosses();
  world.isDatabaseAway = true;
  sessionLosses.lose(connect('server', 5), 'closed');
  sessionLosses.lose(connect('other'), 'closed');
  await clock.advance(0);
  sessionLosses.forget('server');
  world.isDatabaseAway = false;
  await clock.advance(1000);
  t.same(world.written, ['other']);
});

t.test('a locked row delays no other session loss and is written when it is free', async (t) => {
  const { clock, sessionLosses, world, connect } = newSessionLosses();
  world.locked.add('held');
  for (const server of ['first', 'held', 'second', 'third']) sessionLosses.lose(connect(server), 'closed');
  await clock.advance(0);
  t.same([world.written, sessionLosses.queued], [['first', 'second', 'third'], 1]);
  world.locked.clear();
  await clock.advance(1_000);
  t.same([world.written.at(-1), sessionLosses.queued], ['held', 0]);
});

t.test('when a zone loses its servers at once, the log has some of them and numbers for the rest', async (t) => {
  const { clock, sessionLosses, world, connect, logged } = newSessionLosses();
  for (let each = 0; each < 5_000; each += 1)
    sessionLosses.lose(connect(String(each)), each % 5 === 0 ? 'silent' : 'closed');
  await clock.advance(0);
  t.equal(world.written.length, 5_000);
  const lines = logged.filter(({ msg }) => String(msg).startsWith('server: running -> unknown'));
  const own = lines.filter(({ server_uuid }) => server_uuid !== undefined);
  t.equal(own.length, 200);
  t.ok(lines.length - own.length <= 4, 'one more line for each statement');
  t.equal(
    lines.reduce((sum, { servers = 1 }) => sum + Number(servers), 0),
    5_000,
  );
  t.match(lines.at(-1), { reasons: { silent: Number, closed: Number } });

  logged.length = 0;
  await clock.advance(1_000);
  for (let each = 0; each < 30; each += 1) sessionLosses.lose(connect(`later ${each}`), 'closed');
  await clock.advance(0);
  const later = logged.filter(({ msg }) => String(msg).startsWith('server: running -> unknown'));
  t.ok(later.filter(({ server_uuid }) => server_uuid !== undefined).length >= 20, 'twenty more a second later');
});
