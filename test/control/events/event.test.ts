import t from 'tap';
import {
  formatPosition,
  isWanted,
  type LoggedEvent,
  type LogState,
  parsePosition,
  positionState,
} from '../../../lib/control/events/event.ts';

const storedAt = new Date('2030-01-01T00:00:00.120Z');
const event = (fields: Partial<LoggedEvent>): LoggedEvent => ({
  id: 7,
  kind: 'task',
  serverUuid: 'a',
  storedAt,
  body: {},
  ...fields,
});

t.test('a filter passes the kinds and servers it names, and gaps', async (t) => {
  const cases: [string, Parameters<typeof isWanted>, boolean][] = [
    ['everything', [event({}), {}], true],
    ['its kind', [event({}), { kinds: ['status', 'task'] }], true],
    ['another kind', [event({}), { kinds: ['status'] }], false],
    ['its server', [event({}), { serverUuid: 'a' }], true],
    ['another server', [event({}), { serverUuid: 'b' }], false],
    ['an instance, without a server', [event({ kind: 'instance', serverUuid: null }), { serverUuid: 'a' }], false],
    ['its kind and another server', [event({}), { kinds: ['task'], serverUuid: 'b' }], false],
    ['a gap', [event({ kind: 'gap', serverUuid: null }), { kinds: ['status'], serverUuid: 'b' }], true],
  ];
  for (const [name, args, wanted] of cases) t.equal(isWanted(...args), wanted, name);
});

t.test('a position is read as it was written, and anything else is invalid', async (t) => {
  for (const position of [
    { id: 0, storedAtMs: 0 },
    { id: 12, storedAtMs: 0 },
    { id: 12, storedAtMs: storedAt.getTime() },
    { id: 999_999_999_999_999, storedAtMs: storedAt.getTime() },
  ])
    t.same(parsePosition(formatPosition(position)), position);
  for (const text of ['', '-', '12', '0-1', '12-', '-1', '12-!', '1e3-0', ' 1-0', `${'9'.repeat(16)}-0`, '1-0-0', 'x'])
    t.equal(parsePosition(text), undefined, JSON.stringify(text));
});

t.test('a position is kept, lost or unknown to the log', async (t) => {
  const log: LogState = { last: 20, oldest: 10, storedAt: undefined };
  const held: LogState = { ...log, storedAt };
  const cases: [string, Parameters<typeof positionState>, ReturnType<typeof positionState>][] = [
    ['the event is kept', [{ id: 12, storedAtMs: storedAt.getTime() }, held], 'held'],
    ['the last event', [{ id: 20, storedAtMs: storedAt.getTime() }, held], 'held'],
    ['just before the oldest kept event', [{ id: 9, storedAtMs: 0 }, log], 'held'],
    ['the next event is not kept', [{ id: 8, storedAtMs: 1 }, log], 'gap'],
    ['the beginning, which is not kept', [{ id: 0, storedAtMs: 0 }, log], 'gap'],
    [
      'the beginning of an empty log',
      [
        { id: 0, storedAtMs: 0 },
        { last: 0, oldest: 1, storedAt: undefined },
      ],
      'held',
    ],
    ['beyond the end', [{ id: 21, storedAtMs: 0 }, log], 'foreign'],
    ['a number that was assigned again', [{ id: 12, storedAtMs: storedAt.getTime() - 1 }, held], 'foreign'],
  ];
  for (const [name, args, standing] of cases) t.equal(positionState(...args), standing, name);
});
