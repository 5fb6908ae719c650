import t from 'tap';
import { isDate } from '../../lib/protocol/date.ts';

t.test('a date exists if the calendar has it', (t) => {
  for (const date of ['2030', '2030-02', '2030-02-28', '2028-02-29', '0000-01-01']) t.ok(isDate(date), date);
  for (const date of ['', 'x', '2030-02-29', '2030-02-30', '2030-04-31', '2030-13-01', '2030-00-01', '2030-01-00'])
    t.notOk(isDate(date), date);
  t.end();
});
