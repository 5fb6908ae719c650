import t from 'tap';
import { explainNoderole } from '../../../lib/control/annealer/explain.ts';
import type { NoderoleDetails } from '../../../lib/control/annealer/noderole-store.ts';
import type { RoleDocument } from '../../../lib/protocol/api/documents/annealer.ts';

type Facts = Parameters<typeof explainNoderole>[0];

const noderole = (fields: Partial<NoderoleDetails>): NoderoleDetails => ({
  ...{ id: 'n', role: 'web', server_uuid: 's', deployment_id: 'd', state: 'todo', cohort: 1, blocked_by: null },
  ...{ is_stale: false, run_count: 0, failures: 0, pause_ticks: 0, error: null, state_since: new Date(0) },
  ...{ proposed_data: null, committed_data: {}, wall: {}, parents: [], children: [] },
  ...fields,
});

const explain = (fields: Partial<NoderoleDetails>, facts: Partial<Facts> = {}) =>
  explainNoderole({
    noderole: noderole(fields),
    role: { jig: 'script', flags: [] as string[] } as RoleDocument,
    isServerRunning: true,
    openRun: undefined,
    openRuns: 0,
    settings: { annealerMaxRuns: 10, annealerJigs: ['script'] },
    ...facts,
  });

t.test('each state is explained, with what takes it further', async (t) => {
  t.match(explain({ state: 'proposed' }), /cnapi deployment commit/);
  t.match(explain({ state: 'proposed' }, { openRun: { noderoleId: 'n', role: 'web' } }), /its last run has not ended/);
  t.match(explain({ state: 'active' }), /^active$/);
  t.match(explain({ state: 'error', failures: 3 }), /failed 3 times.*cnapi noderole retry/);
  t.match(explain({ state: 'transition' }), /^runs$/);
  t.match(explain({ state: 'transition', is_stale: true }), /will run again/);
});

t.test('what is blocked waits for named parents, or names the one in error (C29)', async (t) => {
  const parent = (id: string, state: 'active' | 'todo') => ({
    id,
    role: 'db',
    server_uuid: 's',
    state,
    is_order_only: false,
  });
  t.equal(
    explain({ state: 'blocked', parents: [parent('a', 'active'), parent('b', 'todo')] }),
    'waits for its parents: db (b) is todo',
  );
  const many = ['a', 'b', 'c', 'd', 'e'].map((id) => parent(id, 'todo'));
  t.match(explain({ state: 'blocked', parents: many }), /db \(c\) is todo, and 2 more$/);
  t.match(explain({ state: 'blocked', blocked_by: 'x', parents: many }), /blocked by noderole x, which is in error/);
});

t.test('what is due says why it does not run yet, each reason alone (C31)', async (t) => {
  t.match(explain({}), /the annealer begins its run next/);
  t.match(explain({}, { role: undefined }), /role web does not exist/);
  t.match(explain({}, { isServerRunning: undefined }), /its server does not exist any more/);
  t.match(explain({}, { isServerRunning: false }), /waits for its server, which is not running/);
  t.match(explain({}, { settings: { annealerMaxRuns: 10, annealerJigs: ['noop'] } }), /jig script is not active/);
  t.match(explain({ pause_ticks: 30 }), /tried again in about 30 s/);
  t.match(explain({}, { openRun: { noderoleId: 'o', role: 'db' } }), /waits for the run of db \(o\)/);
  t.match(explain({}, { openRuns: 10 }), /limit of 10 concurrent runs/);
  t.match(explain({}, { settings: { annealerMaxRuns: 0, annealerJigs: ['script'] } }), /annealer is paused/);
});
