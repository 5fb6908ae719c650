import t from 'tap';
import {
  type RecoveryConfig,
  type RecoveryState,
  stateOf,
  stepRecovery,
} from '../../../lib/agent/recovery/recovery.ts';

const config = (uuid: string): RecoveryConfig => ({
  uuid,
  digest: `d${uuid}`,
  template: 't',
  token: 'k',
  pivtoken: 'p',
});
const [a, b, c] = [config('a'), config('b'), config('c')];
const none: RecoveryState = { name: 'none' };
const staged: RecoveryState = { name: 'staged', staged: a };
const active: RecoveryState = { name: 'active', active: a };
const replacing: RecoveryState = { name: 'replacing', active: a, staged: b };
const write = (slot: 'active' | 'staged', one: RecoveryConfig) => ({ do: 'write', slot, config: one });
const remove = { do: 'remove', slot: 'staged' };
const stage = (one: RecoveryConfig) => ({ type: 'stage', config: one }) as const;
const activate = (one: RecoveryConfig) => ({ type: 'activate', uuid: one.uuid }) as const;
const activated = (one: RecoveryConfig) => ({
  state: { name: 'active', active: one },
  effects: [write('active', one), remove],
});

t.test('each event in each state', async (t) => {
  const newer = { ...a, token: 'another' };
  const rows: [string, RecoveryState, Parameters<typeof stepRecovery>[1], object][] = [
    ['the first one is staged', none, stage(a), { state: staged, effects: [write('staged', a)] }],
    ['nothing is staged', none, activate(a), { refusal: 'not staged' }],
    [
      'the same is staged again, with its new token',
      staged,
      stage(newer),
      { state: { name: 'staged', staged: newer }, effects: [write('staged', newer)] },
    ],
    [
      'another is staged in its place',
      staged,
      stage(b),
      { state: { name: 'staged', staged: b }, effects: [write('staged', b)] },
    ],
    ['it becomes active', staged, activate(a), activated(a)],
    ['another is asked for', staged, activate(b), { refusal: 'not staged' }],
    ['the active one is staged', active, stage(a), { refusal: 'already active' }],
    ['the next one is staged', active, stage(b), { state: replacing, effects: [write('staged', b)] }],
    ['it is active already', active, activate(a), { state: active, effects: [] }],
    ['another is not staged', active, activate(b), { refusal: 'not staged' }],
    ['the active one is staged beside another', replacing, stage(a), { refusal: 'already active' }],
    ['the staged one again', replacing, stage(b), { state: replacing, effects: [write('staged', b)] }],
    [
      'a third one',
      replacing,
      stage(c),
      { state: { name: 'replacing', active: a, staged: c }, effects: [write('staged', c)] },
    ],
    ['the next one becomes active', replacing, activate(b), activated(b)],
    ['the active one stays active, the other staged', replacing, activate(a), { state: replacing, effects: [] }],
    ['a third one is not staged', replacing, activate(c), { refusal: 'not staged' }],
  ];
  for (const [name, state, event, step] of rows) t.strictSame(stepRecovery(state, event), step, name);
});

t.test('the state from what is on disk', async (t) => {
  t.strictSame(stateOf({}), none);
  t.strictSame(stateOf({ staged: a }), staged);
  t.strictSame(stateOf({ active: a }), active);
  t.strictSame(stateOf({ active: a, staged: b }), replacing);
  t.strictSame(stateOf({ active: a, staged: a }), active, 'an activation was cut off');
});
