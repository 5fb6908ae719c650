import t from 'tap';
import {
  decideWaitOutcome,
  type ExpiryRequest,
  findTicketIssue,
  lifeStage,
  MAX_EXPIRES_IN_SECONDS,
  parseExpiry,
  TICKET_LIMITS,
  type TicketRequest,
  type TicketStatus,
} from '../../../lib/control/waitlist/ticket.ts';

const statuses: TicketStatus[] = ['queued', 'active', 'finished', 'expired'];

t.test('each state of a ticket gives the answer of a wait and its progress', async (t) => {
  const told = [...statuses, undefined].map((standing) => [decideWaitOutcome(standing), lifeStage(standing)]);
  t.same(told, [
    [undefined, 0],
    ['active', 1],
    ['finished', 2],
    ['expired', 2],
    ['deleted', 3],
  ]);
});

t.test('an expiry is a time in ISO 8601, kept as given', async (t) => {
  const times: [text: string, iso: string][] = [
    ['3000', '3000-01-01T00:00:00.000Z'],
    ['2030-06', '2030-06-01T00:00:00.000Z'],
    ['2030-06-07', '2030-06-07T00:00:00.000Z'],
    ['2028-02-29', '2028-02-29T00:00:00.000Z'],
    ['2030-06-07T08:09', '2030-06-07T08:09:00.000Z'],
    ['2030-06-07T08:09:10', '2030-06-07T08:09:10.000Z'],
    ['2030-06-07T08:09:10.123456789Z', '2030-06-07T08:09:10.123Z'],
    ['2030-06-07t08:09:10z', '2030-06-07T08:09:10.000Z'],
    ['2030-06-07 08:09:10+02:00', '2030-06-07T06:09:10.000Z'],
    ['1969-12-31T23:59:59-11:30', '1970-01-01T11:29:59.000Z'],
    ['0001', '0001-01-01T00:00:00.000Z'],
    ['9999-12-31T23:59:59.999Z', '9999-12-31T23:59:59.999Z'],
  ];
  for (const [text, iso] of times) t.same(parseExpiry({ expiresAt: text }), { atMs: Date.parse(iso), text });
});

t.test('an invalid expiry is refused by name', async (t) => {
  const times = [
    '',
    ' ',
    'never',
    'tomorrow',
    '1700000000',
    '300',
    '0000',
    '10000',
    '+010000-01-01',
    '-000001',
    '2030-13',
    '2030-02-30',
    '2029-02-29',
    '2030-00-10',
    '2030-06-07T',
    '2030-06-07T25:00',
    '2030-06-07T08:60',
    '2030-06-07T08:09:10+99:00',
    '0001-01-01T00:00:00+01:00',
    '9999-12-31T23:59:59-01:00',
    'Fri, 07 Jun 2030 08:09:10 GMT',
    '3000\0',
    'hello 5',
  ];
  for (const expiresAt of times)
    t.match(parseExpiry({ expiresAt }), { field: 'expires_at', message: /ISO 8601/ }, JSON.stringify(expiresAt));
  const durations = [0, -1, 0.0001, Number.NaN, Number.POSITIVE_INFINITY, MAX_EXPIRES_IN_SECONDS + 1];
  for (const expiresInSeconds of durations)
    t.match(parseExpiry({ expiresInSeconds }), { field: 'expires_in', message: /seconds/ }, `${expiresInSeconds}`);
});

t.test('an expiry can be a duration, to the millisecond', async (t) => {
  const durations: [seconds: number, inMs: number][] = [
    [1, 1000],
    [0.0015, 2],
    [MAX_EXPIRES_IN_SECONDS, MAX_EXPIRES_IN_SECONDS * 1000],
  ];
  for (const [expiresInSeconds, inMs] of durations) t.same(parseExpiry({ expiresInSeconds }), { inMs });
});

t.test('a request is accepted, or refused for its first field that cannot be kept', async (t) => {
  const expiry: ExpiryRequest = { expiresAt: '3000' };
  const complaint = (fields: Partial<TicketRequest>) =>
    findTicketIssue({ serverUuid: 'default', scope: 'vm', id: 'x', expiry, ...fields })?.field;
  t.equal(complaint({}), undefined);
  t.equal(complaint({ action: '', reqId: '', extra: {} }), undefined);
  t.equal(complaint({ serverUuid: '' }), 'server_uuid');
  t.equal(complaint({ scope: '' }), 'scope');
  t.equal(complaint({ id: '' }), 'id');
  t.equal(complaint({ id: 'a\0' }), 'id');
  t.equal(complaint({ scope: '\udc00' }), 'scope');
  t.equal(complaint({ action: '\0' }), 'action');
  t.equal(complaint({ extra: { '\ud800': '\0' } }), undefined, 'it can be kept as JSON');
  for (const [field, name] of [
    ['id', 'id'],
    ['action', 'action'],
    ['reqId', 'reqid'],
  ] as const) {
    const longest = 'é'.repeat(TICKET_LIMITS[name] / 2);
    t.equal(complaint({ [field]: longest }), undefined);
    t.equal(complaint({ [field]: `${longest}x` }), name);
  }
  t.equal(complaint({ extra: { text: 'x'.repeat(TICKET_LIMITS.extra - 11) } }), undefined);
  t.equal(complaint({ extra: { text: 'x'.repeat(TICKET_LIMITS.extra - 10) } }), 'extra');
});
