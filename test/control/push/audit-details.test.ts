/** How much the audit keeps of a push job or a schedule, whatever its size. */
import t from 'tap';
import { newJobDetails, newScheduleDetails, scheduleChangeDetails } from '../../../lib/control/push/audit-details.ts';

t.test('the details of a job say how many variables and conditions there are, if some are left out', async (t) => {
  const variables = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, each) => [`V${each}`, '1']));
  const where = (count: number) => Array.from({ length: count }, (_, each) => `traits.t${each}=x`);
  const details = (env: Record<string, string>, conditions: readonly string[]) => {
    const common = { organization: undefined, command: 'true', maskedOptions: undefined, file: undefined, nodes: [] };
    return [
      newJobDetails({ ...common, options: { env }, selection: { where: conditions } }),
      newScheduleDetails({ command: 'true', env, where: conditions }),
      scheduleChangeDetails({ job: { env, where: conditions } }),
    ].map((text) => JSON.parse(text));
  };
  for (const found of details(variables(21), where(6))) {
    t.match(found, { env_count: 21, where_count: 6 });
    t.equal(Object.keys(found.env).length, 20);
    t.equal(found.where.length, 5);
  }
  for (const found of details(variables(20), where(5))) {
    t.notOk('env_count' in found || 'where_count' in found);
    t.equal(Object.keys(found.env).length, 20);
  }
});

t.test('the details of a change name a bounded part of its members, also of long names', async (t) => {
  const names = Array.from({ length: 1_000 }, (_, each) => `${each}${'x'.repeat(1_000)}`);
  const details = scheduleChangeDetails({ job: Object.fromEntries(names.map((name) => [name, null])) });
  t.match(JSON.parse(details), { job_fields: { 0: /^0x{39}$/ } });
  t.ok(details.length < 4_096, `${details.length} characters`);
});
