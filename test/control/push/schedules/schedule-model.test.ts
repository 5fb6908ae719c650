/** Random histories of schedules, and deliberate defects that these must find. */
import t from 'tap';
import { COMPUTING_TIMEOUT_MS } from '../../../support/patience.ts';
import { type Defect, runModel } from './schedule-model.ts';

const SEEDS = 3;
/** Until one of them finds a defect. */
const DEFECT_SEEDS = 4;

t.setTimeout(COMPUTING_TIMEOUT_MS);

for (let seed = 1; seed <= SEEDS; seed += 1)
  t.test(`what is promised of schedules holds in the history of seed ${seed}`, async (t) => {
    t.equal(await runModel(t, String(seed)), undefined);
  });

const defects: readonly (Defect & { found: RegExp })[] = [
  {
    name: 'a time has come when either clock says so',
    function: 'cnapi_schedule_time',
    cuts: [['least(', 'greatest(']],
    found: /came early/,
  },
  {
    name: 'the row of the schedule is not compared with what was read',
    function: 'cnapi_lock_push_schedule',
    cuts: [[/and not s\.is_paused[\s\S]*for update/, 'for update']],
    also: 'drop index cnapi_push_firings_at',
    found: /started two jobs|came after a later one|of its jobs run/,
  },
  {
    name: 'a job is created although its time was used up by another instance',
    ofStatements: [[/then (cnapi_fire_push_schedule\([^)]*\)) else/, 'then coalesce(nullif($1, false), true) else']],
    found: /used up no time/,
  },
  {
    name: 'a time that is passed over stays due',
    function: 'cnapi_pass_push_schedule',
    cuts: [['set next_at = p_then_at', 'set next_at = s.next_at']],
    found: /its next time is/,
  },
  {
    name: 'whether the last job runs is neither read nor checked',
    function: 'cnapi_is_busy_push_schedule',
    cuts: [["s.overlap <> 'allow' and j.state <> 'ended'", 'false']],
    ofStatements: [["coalesce(j.state, 'ended') <> 'ended' as is_busy", 'false as is_busy']],
    found: /of its jobs run/,
  },
];

for (const { found, ...defect } of defects)
  t.test(`a history finds the defect: ${defect.name}`, async (t) => {
    for (let seed = 1; seed <= DEFECT_SEEDS; seed += 1) {
      const violation = await runModel(t, String(seed), defect);
      if (violation === undefined) continue;
      t.comment(`seed ${seed}: ${violation}`);
      return t.match(violation, found);
    }
    return t.fail('no history finds it');
  });
