import t from 'tap';
import { isMet, type Result, ratioOf } from '../../../tools/bench/figure.ts';
import type { Floor } from '../../../tools/bench/floors.ts';
import { type Report, toJson } from '../../../tools/bench/report.ts';
import { summarize } from '../../../tools/bench/statistics.ts';
import { number, renderTable } from '../../../tools/bench/table.ts';
import { matchLists } from '../../support/match-lists.ts';

const floor: Floor = { busy: summarize([0.2, 0.3, 0.4]), rested: summarize([0.5, 0.6, 0.7]) };

const fast: Result = {
  what: 'round trip',
  value: 3,
  unit: 'ms',
  floor: { of: '2N + C', value: 2 },
  limit: { on: 'ratio', atMost: 2 },
  notes: ['p99 4 ms'],
};
const slow: Result = {
  what: 'hand-overs',
  value: 100,
  unit: '/s',
  floor: { of: 'pgbench', value: 1000 },
  limit: { on: 'ratio', atLeast: 0.3 },
};
const bounded: Result = { what: 'silent', value: 2501, unit: 'ms', limit: { on: 'value', atMost: 2500 } };
const told: Result = { what: 'resident', value: 12345, unit: 'KB' };

const report: Report = {
  machine: {
    cpu: 'some CPU',
    cores: 2,
    memoryGb: 8,
    system: 'Linux 6',
    node: '24.0.0',
    postgres: '18.4',
    bus: 'redis',
  },
  startedAt: '2026-01-01T00:00:00.000Z',
  isQuick: false,
  isPeers: false,
  floors: { N: floor, C: floor, H: floor, W: floor, F: floor },
  figures: [
    { name: 'one', seconds: 10, loadBefore: 0.25, results: [fast, slow] },
    { name: 'two', seconds: 20, loadBefore: 0.5, results: [bounded, told] },
    { name: 'three', seconds: 1, loadBefore: 1, results: [], error: 'no server came' },
  ],
};

t.test('a limit applies to the ratio or to the value, from above or below', async (t) => {
  t.equal(ratioOf(fast), 1.5);
  t.equal(isMet(fast), true);
  t.equal(isMet({ ...fast, value: 4.1 }), false);
  t.equal(isMet(slow), false);
  t.equal(isMet({ ...slow, value: 300 }), true);
  t.equal(isMet(bounded), false);
  t.equal(isMet({ ...bounded, value: 2500 }), true);
  t.equal(isMet(told), undefined);
  const { floor: _floor, ...withoutFloor } = fast;
  t.equal(isMet(withoutFloor), false, 'a ratio without a floor misses its limit');
});

t.test('the table shows ratios, floors, notes and what could not be measured', async (t) => {
  const lines = renderTable(report).split('\n');
  const lineOf = (text: string) => lines.find((line) => line.includes(text)) ?? '';
  t.match(lineOf('round trip'), /^ *1\.5 × +≤ 2 × +met +round trip +3 ms +2 ms {2}2N \+ C$/);
  t.match(lines[lines.indexOf(lineOf('round trip')) + 1], /^ +p99 4 ms$/);
  t.match(lineOf('hand-overs'), /^ *0\.1 × +≥ 0\.3 × +MISSED +hand-overs +100 \/s +1,000 \/s {2}pgbench$/);
  t.match(lineOf('silent'), /^ *– +≤ 2,500 ms +MISSED +silent +2,501 ms$/);
  t.match(lineOf('resident'), /^ *– +resident +12,345 KB$/);
  t.match(lines[lines.indexOf('three could not be measured:') + 1], /^ +no server came$/);
  t.match(lineOf(' N '), /0\.3 \(0\.2 to 0\.4\) +0\.6 \(0\.5 to 0\.7\)/);
  t.match(lineOf('took'), /one 10 s \(0\.25\), two 20 s \(0\.5\), three 1 s \(1\)/);
  t.equal(lines.at(-1), '1 met, 2 missed, 1 could not be measured');
  t.notMatch(renderTable(report), /QUICK/);
  t.match(renderTable({ ...report, isQuick: true }), /^QUICK SIZES: these numbers mean nothing\n/);
});

t.test('a comparison with peers has no limits', async (t) => {
  const { limit, ...result } = fast;
  const figures = [{ name: 'one', seconds: 10, loadBefore: 0.25, results: [result] }];
  const lines = renderTable({ ...report, isPeers: true, figures }).split('\n');
  const at = lines.findIndex((line) => line.includes('round trip'));
  t.match(lines[at - 2], /^ratio +figure +cnapi +beside$/);
  t.match(lines[at], /^1\.5 × +round trip +3 ms +2 ms {2}2N \+ C$/);
  t.equal(lines.at(-1), '1 measured');
});

t.test('the JSON includes ratios and whether limits are met', async (t) => {
  const { figures } = JSON.parse(toJson(report));
  matchLists(t, figures[0].results, [
    { what: 'round trip', ratio: 1.5, met: true },
    { ratio: 0.1, met: false },
  ]);
  t.match(figures[1].results[1], { ratio: null, met: null });
  t.equal(figures[2].error, 'no server came');
});

t.test('numbers are shown with three significant digits', async (t) => {
  const rows: [number, string][] = [
    [0, '0'],
    [0.01234, '0.012'],
    [1.2345, '1.23'],
    [12.345, '12.3'],
    [123.45, '123'],
    [12345.6, '12,346'],
  ];
  for (const [value, text] of rows) t.equal(number(value), text);
});

t.test('quantiles are measured samples', async (t) => {
  const hundred = Array.from({ length: 100 }, (_, index) => 100 - index);
  t.match(summarize(hundred), { samples: 100, median: 50, p10: 10, p90: 90, p99: 99, max: 100 });
  t.match(summarize([7]), { median: 7, p99: 7, max: 7 });
  t.throws(() => summarize([]), RangeError);
});
