/** What a holder does with its duty, and how many an instance takes. */
import t from 'tap';
import {
  type DutyBacklog,
  FreeDuties,
  type HolderEvent,
  type HolderState,
  HolderTransitionError,
  type InstanceLoad,
  pauseAfterMs,
  roomFor,
  stepHolder,
} from '../../../lib/control/duty/duty.ts';

const END = { kind: 'end' } as const;
const HAND_OVER = { kind: 'hand-over', hasFailed: false } as const;
const FAILED = { kind: 'hand-over', hasFailed: true } as const;

const states = {
  working: { name: 'working' },
  leaving: { name: 'leaving' },
  settling: { name: 'settling', settlement: END },
  lost: { name: 'lost' },
  finished: { name: 'finished' },
} as const satisfies Record<string, HolderState>;

const events = {
  done: { type: 'done' },
  failed: { type: 'failed' },
  leave: { type: 'leave' },
  lost: { type: 'lost' },
  stored: { type: 'stored' },
} as const satisfies Record<string, HolderEvent>;

const abort = (reason: 'leave' | 'lost') => ({ do: 'abort', reason }) as const;

/** Without a row, the event is illegal in that state. */
const rows: [
  name: string,
  from: keyof typeof states,
  event: keyof typeof events,
  to: keyof typeof states,
  effects: object[],
][] = [
  ['work that is done ends the duty', 'working', 'done', 'settling', [{ do: 'settle', settlement: END }]],
  ['work that fails is handed over', 'working', 'failed', 'settling', [{ do: 'settle', settlement: FAILED }]],
  ['an instance that leaves aborts the work', 'working', 'leave', 'leaving', [abort('leave')]],
  ['a loss aborts the work', 'working', 'lost', 'lost', [abort('lost')]],
  ['work that is done in time still ends', 'leaving', 'done', 'settling', [{ do: 'settle', settlement: END }]],
  [
    'aborted work is handed over, and has not failed',
    'leaving',
    'failed',
    'settling',
    [{ do: 'settle', settlement: HAND_OVER }],
  ],
  ['leaving twice is harmless', 'leaving', 'leave', 'leaving', []],
  ['what leaves can be lost', 'leaving', 'lost', 'lost', []],
  ['a stored settlement is the last of it', 'settling', 'stored', 'finished', []],
  ['a settlement that is refused is a loss', 'settling', 'lost', 'finished', []],
  ['a drain waits for the settlement', 'settling', 'leave', 'settling', []],
  ['the end of lost work is dropped', 'lost', 'done', 'finished', []],
  ['the failure of lost work is dropped', 'lost', 'failed', 'finished', []],
  ['what is lost cannot leave', 'lost', 'leave', 'lost', []],
  ['losing twice is harmless', 'lost', 'lost', 'lost', []],
  ['an answer may come after the loss', 'finished', 'stored', 'finished', []],
  ['a loss may be found after the end', 'finished', 'lost', 'finished', []],
  ['a drain may begin after the end', 'finished', 'leave', 'finished', []],
];

t.test('each event in each state', async (t) => {
  for (const from of Object.keys(states) as (keyof typeof states)[])
    for (const event of Object.keys(events) as (keyof typeof events)[]) {
      const row = rows.find(([, state, name]) => state === from && name === event);
      const act = () => stepHolder(states[from], events[event], 'one');
      if (row === undefined) {
        t.throws(act, HolderTransitionError, `${event} is illegal in ${from}`);
        continue;
      }
      const { state, effects } = act();
      t.equal(state.name, row[3], row[0]);
      t.same(effects, row[4], row[0]);
    }
});

t.test('an instance takes its share', async (t) => {
  const rows: [name: string, holder: Partial<InstanceLoad>, load: Partial<DutyBacklog>, room: number][] = [
    ['of three, a third', {}, { unfinished: 300, instances: 3 }, 100],
    ['rounded up, so that none is left', {}, { unfinished: 4, instances: 3 }, 2],
    ['less what it holds', { held: 60 }, { unfinished: 300, instances: 3 }, 40],
    ['none if it holds more already', { held: 150 }, { unfinished: 300, instances: 3 }, 0],
    ['no more than its limit', { limit: 10 }, { unfinished: 300, instances: 3 }, 10],
    ['above its share, only what the others have left', { held: 150 }, { unfinished: 300, overdue: 7 }, 7],
    ['of its share, also what the others have not left', { held: 60 }, { unfinished: 300, overdue: 7 }, 40],
    ['of what the others have left, no more than its limit', { held: 950 }, { unfinished: 300, overdue: 70 }, 50],
    ['none above its limit', { held: 1_001 }, { unfinished: 3_300, overdue: 7 }, 0],
    ['none while it drains', { isDraining: true }, { unfinished: 300, instances: 2 }, 0],
    ['none while it drains and one instance stays', { isDraining: true }, { unfinished: 300, instances: 1 }, 0],
    ['all if every instance drains', { isDraining: true }, { unfinished: 300, instances: 0 }, 300],
  ];
  for (const [name, holder, load, room] of rows)
    t.equal(
      roomFor(
        { held: 0, limit: 1_000, isDraining: false, ...holder },
        { unfinished: 0, instances: 3, overdue: 0, ...load },
      ),
      room,
      name,
    );
});

t.test('a duty is overdue once this instance has seen it free for long enough, without a break', async (t) => {
  const free = new FreeDuties(2_000);
  t.equal(free.overdue(['a 0', 'b 0'], 10_000), 0, 'seen for the first time');
  t.equal(free.overdue(['b 0', 'c 0'], 11_999), 0);
  t.equal(free.overdue(['b 0', 'c 0'], 12_000), 1);
  t.equal(free.overdue(['b 1', 'c 0'], 12_001), 0, 'b was claimed meanwhile');
  t.equal(free.overdue(['b 1', 'c 0'], 14_001), 2);
  t.equal(free.overdue([], 14_002), 0);
  t.equal(free.overdue(['c 0'], 20_000), 0, 'c was not free in between');
});

t.test('the pause after a failure doubles, up to a minute', async (t) => {
  t.same([0, 1, 2, 5, 6, 1_000].map(pauseAfterMs), [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]);
});
