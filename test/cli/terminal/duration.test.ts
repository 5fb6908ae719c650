import t from 'tap';
import { parseDuration, parseTime, shortDuration, shortTime } from '../../../lib/cli/terminal/duration.ts';

t.test('durations and times are parsed and formatted', (t) => {
  for (const [text, ms] of Object.entries({
    '90s': 90_000,
    '10m': 600_000,
    '1h30m': 5_400_000,
    '500ms': 500,
    '1.5': 1500,
    '2d': 172_800_000,
  }))
    t.equal(parseDuration(text, '--wait'), ms, text);
  for (const bad of ['', 'soon', '-1s', '1w', '1s ', '1e9'])
    t.throws(() => parseDuration(bad, '--wait'), { message: /^--wait .* is not a duration such as/ }, `"${bad}"`);
  for (const [ms, text] of [
    [900, '0.9s'],
    [65_000, '1m 5s'],
    [3_700_000, '1h 1m'],
    [90_000_000, '1d 1h'],
  ] as const)
    t.equal(shortDuration(ms), text);
  t.equal(shortTime('2030-01-31T12:00:00.123Z'), '2030-01-31 12:00:00Z');
  t.equal(shortTime(null), '-');
  t.equal(parseTime('2h', '--since', 7_200_000), '1970-01-01T00:00:00.000Z');
  t.equal(parseTime('2030-01-31T12:00:00+01:00', '--since', 0), '2030-01-31T11:00:00.000Z');
  t.throws(() => parseTime('2030-02-30T12:00:00Z', '--since', 0), { message: /neither a time/ });
  t.throws(() => parseTime('yesterday', '--since', 0), { message: /neither a time/ });
  t.end();
});
