/** When `cnapi watch` says that what it shows may no longer be true. */
import t from 'tap';
import { Freshness } from '../../../lib/cli/watch/freshness.ts';

type Event = ['asked' | 'failed' | 'heardPart', at: number] | ['answered', at: number, time: string];

const rows: [name: string, events: Event[], now: number, forMs: number | undefined, answeredAt?: string][] = [
  ['nothing was asked', [], 9_000, undefined],
  ['an answer is awaited', [['asked', 1_000]], 2_999, undefined],
  ['the first answer is overdue', [['asked', 1_000]], 3_000, 2_000],
  [
    'an answer came',
    [
      ['asked', 1_000],
      ['answered', 4_000, 'a'],
    ],
    90_000,
    undefined,
  ],
  [
    'a later one is awaited',
    [
      ['asked', 1_000],
      ['answered', 2_000, 'a'],
      ['asked', 4_000],
    ],
    5_999,
    undefined,
  ],
  [
    'a later one is overdue',
    [
      ['asked', 1_000],
      ['answered', 2_000, 'a'],
      ['asked', 4_000],
    ],
    6_500,
    2_500,
    'a',
  ],
  [
    'parts of a slow answer come',
    [
      ['asked', 1_000],
      ['heardPart', 2_900],
      ['heardPart', 4_800],
    ],
    6_799,
    undefined,
  ],
  [
    'the next part is overdue',
    [
      ['asked', 1_000],
      ['heardPart', 2_900],
    ],
    4_950,
    2_050,
  ],
  [
    'parts come after a failure',
    [
      ['asked', 1_000],
      ['failed', 1_100],
      ['asked', 3_000],
      ['heardPart', 3_050],
    ],
    3_100,
    2_100,
  ],
  [
    'a part came before the question',
    [
      ['asked', 500],
      ['heardPart', 600],
      ['answered', 700, 'a'],
      ['asked', 1_000],
    ],
    3_000,
    2_000,
    'a',
  ],
  [
    'a question failed at once',
    [
      ['asked', 1_000],
      ['failed', 1_100],
    ],
    1_100,
    100,
  ],
  [
    'it goes on while the next is asked',
    [
      ['asked', 1_000],
      ['failed', 1_100],
      ['asked', 3_000],
    ],
    3_100,
    2_100,
  ],
  [
    'it ends with an answer',
    [
      ['asked', 1_000],
      ['failed', 1_100],
      ['answered', 1_200, 'b'],
    ],
    9_000,
    undefined,
  ],
  [
    'a failure before the last answer is over',
    [
      ['asked', 1],
      ['failed', 2],
      ['asked', 3],
      ['answered', 4, 'b'],
      ['asked', 5],
    ],
    6,
    undefined,
  ],
];

for (const [name, events, now, forMs, answeredAt] of rows)
  t.test(name, (t) => {
    const freshness = new Freshness();
    for (const [kind, at, time = ''] of events) {
      if (kind === 'asked') freshness.asked(at);
      if (kind === 'heardPart') freshness.heardPart(at);
      if (kind === 'failed') freshness.failed();
      if (kind === 'answered') freshness.answered(time);
    }
    t.same(freshness.silence(now), forMs === undefined ? undefined : { forMs, answeredAt });
    t.end();
  });
