/**
 * How agents are asked to move to other instances: which ones, how many at a time, and how often.
 */
import t from 'tap';
import {
  Evacuation,
  type EvacuationPace,
  firstPace,
  MOST_PER_PERIOD,
  nextPace,
} from '../../../../lib/control/roster/relocation/evacuation.ts';
import { doublingPause, Relocation } from '../../../../lib/control/roster/relocation/relocation.ts';
import { type Session, SessionTable } from '../../../../lib/control/roster/sessions/session.ts';
import { ManualClock } from '../../../support/manual-clock.ts';

const ELSEWHERE = { uuid: '00000000-0000-4000-8000-0000000000bb', host: 'there', port: 1 };

/** Sessions whose agents behave as `whenAsked` says. */
function fleet(agents: number, whenAsked: (session: Session, sessions: SessionTable) => void = () => {}) {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const asked: { at: number; serverUuid: string }[] = [];
  for (let each = 0; each < agents; each++) {
    const serverUuid = `server ${each}`;
    const askToLeave = () => {
      asked.push({ at: clock.now(), serverUuid });
      const session = sessions.get(serverUuid);
      if (session !== undefined) whenAsked(session, sessions);
    };
    const fields = {
      serverUuid,
      epoch: 1,
      incarnation: 'i',
      journalId: 'j',
      capabilities: new Set<string>(),
      run: 'r',
    };
    const socket = { askToLeave } as unknown as Session['socket'];
    const added = sessions.add({ ...fields, socket, heardAt: 0 });
    if (added !== undefined) added.session.isInventoried = true;
  }
  return { clock, sessions, asked };
}

const table: { name: string; pace: EvacuationPace; left: number; agents: number; next: EvacuationPace }[] = [
  {
    name: 'agents leave: the next round asks twice as many',
    pace: { perPeriod: 4, quietPeriods: 3 },
    left: 1,
    agents: 100,
    next: { perPeriod: 8, quietPeriods: 0 },
  },
  {
    name: 'the number asked grows up to the maximum',
    pace: { perPeriod: 400, quietPeriods: 0 },
    left: 9,
    agents: 9_000,
    next: { perPeriod: MOST_PER_PERIOD, quietPeriods: 0 },
  },
  {
    name: 'no agent leaves: the next round asks as many',
    pace: { perPeriod: 4, quietPeriods: 0 },
    left: 0,
    agents: 100,
    next: { perPeriod: 4, quietPeriods: 1 },
  },
  {
    name: 'no agent has left for two seconds: the next round asks the minimum',
    pace: { perPeriod: 400, quietPeriods: 7 },
    left: 0,
    agents: 1_000,
    next: { perPeriod: 3, quietPeriods: 0 },
  },
  {
    name: 'more agents came than left',
    pace: { perPeriod: 4, quietPeriods: 0 },
    left: -5,
    agents: 100,
    next: { perPeriod: 4, quietPeriods: 1 },
  },
];
for (const { name, pace, left, agents, next } of table) t.same(nextPace(pace, left, agents), next, name);
t.same(firstPace(60), { perPeriod: 1, quietPeriods: 0 }, 'a small instance asks one agent at a time');
t.same(
  firstPace(8_000),
  { perPeriod: 20, quietPeriods: 0 },
  'a large instance asks one percent of its agents per second',
);

t.test('while no agent finds another instance, few are asked, each less and less often', async (t) => {
  const { clock, sessions, asked } = fleet(60);
  const evacuation = new Evacuation({ sessions, addresses: () => [ELSEWHERE], askAgainMs: 8_000, clock });
  evacuation.begin('the database does not answer');
  await clock.advance(60_000);
  const perSecond = new Map<number, number>();
  for (const { at } of asked) perSecond.set(Math.floor(at / 1_000), (perSecond.get(Math.floor(at / 1_000)) ?? 0) + 1);
  t.ok(Math.max(...perSecond.values()) <= 5, `${Math.max(...perSecond.values())} asked in one second`);
  t.equal(new Set(asked.map(({ serverUuid }) => serverUuid)).size, 60, 'each agent was asked');
  const times = asked.filter(({ serverUuid }) => serverUuid === 'server 0').map(({ at }) => at);
  const pauses = times.slice(1).map((at, index) => at - (times[index] ?? 0));
  t.ok((pauses[0] ?? 0) >= 8_000 && (pauses[1] ?? 0) >= 16_000, `${pauses}`);
  evacuation.end();
  const before = asked.length;
  await clock.advance(60_000);
  t.equal(asked.length, before, 'no agent is asked once the evacuation is over');
});

t.test('while agents find other instances, more and more are asked until all have left', async (t) => {
  const { clock, sessions } = fleet(5_000, (session, sessions) => sessions.end(session));
  const evacuation = new Evacuation({ sessions, addresses: () => [ELSEWHERE], askAgainMs: 8_000, clock });
  evacuation.begin('this process cannot keep up with its work');
  await clock.advance(5_000);
  t.equal(sessions.size, 0);
  evacuation.end();
});

t.test('no agent is asked while there is no other instance', async (t) => {
  const { clock, sessions, asked } = fleet(3);
  const places: (typeof ELSEWHERE)[] = [];
  const evacuation = new Evacuation({ sessions, addresses: () => places, askAgainMs: 8_000, clock });
  evacuation.begin('the database does not answer');
  await clock.advance(2_000);
  t.equal(asked.length, 0);
  places.push(ELSEWHERE);
  await clock.advance(2_000);
  t.equal(asked.length, 3);
  evacuation.end();
});

t.test('an agent is asked again only after its pause and once its session works', async (t) => {
  const { clock, sessions, asked } = fleet(3);
  const relocation = new Relocation({ clock, pauseMs: doublingPause(1_000, 3_000) });
  const ask = (atMost: number) =>
    relocation.ask({ among: sessions.all(), atMost, reason: 'test', addresses: [ELSEWHERE] }).length;
  const greeted = sessions.get('server 2') as Session;
  greeted.isInventoried = false;
  t.equal(ask(1), 1);
  t.equal(ask(5), 1, 'the other agent is asked');
  t.equal(ask(5), 0);
  await clock.advance(1_000);
  t.equal(ask(5), 2);
  greeted.isInventoried = true;
  t.equal(ask(5), 1);
  await clock.advance(1_999);
  t.equal(ask(5), 1, 'the second pause is twice as long');
  await clock.advance(1);
  t.equal(ask(5), 2);
  t.equal(relocation.timesAsked(greeted), 2);
  sessions.end(greeted);
  await clock.advance(10_000);
  t.equal(ask(5), 2, 'an agent whose session has ended is not asked');
  t.equal(asked.length, 10);
});
