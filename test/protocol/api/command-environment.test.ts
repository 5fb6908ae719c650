import t from 'tap';
import { pushJobContracts } from '../../../lib/protocol/api/push/jobs.ts';
import { pushScheduleContracts } from '../../../lib/protocol/api/push/schedules.ts';
import { serverTaskContracts } from '../../../lib/protocol/api/server-tasks.ts';

const WIDE = 'é'.repeat(20_000);

const ENVIRONMENTS: [name: string, env: Record<string, string>, isAccepted: boolean][] = [
  ['64 KiB of names and values', { A: WIDE, B: 'x'.repeat(65_536 - 40_002) }, true],
  ['a byte more in a value', { A: WIDE, B: 'x'.repeat(65_536 - 40_001) }, false],
  ['a byte more in a name', { A: WIDE, BB: 'x'.repeat(65_536 - 40_002) }, false],
  ['names that shells can export', { _: 'x', a1_B: 'y' }, true],
  ['a name with a dot', { 'a.b': 'x' }, false],
  ['a name that begins with a digit', { '1a': 'x' }, false],
  ['a name with another letter', { é: 'x' }, false],
  ['an empty name', { '': 'x' }, false],
  ['a variable that JavaScript objects lose', JSON.parse('{"__proto__":"x"}'), false],
  ['many small variables', Object.fromEntries(Array.from({ length: 1_000 }, (_, each) => [`V${each}`, 'x'])), true],
];

for (const [name, env, isAccepted] of ENVIRONMENTS)
  t.test(`the environment of a push job: ${name}`, async (t) => {
    const job = { command: 'true', servers: ['564d5b45-3a8c-4c1f-9d0a-0123456789ab'], env };
    const created = pushJobContracts.CreatePushJob.params.safeParse(job);
    t.equal(created.success, isAccepted);
    t.same(created.error?.issues.map(({ path }) => path) ?? [], isAccepted ? [] : [['env']]);
    const scheduled = pushScheduleContracts.CreatePushSchedule.params.safeParse({ cron: '0 0 * * *', job });
    t.equal(scheduled.success, isAccepted, 'and of a job of a schedule');
  });

t.test('a variable that would be lost on the way to a command of execute is refused by its name', async (t) => {
  const { params } = serverTaskContracts.CommandExecute;
  const refusalOf = (env: object) => {
    const asked = { server_uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab', script: 'true', env };
    const issues = params.safeParse(asked).error?.issues ?? [];
    return issues.map(({ path, message }) => [...path, message].join(' ')).join('; ');
  };
  t.equal(refusalOf({ PATH: '/bin', N: 1 }), '');
  t.match(refusalOf({ PATH: '/bin', 'a.b': 1 }), /^env .*"a\.b"/);
  t.match(refusalOf(JSON.parse('{"__proto__":"x"}')), /^env .*"__proto__"/);
  t.match(refusalOf({ ['x'.repeat(200)]: 1, ['-'.repeat(200)]: 1 }), /^env .*"-{100}"/);
});
