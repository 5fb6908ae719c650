/** Tests what `npm run sim -- --reached` prints about code that ran in part. */
import { Session } from 'node:inspector/promises';
import t from 'tap';
import { reachLines, reachOf, type ScriptCoverage } from './reached.ts';

t.test('each branch that did not run is listed once, with its line', async (t) => {
  const source = `
export function half(isIt) {
  if (isIt) {
    return 'reached';
  }
  return isIt === undefined
    ? 'never'
    : 'neither';
}
export function never() {
  if (Math.abs(1) > 2) return 3;
}
half(true);
`;
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: false, detailed: true });
  const url = `data:text/javascript,${encodeURIComponent(source)}`;
  await import(url);
  const { result } = await session.post('Profiler.takePreciseCoverage');
  session.disconnect();
  const reach = reachOf(result.find((script) => script.url === url) as ScriptCoverage, 'half.ts', source);
  t.same(
    reach.unreached.map(({ line, text }) => [line, text]),
    [
      [6, 'return isIt === undefined'],
      [10, 'export function never() {'],
    ],
  );
  t.match(reachLines(reach)[1], /^ {2}half\.ts:6-\d {2}return isIt === undefined$/);
});
