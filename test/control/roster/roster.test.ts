import t from 'tap';
import { decideHello, kindOfAgent, type Standing } from '../../../lib/control/roster/roster.ts';

const mine = { incarnation: 'inc-a', conn: 5, journalId: 'journal-a', epoch: 10 };
const row: Standing = {
  run: 'run-1',
  epoch: 10,
  status: 'running',
  incarnation: 'inc-a',
  conn: 4,
  journalId: 'journal-a',
  inventoryEpoch: 10,
  returnsInMs: 0,
};

const tooOften = { ...row, status: 'unknown', returnsInMs: 700 } as const;

const table: { name: string; row?: Standing; hello?: Partial<typeof mine>; replaces?: string; expect: object }[] = [
  { name: 'a server nobody knows is accepted', expect: { kind: 'again' } },
  { name: 'a later conn of the same incarnation is accepted', row, expect: { kind: 'again' } },
  {
    name: 'the same conn again is superseded and told the conn to go above',
    row: { ...row, conn: 5 },
    expect: { kind: 'refuse', refusal: { code: 'superseded', conn: 5 } },
  },
  {
    name: 'one that comes back too often is told when to come again',
    row: tooOften,
    expect: { kind: 'refuse', refusal: { code: 'returns-too-often', retryAfterMs: 700 } },
  },
  {
    name: 'a session that stands may be moved as often as it likes',
    row: { ...tooOften, status: 'running' },
    expect: { kind: 'again' },
  },
  {
    name: 'an earlier conn is superseded',
    row: { ...row, conn: 9 },
    expect: { kind: 'refuse', refusal: { code: 'superseded', conn: 9 } },
  },
  {
    name: 'another incarnation whose session stands is probed',
    row: { ...row, incarnation: 'inc-b' },
    expect: { kind: 'probe', incarnation: 'inc-b', run: 'run-1', epoch: 10 },
  },
  {
    name: 'another incarnation that is not connected is replaced without asking',
    row: { ...row, incarnation: 'inc-b', status: 'unknown' },
    expect: { kind: 'again' },
  },
  {
    name: 'another incarnation on a row that nobody has is replaced without asking',
    row: { ...row, incarnation: 'inc-b', run: null },
    expect: { kind: 'again' },
  },
  {
    name: 'a journal rolled back behind its last inventory is stale',
    row,
    hello: { epoch: 9 },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'a journal that was begun anew is none of that',
    row,
    hello: { epoch: 0, journalId: 'journal-b' },
    expect: { kind: 'again' },
  },
  {
    name: 'another journal that is older than the last inventory is stale, though the row knows it no more',
    row,
    hello: { epoch: 9, journalId: 'journal-b' },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'another journal as old as the last inventory is accepted: nobody has answered for its tasks',
    row: { ...row, epoch: 11 },
    hello: { journalId: 'journal-b' },
    expect: { kind: 'again' },
  },
  {
    name: 'the older journal of a second machine stays good while the other one may be alive',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9, journalId: 'journal-b' },
    expect: { kind: 'probe', incarnation: 'inc-b' },
  },
  {
    name: 'it is stale once a probe has found the other one dead',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9, journalId: 'journal-b' },
    replaces: 'inc-b',
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'a copy of the journal is stale before anybody is asked',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9 },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'an incarnation that a probe has found dead is replaced',
    row: { ...row, incarnation: 'inc-b' },
    replaces: 'inc-b',
    expect: { kind: 'again' },
  },
  {
    name: 'an epoch that would use the counter up is refused',
    row,
    hello: { epoch: 10 + 2 ** 32 + 1 },
    expect: { kind: 'refuse', refusal: { code: 'epoch-out-of-range' } },
  },
  {
    name: 'an epoch that would use the counter up is refused of a new server too',
    hello: { epoch: 2 ** 32 + 1 },
    expect: { kind: 'refuse', refusal: { code: 'epoch-out-of-range' } },
  },
];

for (const { name, row: standing, hello, replaces, expect } of table) {
  t.test(name, async (t) => {
    t.match(decideHello(standing, { ...mine, ...hello }, replaces), expect);
  });
}

t.test('a running row without a run is of an agent that posts its heartbeats', async (t) => {
  t.equal(kindOfAgent({ status: 'running', run: 'run-1' }), 'linked');
  t.equal(kindOfAgent({ status: 'running', run: null }), 'old');
  t.equal(kindOfAgent({ status: 'unknown', run: 'run-1' }), 'none');
  t.equal(kindOfAgent({ status: 'unknown', run: null }), 'none', 'removed, or an old agent that fell silent');
});
