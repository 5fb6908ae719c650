/** How much the audit keeps of a push job or a schedule, whatever its size. */
import t from 'tap';
import { scheduleChangeDetailsOf } from '../../../lib/control/push/job-details.ts';

t.test('the details of a change name a bounded part of its members, also of long names', async (t) => {
  const names = Array.from({ length: 1_000 }, (_, each) => `${each}${'x'.repeat(1_000)}`);
  const details = scheduleChangeDetailsOf({ job: Object.fromEntries(names.map((name) => [name, null])) });
  t.match(JSON.parse(details), { job_fields: { 0: /^0x{39}$/ } });
  t.ok(details.length < 4_096, `${details.length} characters`);
});
