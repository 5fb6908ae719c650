/** What a schedule can be created with. */
import { randomUUID } from 'node:crypto';
import t from 'tap';
import { pushScheduleContracts } from '../../../../lib/protocol/api/push/schedules.ts';

const params = pushScheduleContracts.CreatePushSchedule.params;

const TIMES: [name: string, at: string, read: string | undefined][] = [
  ['UTC', '2030-01-01T02:30:00Z', '2030-01-01T02:30:00.000Z'],
  ['with an offset', '2030-01-01T02:30:00+02:00', '2030-01-01T00:30:00.000Z'],
  ['without an offset', '2030-01-01T02:30:00', undefined],
  ['of no day', '2030-02-31T02:30:00Z', undefined],
  ['the last one', '9999-12-31T23:59:59Z', '9999-12-31T23:59:59.000Z'],
  ['in the year 10000 by UTC', '9999-12-31T23:59:59-23:59', undefined],
];

for (const [name, at, read] of TIMES)
  t.test(`the time of a schedule: ${name}`, (t) => {
    const parsed = params.shape.at.safeParse(at);
    t.equal(parsed.data, read, at);
    t.end();
  });

t.test('a job with a member that push jobs do not have is refused, and a long name is cut', (t) => {
  for (const value of ['x', null]) {
    const body = { cron: '@daily', job: { command: 'true', group: 'web', ['x'.repeat(1_000_000)]: value } };
    const { error } = params.safeParse(body);
    t.same(
      error?.issues.map(({ path, message }) => ({ path, message })),
      [{ path: ['job'], message: `${'x'.repeat(100)}: a push job has no such member` }],
    );
  }
  t.end();
});

const server = randomUUID();
const JOBS: [name: string, job: object, refused: string[]][] = [
  ['one server', { servers: [server], quorum: 1 }, []],
  ['servers that match, whose number is not known yet', { where: ['uuid=*'], quorum: 20_000 }, []],
  ['the failed nodes of an earlier job', { from_job: server, from_status: 'failed' }, []],
  [
    'no servers',
    {},
    ['servers: value is missing: name the servers by servers, or by where, or by group, or by from_job'],
  ],
  ['two kinds of servers', { where: ['uuid=*'], group: 'web' }, ['where: value cannot be combined with group']],
  ['a status without an earlier job', { group: 'web', from_status: 'failed' }, ['from_status: value needs from_job']],
  [
    'a quorum of more servers than are named',
    { servers: [server], quorum: 5 },
    ['quorum: value is 5, and there is 1 server; for a share of them write "5%"'],
  ],
  [
    'a quorum of more servers than a job can have',
    { where: ['uuid=*'], quorum: 20_001 },
    ['quorum: value is 20001, and a job can have at most 20000 servers'],
  ],
  [
    'several mistakes',
    { servers: [server], where: ['uuid=*'], quorum: 2 },
    [
      'servers: value cannot be combined with where',
      'quorum: value is 2, and there is 1 server; for a share of them write "2%"',
    ],
  ],
  [
    'mistakes of members and of their combination',
    { quorum: 'most', ticket: { scope: 'é'.repeat(129), id: 'x' } },
    [
      'quorum: value is neither a number of nodes nor a percentage such as "80%"',
      'ticket: scope: value is longer than 256 bytes',
      'servers: value is missing: name the servers by servers, or by where, or by group, or by from_job',
    ],
  ],
  [
    'a ticket with a long id',
    { group: 'web', ticket: { scope: 'x', id: '€'.repeat(342) } },
    ['ticket: id: value is longer than 1024 bytes'],
  ],
  ['a ticket with the longest names', { group: 'web', ticket: { scope: 'é'.repeat(128), id: 'é'.repeat(512) } }, []],
];

for (const [name, job, refused] of JOBS)
  t.test(`the job of a schedule: ${name}`, (t) => {
    const { error } = params.safeParse({ cron: '@daily', job: { command: 'true', ...job } });
    const issues = (error?.issues ?? []).map(({ path, message }) => ({ path, message }));
    t.same(
      issues,
      refused.map((message) => ({ path: ['job'], message })),
    );
    t.end();
  });
