/** The text of events. */
import t from 'tap';
import { EventFormatter } from '../../../lib/cli/events/event-line.ts';

const UUID = 'c163bce9-0000-4000-8000-000000000001';
const OLD = '4d3e0fc0-0000-4000-8000-000000000002';
const NEW = '462254c3-0000-4000-8000-000000000003';

t.test('the end of an earlier run is told apart from the end of the newest one', (t) => {
  const listed = [
    { uuid: UUID, run: NEW, started: '2030-01-01T00:05:00.000Z' },
    { uuid: UUID, run: OLD, started: '2030-01-01T00:00:00.000Z' },
  ];
  const cases: [string, typeof listed, [string, string][], string][] = [
    [
      'killed and started again',
      listed.slice(1),
      [
        [NEW, 'live'],
        [OLD, 'lapsed'],
      ],
      'lapsed (an earlier run)',
    ],
    ['the new run was live before the first event', listed, [[OLD, 'lapsed']], 'lapsed (an earlier run)'],
    [
      'neither run was listed',
      [],
      [
        [OLD, 'live'],
        [NEW, 'live'],
        [OLD, 'lapsed'],
      ],
      'lapsed (an earlier run)',
    ],
    ['killed', listed.slice(1), [[OLD, 'lapsed']], 'lapsed'],
    ['an instance that was never listed', [], [[OLD, 'stopped']], 'stopped'],
    [
      'the log from its beginning',
      listed,
      [
        [OLD, 'live'],
        [OLD, 'lapsed'],
      ],
      'lapsed',
    ],
    [
      'the newest run ends as well',
      listed,
      [
        [OLD, 'lapsed'],
        [NEW, 'draining'],
        [NEW, 'stopped'],
      ],
      'stopped',
    ],
  ];
  for (const [name, instances, events, last] of cases) {
    const formatter = new EventFormatter(instances);
    const told = events.map(([run, state]) => formatter.format(changed(run, state)));
    const run = events.at(-1)?.[0].slice(0, 8);
    t.equal(told.at(-1), `2030-01-01 00:06:00Z  instance  ${UUID}  http://127.0.0.1:8080  run ${run}  ${last}`, name);
  }
  t.end();
});

t.test('the line of a schedule tells what happened, and what became of its time when it was used up', (t) => {
  const formatter = new EventFormatter([]);
  const lineOf = (change: string) =>
    formatter.format({
      ...{ id: '1-a', event: 'push_schedule' },
      data: { id: UUID, change, status: 'active', at: '2030-01-01T00:05:00.000Z', outcome: 'started' },
    } as never);
  t.match(lineOf('paused'), new RegExp(`${UUID}  paused  active$`));
  t.match(lineOf('fired'), new RegExp(`${UUID}  fired  active  2030-01-01 00:05:00Z  started$`));
  t.end();
});

function changed(run: string, state: string) {
  const time = '2030-01-01T00:06:00.000Z';
  const data = { uuid: UUID, run, url: 'http://127.0.0.1:8080', version: '0.2.0', state, time };
  return { id: '1-a', event: 'instance', data } as Parameters<EventFormatter['format']>[0];
}
