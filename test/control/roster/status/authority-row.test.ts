import t from 'tap';
import { type AuthorityRow, decideHello, kindOfAgent } from '../../../../lib/control/roster/status/authority-row.ts';

const mine = { incarnation: 'inc-a', conn: 5, journalId: 'journal-a', epoch: 10 };
const row: AuthorityRow = {
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

const table: { name: string; row?: AuthorityRow; hello?: Partial<typeof mine>; replaces?: string; expect: object }[] = [
  { name: 'an unknown server is accepted', expect: { kind: 'again' } },
  { name: 'a later conn of the same incarnation is accepted', row, expect: { kind: 'again' } },
  {
    name: 'the same conn again is superseded and told which conn to exceed',
    row: { ...row, conn: 5 },
    expect: { kind: 'refuse', refusal: { code: 'superseded', conn: 5 } },
  },
  {
    name: 'a server that returns too often is told when to return',
    row: tooOften,
    expect: { kind: 'refuse', refusal: { code: 'returns-too-often', retryAfterMs: 700 } },
  },
  {
    name: 'a live session may be moved as often as it likes',
    row: { ...tooOften, status: 'running' },
    expect: { kind: 'again' },
  },
  {
    name: 'an earlier conn is superseded',
    row: { ...row, conn: 9 },
    expect: { kind: 'refuse', refusal: { code: 'superseded', conn: 9 } },
  },
  {
    name: 'another incarnation is probed if the session of the first one is live',
    row: { ...row, incarnation: 'inc-b' },
    expect: { kind: 'probe', incarnation: 'inc-b', run: 'run-1', epoch: 10 },
  },
  {
    name: 'an incarnation that is not connected is replaced without a probe',
    row: { ...row, incarnation: 'inc-b', status: 'unknown' },
    expect: { kind: 'again' },
  },
  {
    name: 'an incarnation on a row without authority is replaced without a probe',
    row: { ...row, incarnation: 'inc-b', run: null },
    expect: { kind: 'again' },
  },
  {
    name: 'a journal rolled back to before its last inventory is stale',
    row,
    hello: { epoch: 9 },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'a restarted journal is not stale',
    row,
    hello: { epoch: 0, journalId: 'journal-b' },
    expect: { kind: 'again' },
  },
  {
    name: 'another journal older than the last inventory is stale even if the row has forgotten it',
    row,
    hello: { epoch: 9, journalId: 'journal-b' },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'another journal as old as the last inventory is accepted, because nobody settled its tasks',
    row: { ...row, epoch: 11 },
    hello: { journalId: 'journal-b' },
    expect: { kind: 'again' },
  },
  {
    name: 'the older journal of a second machine stays valid while the other one may be alive',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9, journalId: 'journal-b' },
    expect: { kind: 'probe', incarnation: 'inc-b' },
  },
  {
    name: 'the older journal is stale once a probe has found the other machine dead',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9, journalId: 'journal-b' },
    replaces: 'inc-b',
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'a copied journal is found stale before any probe',
    row: { ...row, incarnation: 'inc-b' },
    hello: { epoch: 9 },
    expect: { kind: 'refuse', refusal: { code: 'stale-journal' } },
  },
  {
    name: 'an incarnation that a probe found dead is replaced',
    row: { ...row, incarnation: 'inc-b' },
    replaces: 'inc-b',
    expect: { kind: 'again' },
  },
  {
    name: 'an epoch that would exhaust the counter is refused',
    row,
    hello: { epoch: 10 + 2 ** 32 + 1 },
    expect: { kind: 'refuse', refusal: { code: 'epoch-out-of-range' } },
  },
  {
    name: 'an epoch that would exhaust the counter is refused for a new server too',
    hello: { epoch: 2 ** 32 + 1 },
    expect: { kind: 'refuse', refusal: { code: 'epoch-out-of-range' } },
  },
];

for (const { name, row: standing, hello, replaces, expect } of table) {
  t.test(name, async (t) => {
    t.match(decideHello(standing, { ...mine, ...hello }, replaces), expect);
  });
}

t.test('a running row without a run belongs to a legacy agent, or to Ur', async (t) => {
  t.equal(kindOfAgent({ status: 'running', run: 'run-1', reason: 'connected' }), 'linked');
  t.equal(kindOfAgent({ status: 'running', run: null, reason: 'legacy-heartbeat' }), 'legacy');
  t.equal(kindOfAgent({ status: 'running', run: null, reason: 'ur-sysinfo' }), 'ur');
  t.equal(kindOfAgent({ status: 'unknown', run: 'run-1', reason: 'closed' }), 'none');
  t.equal(
    kindOfAgent({ status: 'unknown', run: null, reason: 'ur-silent' }),
    'none',
    'the server was removed, or its legacy agent fell silent',
  );
});
