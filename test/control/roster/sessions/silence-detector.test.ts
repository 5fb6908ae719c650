/**
 * What the detector over the sessions reports to admission, and which sessions it moves to a new
 * run.
 */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import type { SessionLosses } from '../../../../lib/control/roster/sessions/session-losses.ts';
import { SilenceDetector } from '../../../../lib/control/roster/sessions/silence-detector.ts';
import { silentLogger } from '../../../../lib/platform/log.ts';
import type { Queryable } from '../../../../lib/platform/postgres/database.ts';
import { HealthyTimer } from '../../../../lib/platform/time/healthy-timer.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

const AGENTS = 40;
const TICK_MS = 250;
const unused = () => Promise.reject(new Error('not expected'));

function watchSessions({ isUnread = false } = {}) {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: TICK_MS });
  const sessions = new SessionTable();
  const world = { probes: 0, lost: 0 };
  const socket = idleSocket({
    isUnread,
    probe: () => {
      world.probes += 1;
    },
  });
  const detector = new SilenceDetector({
    database: { query: unused },
    sessions,
    sessionLosses: {
      lose: () => {
        world.lost += 1;
      },
    } as unknown as SessionLosses,
    healthyTimer,
    run: () => 'run',
    limits: { probeMs: 1_250, silenceMs: 2_000 },
    log: silentLogger,
  });
  for (let each = 0; each < AGENTS; each++)
    sessions.add({
      serverUuid: randomUUID(),
      epoch: 1,
      incarnation: randomUUID(),
      journalId: randomUUID(),
      capabilities: new Set(),
      socket,
      run: 'run',
      heardAt: 0,
    });
  healthyTimer.start();
  return { clock, detector, sessions, world };
}

t.test('agents whose heartbeats arrive a moment after a tick do not make their instance late', async (t) => {
  const { clock, detector, world } = watchSessions();
  // The last byte came just before the first of these ticks, so a little more than a second has
  // passed.
  for (let tick = 0; tick < 5; tick++) await clock.advance(TICK_MS);
  t.equal(world.probes, AGENTS, 'each is probed');
  t.equal(detector.quiet, 0, 'none is overdue');
  await clock.advance(TICK_MS);
  t.equal(detector.quiet, AGENTS, 'all are overdue when 1,250 ms have certainly passed');
  t.equal(world.lost, 0);
});

t.test('an agent that is not read is probed all the same, so that it does not leave', async (t) => {
  const { clock, world } = watchSessions({ isUnread: true });
  for (let tick = 0; tick < 40; tick++) await clock.advance(TICK_MS);
  t.equal(world.probes, 8 * AGENTS, 'every 1,250 ms');
  t.equal(world.lost, 0);
});

t.test('an agent that is heard again is neither probed again at once nor lost', async (t) => {
  const { clock, sessions, world } = watchSessions();
  await clock.advance(8 * TICK_MS);
  t.equal(world.probes, AGENTS, 'once each');
  for (const session of sessions.all()) Object.assign(session, { quietMs: 0, isProbed: false });
  await clock.advance(4 * TICK_MS);
  t.equal(world.lost, 0);
  await clock.advance(5 * TICK_MS);
  t.same(world, { probes: 2 * AGENTS, lost: AGENTS });
});

