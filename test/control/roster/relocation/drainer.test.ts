/** The drain of an instance on a clock, with agents and a database that do what the test says. */
import t from 'tap';
import type { DrainResult } from '../../../../lib/control/roster/membership/instance-store.ts';
import { Drainer } from '../../../../lib/control/roster/relocation/drainer.ts';
import { SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { idleSocket } from '../../../support/idle-socket.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { matchLists } from '../../../support/match-lists.ts';
import { recordingLogger } from '../../../support/recording-logger.ts';

const ELSEWHERE = { uuid: '00000000-0000-4000-8000-0000000000bb', host: 'there', port: 1 };

interface Scene {
  agents?: number;
  /** Agents leave when they are asked. */
  isObeyed?: boolean;
  announce?: () => Promise<DrainResult>;
}

function setUp({ agents = 0, isObeyed = true, announce = async () => 'draining' as const }: Scene = {}) {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const done: string[] = [];
  const asked: { serverUuid: string; withinMs: number | undefined; addresses: object[] }[] = [];
  const logged: Record<string, unknown>[] = [];
  const world = { others: [ELSEWHERE], unfinished: 0 };
  for (let each = 0; each < agents; each += 1) {
    const serverUuid = `server ${each}`;
    const askToLeave = (_reason: string, addresses: object[], withinMs?: number) => {
      asked.push({ serverUuid, withinMs, addresses });
      const session = sessions.get(serverUuid);
      if (isObeyed && session !== undefined) sessions.end(session);
    };
    const fields = { serverUuid, epoch: 1, incarnation: 'i', journalId: 'j', capabilities: new Set<string>() };
    const added = sessions.add({ ...fields, run: 'r', heardAt: 0, socket: idleSocket({ askToLeave }) });
    if (added !== undefined) added.session.isInventoried = true;
  }
  const drainer = new Drainer({
    sessions,
    announce: () => {
      done.push('announce');
      return announce();
    },
    otherAddresses: () => world.others,
    stopSessionLosses: () => done.push('stop session losses'),
    instance: {
      unfinished: () => world.unfinished,
      beginDrain: () => done.push('begin'),
      endDrain: () => done.push('close sockets'),
      endWaits: () => done.push('end waits'),
      stop: async () => void done.push('stop'),
    },
    times: { drainAgentsMs: 20_000, drainWaitsMs: 60_000 },
    clock,
    log: recordingLogger(logged),
  });
  return { asked, clock, done, drainer, logged, sessions, world };
}

const ORDERLY = ['begin', 'announce', 'stop session losses', 'close sockets', 'stop'];

t.test('agents are asked to leave, then the sockets are closed, and then the instance stops', async (t) => {
  const { asked, clock, done, drainer, logged, sessions } = setUp({ agents: 3 });
  t.notOk(drainer.isDraining);
  drainer.begin('asked');
  t.ok(drainer.isDraining);
  await clock.advance(1_000);
  t.equal(sessions.size, 0);
  matchLists(
    t,
    asked,
    ['server 0', 'server 1', 'server 2'].map((serverUuid) => ({ serverUuid, addresses: [ELSEWHERE] })),
  );
  t.ok(asked.every(({ withinMs = 0 }) => withinMs > 0));
  t.same(done, ORDERLY.slice(0, 2), 'callers that asked the name server before the drain can still connect');
  await clock.advance(10_000);
  t.same(done, ORDERLY);
  t.equal(clock.timers, 0);
  matchLists(
    t,
    logged.filter(({ from }) => from !== undefined),
    [
      { from: 'announcing', to: 'moving', event: 'announced', agents: 3, unanswered: 0 },
      { from: 'moving', to: 'finishing', event: 'tick', agents: 0 },
      { from: 'finishing', to: 'left', event: 'tick' },
    ],
  );
  t.notOk(
    logged.some(({ level }) => level === 'warn'),
    'no agent was left behind',
  );
});

t.test('a drain begins once', async (t) => {
  const { clock, done, drainer } = setUp();
  drainer.begin('asked');
  drainer.begin('asked again');
  await clock.advance(20_000);
  drainer.begin('asked once more');
  await clock.advance(20_000);
  t.same(done, ORDERLY);
});

t.test('agents that stay are asked once, and are left behind when their time is up', async (t) => {
  const { asked, clock, done, drainer, logged } = setUp({ agents: 2, isObeyed: false });
  drainer.begin('asked');
  await clock.advance(19_900);
  t.equal(asked.length, 2);
  t.notOk(done.includes('close sockets'));
  await clock.advance(200);
  t.same(done.slice(2), ['stop session losses', 'close sockets'], 'statuses change no more before the sockets close');
  matchLists(
    t,
    logged.filter(({ level }) => level === 'warn'),
    [{ agents: 2 }],
  );
});

t.test('no agent is asked to leave while it can go nowhere', async (t) => {
  const { asked, clock, drainer, world } = setUp({ agents: 1 });
  world.others = [];
  drainer.begin('asked');
  await clock.advance(5_000);
  t.equal(asked.length, 0);
  world.others = [ELSEWHERE];
  await clock.advance(200);
  t.equal(asked.length, 1);
  await drainer.stop();
});

t.test('waits keep the instance until their time is up, and then are answered once', async (t) => {
  const { clock, done, drainer, world } = setUp();
  world.unfinished = 1;
  drainer.begin('asked');
  await clock.advance(59_900);
  t.same(done, ORDERLY.slice(0, 4));
  await clock.advance(500);
  t.same(done.slice(4), ['end waits']);
  world.unfinished = 0;
  await clock.advance(200);
  t.same(done.slice(4), ['end waits', 'stop']);
});

t.test('an announcement that the database did not record is repeated', async (t) => {
  let times = 0;
  const { clock, done, drainer } = setUp({
    announce: async () => {
      times += 1;
      if (times < 3) throw new Error('the database does not answer');
      return 'draining';
    },
  });
  drainer.begin('asked');
  await clock.advance(20_000);
  t.same(done, ['begin', 'announce', 'announce', ...ORDERLY.slice(1)]);
});

t.test('the last instance leaves its agents alone', async (t) => {
  const { asked, clock, done, drainer } = setUp({ agents: 1, announce: async () => 'last' });
  drainer.begin('asked');
  await clock.advance(30_000);
  t.same(done, ['begin', 'announce', 'stop']);
  t.equal(asked.length, 0);
  t.equal(clock.timers, 0);
});

t.test('a drain that is stopped waits for its announcement and does nothing more', async (t) => {
  const answer = Promise.withResolvers<DrainResult>();
  const { clock, done, drainer, logged } = setUp({ announce: () => answer.promise });
  drainer.begin('asked');
  await clock.advance(1_000);
  let isStopped = false;
  const stopping = drainer.stop().then(() => {
    isStopped = true;
  });
  await clock.advance(1_000);
  t.notOk(isStopped);
  answer.resolve('draining');
  await stopping;
  await clock.advance(30_000);
  t.same(done, ['begin', 'announce']);
  t.equal(logged.length, 1, 'only its beginning was logged');
  t.equal(clock.timers, 0);
});
