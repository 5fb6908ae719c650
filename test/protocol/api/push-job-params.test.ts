import t from 'tap';
import { pushJobContracts } from '../../../lib/protocol/api/push-jobs.ts';
import { pushScheduleContracts } from '../../../lib/protocol/api/push-schedules.ts';

const NAME = 'é';
const WIDE = 'é'.repeat(20_000);

const ENVIRONMENTS: [name: string, env: Record<string, string>, isAccepted: boolean][] = [
  ['64 KiB of names and values', { [NAME]: WIDE, B: 'x'.repeat(65_536 - 40_003) }, true],
  ['a byte more in a value', { [NAME]: WIDE, B: 'x'.repeat(65_536 - 40_002) }, false],
  ['a byte more in a name', { [NAME]: WIDE, BB: 'x'.repeat(65_536 - 40_003) }, false],
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