/** Sessions of the run `old`, whose rows the database moves to `new` as the test says. */
function renewSessions(...serverUuids: string[]) {
  const clock = new ManualClock();
  const healthyTimer = new HealthyTimer({ clock, checkMs: TICK_MS });
  const sessions = new SessionTable();
  const logged: Record<string, unknown>[] = [];
  const world = {
    run: 'old',
    locked: new Set<string>(),
    gone: new Set<string>(),
    answer: Promise.resolve(),
    asked: [] as string[][],
    superseded: [] as string[],
    followed: [] as string[],
  };
  const query = async <Row>(_text: string, values: readonly unknown[] = []) => {
    const servers = values.find((value): value is string[] => Array.isArray(value)) ?? [];
    world.asked.push(servers);
    await world.answer;
    const rows = servers
      .filter((one) => !world.gone.has(one))
      .map((server_uuid) => ({ server_uuid, is_applied: !world.locked.has(server_uuid) }));
    return { rows: rows as Row[], rowCount: rows.length };
  };
  const detector = new SilenceDetector({
    database: { query } as Queryable,
    sessions,
    sessionLosses: {
      supersede: ({ serverUuid }: Session) => world.superseded.push(serverUuid),
      followRun: ({ serverUuid }: Session) => world.followed.push(serverUuid),
    } as unknown as SessionLosses,
    healthyTimer,
    run: () => world.run,
    limits: { probeMs: 60_000, silenceMs: 90_000 },
    log: recordingLogger(logged),
  });
  const fields = { epoch: 1, incarnation: 'i', journalId: 'j', capabilities: new Set<string>(), run: 'old' };
  for (const serverUuid of serverUuids)
    sessions.add({ ...fields, serverUuid, socket: idleSocket(), heardAt: clock.now() });
  healthyTimer.start();
  const hear = (...heard: string[]) => {
    for (const one of heard) (sessions.get(one) as Session).heardAt = clock.now();
  };
  const runOf = (serverUuid: string) => sessions.get(serverUuid)?.run;
  const takeRun = () => {
    world.run = 'new';
    detector.runRenewed(clock.now());
  };
  return { clock, detector, hear, logged, runOf, takeRun, world };
}

t.test('after a new run, the sessions that are heard again move to it, and no others', async (t) => {
  const { clock, hear, runOf, takeRun, world } = renewSessions('a', 'b', 'locked', 'gone');
  world.locked.add('locked');
  world.gone.add('gone');
  await clock.advance(TICK_MS);
  hear('a', 'b');
  await clock.advance(TICK_MS);
  t.same(world.asked, [], 'no statement in a run that goes on');
  takeRun();
  await clock.advance(TICK_MS);
  t.same(world.asked, [], 'what was heard before is not a sign of life');
  hear('a', 'locked', 'gone');
  await clock.advance(TICK_MS);
  t.same(world.asked, [['a', 'locked', 'gone']]);
  t.same([runOf('a'), runOf('b'), runOf('locked')], ['new', 'old', 'old']);
  t.same([world.followed, world.superseded], [['a'], ['gone']]);
  world.locked.clear();
  world.gone.clear();
  await clock.advance(TICK_MS);
  t.equal(runOf('locked'), 'new', 'a locked row follows at the next tick');
  await clock.advance(4 * TICK_MS);
  t.equal(world.asked.length, 2, 'then nothing is left to move');
});

t.test('while rows move, no second statement moves them, and a stop waits for it', async (t) => {
  const { clock, detector, hear, runOf, takeRun, world } = renewSessions('a');
  const answer = Promise.withResolvers<void>();
  world.answer = answer.promise;
  takeRun();
  await clock.advance(TICK_MS);
  hear('a');
  await clock.advance(4 * TICK_MS);
  t.equal(world.asked.length, 1);
  let isStopped = false;
  const stopping = detector.stop().then(() => {
    isStopped = true;
  });
  await clock.advance(0);
  t.notOk(isStopped);
  answer.resolve();
  await stopping;
  t.equal(runOf('a'), 'new');
});

t.test('rows that could not be moved are tried again at the next tick', async (t) => {
  const { clock, hear, logged, runOf, takeRun, world } = renewSessions('a');
  world.answer = Promise.reject(new Error('the database does not answer'));
  world.answer.catch(() => undefined);
  takeRun();
  await clock.advance(TICK_MS);
  hear('a');
  await clock.advance(TICK_MS);
  matchLists(t, logged, [{ level: 'warn', reason: /does not answer/ }]);
  t.equal(runOf('a'), 'old');
  world.answer = Promise.resolve();
  await clock.advance(TICK_MS);
  t.equal(runOf('a'), 'new');
});
