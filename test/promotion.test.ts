import t from 'tap';
import type { Logger } from '../lib/log.ts';
import type { Queryable } from '../lib/moray/database.ts';
import { PromotionWatch } from '../lib/promotion.ts';
import { type Session, SessionTable } from '../lib/roster/session.ts';
import { ManualClock } from './support/manual-clock.ts';

const [AT_WORK, IDLE] = ['00000000-0000-4000-8000-00000000000a', '00000000-0000-4000-8000-00000000000b'];

function start(answer: (text: string) => object[]) {
  const clock = new ManualClock();
  const sessions = new SessionTable();
  const asked: string[] = [];
  const said: string[] = [];
  const say = (_: object, message: string) => void said.push(message);
  const log = { warn: say, error: say } as unknown as Logger;
  const database = { query: async (text: string) => ({ rows: answer(text), rowCount: 0 }) } as unknown as Queryable;
  const add = (serverUuid: string) => {
    const socket = { askToLeave: () => asked.push(serverUuid) } as unknown as Session['socket'];
    const fields = {
      serverUuid,
      epoch: 1,
      incarnation: 'i',
      journalId: 'j',
      capabilities: new Set<string>(),
      socket,
      run: 'r',
    };
    const added = sessions.add({ ...fields, heardAt: 0 });
    if (added !== undefined) added.session.isInventoried = true;
    return added?.session as Session;
  };
  const watch = new PromotionWatch({
    database,
    sessions,
    addresses: () => [],
    periodMs: 5_000,
    askAgainMs: 8_000,
    clock,
    log,
  });
  watch.start();
  return { add, asked, clock, said, sessions, watch };
}

t.test('after a promotion agents with open tasks are asked, again only after a while, until they came', async (t) => {
  let timeline = '00000001';
  const { add, asked, clock, said, sessions, watch } = start((text) =>
    /timeline/.test(text) ? [{ timeline }] : [{ server_uuid: AT_WORK }],
  );
  const session = add(AT_WORK as string);
  add(IDLE as string);
  await clock.advance(20_000);
  t.same(asked, []);
  timeline = '0000000A';
  await clock.advance(5_000);
  t.same(asked, [AT_WORK]);
  for (let each = 0; each < 60; each++) await clock.advance(1_000);
  t.ok(asked.length > 5 && asked.length < 15, 'ever more rarely');
  const before = asked.length;
  sessions.end(session);
  await clock.advance(60_000);
  t.equal(asked.length, before);
  t.notOk(asked.includes(IDLE as string));
  t.equal(said.length, 1);
  await watch.stop();
});

t.test('an error that will pass ends nothing; a database that does not tell is not asked again', async (t) => {
  let [code, asked] = ['22012', 0];
  const { clock, said, watch } = start(() => {
    asked += 1;
    throw Object.assign(new Error('refused'), { code });
  });
  for (let each = 0; each < 4; each++) await clock.advance(5_000);
  t.ok(asked > 2, 'it goes on');
  code = '42501';
  await clock.advance(5_000);
  const before = asked;
  for (let each = 0; each < 4; each++) await clock.advance(5_000);
  t.equal(asked, before);
  t.match(said.at(-1), /does not tell its timeline/);
  await watch.stop();
});
