/** The pipeline as a whole, and the steps that compare servers. */
import t from 'tap';
import type { CandidateServer } from '../../../lib/control/placement/candidate.ts';
import { DEFAULT_PIPELINE, runPipeline, type StepName } from '../../../lib/control/placement/pipeline.ts';
import { WEIGHTS } from '../../../lib/control/placement/steps.ts';
import { aCandidate, aContext } from './support/candidates.ts';

const run = (names: string, candidates: readonly CandidateServer[], context = aContext()) =>
  runPipeline(
    names.split(' ').map((entry) => entry.split('|') as StepName[]),
    candidates,
    context,
  );
const ranked = (names: string, candidates: readonly CandidateServer[], context = aContext()) =>
  run(names, candidates, context)
    .ranked.map(({ uuid }) => uuid)
    .join(' ');
const numbered = (count: number) =>
  Array.from({ length: count }, (_, number) => aCandidate(`s${number}`, { load: { ram: 10 * number } }));

t.test('the default pipeline chooses the emptiest of equal servers, and lists its steps in order', async (t) => {
  const { ranked, steps } = runPipeline(
    DEFAULT_PIPELINE.map((entry) => entry.split('|') as StepName[]),
    [aCandidate('full', { load: { ram: 950 } }), aCandidate('some', { load: { ram: 500 } }), aCandidate('empty')],
    aContext(),
  );
  t.equal(ranked[0]?.uuid, 'empty');
  t.strictSame(
    steps.map(({ step }) => step),
    DEFAULT_PIPELINE.map((entry) => entry.replace(/\|.*/, '')),
  );
  const step = steps.find(({ step }) => step === 'hard-filter-min-ram');
  t.strictSame(step?.remaining, ['some', 'empty']);
  t.equal(step?.before, 3);
  t.match(step?.explanations.get('full'), /has 50 MiB/);
});

t.test('it ends with the step that leaves no server', async (t) => {
  const { steps, ranked } = run('hard-filter-setup hard-filter-running hard-filter-headnode', [
    aCandidate('a', { isRunning: false }),
  ]);
  t.strictSame([steps.at(-1)?.step, steps.at(-1)?.remaining, ranked], ['hard-filter-running', [], []]);
});

t.test('a|b runs b if a leaves no server', async (t) => {
  const reservoir = aCandidate('a', { isInReservoir: true });
  t.equal(ranked('hard-filter-reservoir|identity', [reservoir]), 'a');
  t.equal(ranked('hard-filter-reservoir|identity', [reservoir, aCandidate('b')]), 'b');
  t.equal(ranked('hard-filter-reservoir', [reservoir]), '');
});

t.test('15 of 100 servers with the most memory are kept for large VMs', async (t) => {
  t.equal(run('hard-filter-large-servers', numbered(6)).ranked.length, 6);
  t.equal(ranked('hard-filter-large-servers', numbered(7)), 's1 s2 s3 s4 s5 s6');
});

t.test('hints that are not strict keep the servers that meet them best, if there are any', async (t) => {
  const inRacks = [
    aCandidate('a', { rack: 'rack-a' }),
    aCandidate('a2', { rack: 'rack-a' }),
    aCandidate('b', { rack: 'rack-b' }),
  ];
  for (const [name, locality, expected] of [
    ['far: another rack', { near: [], far: ['v'] }, 'b'],
    ['near: another server of the rack', { near: ['v'], far: [] }, 'a2'],
    ['far from a VM that nobody knows', { near: [], far: ['x'] }, 'a a2 b'],
    ['far before near', { near: ['v'], far: ['v'] }, 'b'],
  ] as const) {
    const context = aContext({ locality: { isStrict: false, ...locality } }, { located: { v: 'a' } });
    t.equal(ranked('soft-filter-locality-hints', inRacks, context), expected, name);
  }
  const near = aContext({ locality: { isStrict: false, near: ['v'], far: [] } }, { located: { v: 'a' } });
  t.equal(ranked('soft-filter-locality-hints', [aCandidate('a', { rack: 'rack-a' })], near), 'a', 'any server');
  const ofOwner = [
    aCandidate('a', { rack: 'r', load: { owned: 1 } }),
    aCandidate('b', { rack: 'r' }),
    aCandidate('c', { rack: 'q' }),
  ];
  t.equal(ranked('soft-filter-locality-hints', ofOwner), 'c', 'without hints: far from the others of the owner');
});

t.test('each score prefers what its name says, and the opposite with a negative weight', async (t) => {
  const reboot = (days: number) => new Date(Date.UTC(2030, 0, 1 + days)).toISOString();
  for (const [step, weight, candidates, expected] of [
    ['score-unreserved-ram', 'unreserved_ram', numbered(3), 's0 s1 s2'],
    [
      'score-unreserved-disk',
      'unreserved_disk',
      [aCandidate('less', { load: { disk: 9 } }), aCandidate('more')],
      'more less',
    ],
    [
      'score-num-owner-zones',
      'num_owner_zones',
      [aCandidate('two', { load: { owned: 2 } }), aCandidate('one', { load: { owned: 1 } })],
      'one two',
    ],
    [
      'score-current-platform',
      'current_platform',
      [aCandidate('old', { platform: '2029' }), aCandidate('new', { platform: '2030' })],
      'new old',
    ],
    [
      'score-next-reboot',
      'next_reboot',
      [
        aCandidate('soon', { nextReboot: reboot(1) }),
        aCandidate('later', { nextReboot: reboot(30) }),
        aCandidate('never', { nextReboot: reboot(1), lastBoot: reboot(2) }),
      ],
      'never later soon',
    ],
  ] as const) {
    t.equal(ranked(step, candidates), expected, step);
    const { weights } = aContext();
    const opposite = aContext({}, { weights: { ...weights, [weight]: -1 } });
    t.equal(ranked(step, candidates, opposite), expected.split(' ').reverse().join(' '), `${step}, negative`);
    const ignored = run(step, candidates, aContext({}, { weights: { ...weights, [weight]: 0 } }));
    t.equal(ignored.scores.size, 0, `${step}, weight 0`);
  }
});

t.test('the random score orders servers by the numbers that are drawn', async (t) => {
  const drawn = [0.1, 0.9, 0.5];
  const random = { uuid: () => '', fraction: () => drawn.shift() ?? 0 };
  t.equal(
    ranked('score-uniform-random', [aCandidate('a'), aCandidate('b'), aCandidate('c')], aContext({}, { random })),
    'b c a',
  );
});

t.test('scores are added up by their weights', async (t) => {
  const candidates = [aCandidate('memory', { load: { disk: 9 } }), aCandidate('disk', { load: { ram: 9 } })];
  const weighted = (ram: number) =>
    aContext(
      {},
      { weights: { ...Object.fromEntries(WEIGHTS.map((name) => [name, 1])), unreserved_ram: ram } as never },
    );
  t.equal(ranked('score-unreserved-ram score-unreserved-disk', candidates, weighted(2)), 'memory disk');
  t.equal(ranked('score-unreserved-ram score-unreserved-disk', candidates, weighted(0.5)), 'disk memory');
});
