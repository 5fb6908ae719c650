/** The command line of `npm run chaos`. */
import t from 'tap';
import { parseOptions } from './options.ts';

t.test('the command line is parsed into exact options', async (t) => {
  const usual = {
    plan: undefined,
    minutes: 10,
    seed: 1,
    only: [],
    out: undefined,
    defects: false,
    check: undefined,
  };
  t.strictSame(parseOptions([]), usual);
  t.strictSame(parseOptions(['--plan', 'instances']), { ...usual, plan: 'instances' });
  t.strictSame(parseOptions(['--minutes', '2', '--only', 'a', '--only', 'b']), {
    ...usual,
    minutes: 2,
    only: ['a', 'b'],
  });
  t.equal(parseOptions(['--help']), undefined);
  const wrong: [string[], RegExp][] = [
    [['--plan', 'all'], /--plan all does not exist/],
    [['--plan', 'instances', '--minutes', '1'], /does not go with --minutes/],
    [['--plan', 'instances', '--only', 'a'], /does not go with/],
    [['--minutes', '0'], /is not a time/],
  ];
  for (const [args, message] of wrong) t.throws(() => parseOptions(args), message);
});
