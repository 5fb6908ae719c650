import t from 'tap';
import {
  ACKNOWLEDGED_KEPT_MS,
  buildInventory,
  fold,
  hasRoom,
  type JournalRecord,
  JournalRecordError,
  type JournalState,
  MAX_LIVE_BYTES,
  maxEndBytes,
  needsCompaction,
  newJournal,
  prune,
  recordsOf,
} from '../../../lib/agent/journal/journal.ts';
import { ended, taskFrame } from '../frames.ts';

const accepted = (id: string): JournalRecord => ({ record: 'accepted', task: taskFrame({ id }) });
const group = { pgid: 7, startTime: '99', bootId: 'boot' };

function folded(...records: JournalRecord[]): JournalState {
  const state = newJournal('journal');
  for (const record of records) fold(state, record, 100, 0);
  return state;
}

t.test('records fold into the states that the inventory lists', async (t) => {
  const state = folded(
    { record: 'epoch', epoch: 4 },
    accepted('a'),
    accepted('b'),
    { record: 'started', id: 'b', group },
    accepted('c'),
    { record: 'started', id: 'c' },
    { record: 'ended', end: ended('c') },
    { record: 'ended', end: ended('cancelled before it came') },
    accepted('d'),
    { record: 'ended', end: ended('d') },
    { record: 'acknowledged', id: 'd' },
  );
  t.same(buildInventory(state), [
    { id: 'a', attempt: 1, state: 'accepted' },
    { id: 'b', attempt: 1, state: 'running' },
    { id: 'c', attempt: 1, state: 'ended' },
    { id: 'cancelled before it came', attempt: 1, state: 'ended' },
  ]);
  const held = buildInventory(state, ({ id }) => id === 'b');
  t.same(held[1], { id: 'b', attempt: 1, state: 'running', held: true });
  t.equal(held[0]?.held, undefined);
  t.equal(state.epoch, 4);
  t.ok(state.acknowledged.has('d'));
});

t.test('records in an impossible order are refused', async (t) => {
  const rows: [string, JournalState, JournalRecord][] = [
    ['accepted twice', folded(accepted('a')), accepted('a')],
    ['started, but unknown', folded(), { record: 'started', id: 'a' }],
    ['started twice', folded(accepted('a'), { record: 'started', id: 'a' }), { record: 'started', id: 'a' }],
    ['restarted, but not running', folded(accepted('a')), { record: 'restarted', id: 'a', starts: 2 }],
    ['ended twice', folded({ record: 'ended', end: ended('a') }), { record: 'ended', end: ended('a') }],
    ['renumbered, but unknown', folded(), { record: 'renumbered', id: 'a', attempt: 2 }],
    ['renumbered downwards', folded(accepted('a')), { record: 'renumbered', id: 'a', attempt: 1 }],
    ['epoch goes back', folded({ record: 'epoch', epoch: 2 }), { record: 'epoch', epoch: 1 }],
    ['a second begin', folded(), { record: 'begin', version: 1, journalId: 'x', epoch: 0 }],
  ];
  for (const [name, state, record] of rows) t.throws(() => fold(state, record, 1, 0), JournalRecordError, name);
});

t.test('a compacted journal folds into the same state', async (t) => {
  const state = folded(
    { record: 'epoch', epoch: 9 },
    accepted('a'),
    accepted('b'),
    { record: 'started', id: 'b', group },
    accepted('continues'),
    { record: 'started', id: 'continues', at: 1_000 },
    { record: 'restarted', id: 'continues', starts: 2 },
    { record: 'ended', end: ended('c') },
    { record: 'acknowledged', id: 'old' },
  );
  const [begin, ...rest] = recordsOf(state);
  t.same(begin, { record: 'begin', version: 1, journalId: 'journal', epoch: 9 });
  const again = { ...newJournal('journal'), epoch: 9 };
  for (const record of rest) fold(again, record, 100, 0);
  t.same(buildInventory(again), buildInventory(state));
  t.match(again.tasks.get('b'), { state: 'running', group, starts: 1 });
  t.match(again.tasks.get('continues'), { state: 'running', startedAt: 1_000, starts: 2 });
  t.ok(again.acknowledged.has('old'));
});

t.test('the bytes of a task count until it is acknowledged', async (t) => {
  const state = folded(accepted('a'), accepted('b'), { record: 'started', id: 'b' });
  t.equal(state.liveBytes, 300);
  fold(state, { record: 'ended', end: ended('a') }, 50, 0);
  t.equal(state.liveBytes, 250);
  fold(state, { record: 'acknowledged', id: 'a' }, 10, 0);
  fold(state, { record: 'acknowledged', id: 'b' }, 10, 0);
  t.equal(state.liveBytes, 0);
});

t.test('a journal has room until it holds too many tasks or too many bytes', async (t) => {
  t.ok(hasRoom(folded()));
  const heavy = folded();
  fold(heavy, accepted('a'), MAX_LIVE_BYTES, 0);
  t.notOk(hasRoom(heavy));
  const many = folded();
  for (let n = 0; n < 5000; n++) fold(many, accepted(`${n}`), 1, 0);
  t.notOk(hasRoom(many));
});

t.test('acknowledged ids are kept for ten minutes', async (t) => {
  const state = folded();
  fold(state, { record: 'acknowledged', id: 'old' }, 1, 1000);
  fold(state, { record: 'acknowledged', id: 'new' }, 1, 2000);
  prune(state, 1000 + ACKNOWLEDGED_KEPT_MS);
  t.same([...state.acknowledged.keys()], ['new']);
});

t.test('a file is compacted when most of it is history', async (t) => {
  t.notOk(needsCompaction(1024, 0));
  t.ok(needsCompaction(1024 * 1024, 0));
  t.notOk(needsCompaction(2 * 1024 * 1024, 1024 * 1024), 'a file that is half live is not compacted');
});

t.test('a renumbered task keeps its state under the new number, also after a compaction', async (t) => {
  const state = folded(
    accepted('a'),
    accepted('b'),
    { record: 'started', id: 'b', group },
    { record: 'ended', end: ended('c') },
    ...['a', 'b', 'c'].map((id): JournalRecord => ({ record: 'renumbered', id, attempt: 3 })),
  );
  const expected = [
    { id: 'a', attempt: 3, state: 'accepted' },
    { id: 'b', attempt: 3, state: 'running' },
    { id: 'c', attempt: 3, state: 'ended' },
  ];
  t.same(buildInventory(state), expected);
  t.match(state.tasks.get('b'), { group, task: { attempt: 3 } });
  t.match(state.tasks.get('c'), { end: { attempt: 3 } });
  const [, ...records] = recordsOf(state);
  t.same(buildInventory(folded(...records)), expected);
});

t.test('in a journal that is full of bytes, ends are kept short', async (t) => {
  const state = newJournal('journal');
  t.equal(maxEndBytes(state), Number.POSITIVE_INFINITY);
  fold(state, accepted('a'), MAX_LIVE_BYTES, 0);
  t.ok(maxEndBytes(state) < 10_000);
});
