/** How a workflow job goes from step to step: each row of its table. */
import t from 'tap';
import { buildPlan, type StepJob, stepNames, workflowStep } from '../../../lib/control/workflows/definitions.ts';
import {
  type Plan,
  stepWorkflow,
  type WorkflowEvent,
  type WorkflowState,
} from '../../../lib/control/workflows/workflow.ts';

/** `two` is a task that is tried twice, `three` a wait. */
const plan: Plan = {
  chain: [
    { name: 'one', maxTries: 1, isTask: true },
    { name: 'two', maxTries: 2, isTask: true },
    { name: 'three', maxTries: 1, isTask: false },
  ],
  onerror: [
    { name: 'undo-three', maxTries: 1, isTask: true, undoes: 'three' },
    { name: 'undo-one', maxTries: 2, isTask: true, undoes: 'one' },
    { name: 'undo-two', maxTries: 1, isTask: true, undoes: 'two' },
  ],
};

type At = Exclude<WorkflowState, { name: 'ended' }>;
const at = (name: 'due' | 'begun', step: number, tries = 0): At => ({ name, phase: 'chain', step, tries });
const undo = (name: 'due' | 'begun', step: number, left: NonNullable<At['left']>, tries = 0): At => ({
  ...{ name, phase: 'onerror', step, tries, left },
});
const ended = (execution: 'succeeded' | 'failed' | 'canceled'): WorkflowState => ({ name: 'ended', execution });

const begin = { type: 'begin' } as const;
const cancel = { type: 'cancel' } as const;
const timedOut = { type: 'timed-out' } as const;
const done = (isCancelled = false) => ({ type: 'done', isCancelled }) as const;
const failed = (isFinal = false, isCancelled = false) => ({ type: 'failed', isFinal, isCancelled }) as const;

const left = (ending: 'failed' | 'canceled', begun: number) => ({ ending, begun });

const rows: [about: string, from: WorkflowState, event: WorkflowEvent, to: WorkflowState, effects?: object[]][] = [
  ['a due step begins', at('due', 0), begin, at('begun', 0), [{ do: 'start', step: 'one' }]],
  ['a step that has begun is not started again', at('begun', 0), begin, at('begun', 0)],
  ['the next step is due when one is done', at('begun', 0), done(), at('due', 1)],
  ['the job succeeds with its last step', at('begun', 2), done(), ended('succeeded')],
  ['a step that fails is due again', at('begun', 1), failed(), at('due', 1, 1)],
  [
    'a step that is tried again begins again',
    at('due', 1, 1),
    begin,
    at('begun', 1, 1),
    [{ do: 'start', step: 'two' }],
  ],
  ['a step that was tried often enough fails the job', at('begun', 1, 1), failed(), undo('due', 1, left('failed', 2))],
  [
    'a step for which a repeat does not help fails the job',
    at('begun', 1),
    failed(true),
    undo('due', 1, left('failed', 2)),
  ],
  ['a wait whose time is up fails the job', at('begun', 2), timedOut, undo('due', 0, left('failed', 3))],
  ['a cancel before the first step ends the job', at('due', 0), cancel, ended('canceled')],
  ['a cancel before a step undoes the steps before', at('due', 1), cancel, undo('due', 1, left('canceled', 1))],
  ['a cancel before a second try undoes the first', at('due', 1, 1), cancel, undo('due', 1, left('canceled', 2))],
  ['a cancel during a task has the task cancelled', at('begun', 1), cancel, at('begun', 1), [{ do: 'cancel-task' }]],
  ['a cancel ends a wait', at('begun', 2), cancel, undo('due', 0, left('canceled', 3))],
  ['a cancelled task that was done all the same', at('begun', 0), done(true), undo('due', 1, left('canceled', 1))],
  ['a cancelled task is not tried again', at('begun', 1), failed(false, true), undo('due', 1, left('canceled', 2))],
  [
    'an undo step begins',
    undo('due', 1, left('failed', 1)),
    begin,
    undo('begun', 1, left('failed', 1)),
    [{ do: 'start', step: 'undo-one' }],
  ],
  ['undo steps of what has not begun are left out', undo('begun', 1, left('failed', 1)), done(), ended('failed')],
  ['the next undo step', undo('begun', 1, left('canceled', 2)), done(true), undo('due', 2, left('canceled', 2))],
  [
    'an undo step is tried again, also of a cancelled job',
    undo('begun', 1, left('canceled', 1)),
    failed(false, true),
    undo('due', 1, left('canceled', 1), 1),
  ],
  [
    'an undo step that fails holds up no other',
    undo('begun', 1, left('failed', 2), 1),
    failed(),
    undo('due', 2, left('failed', 2)),
  ],
  [
    'an undo step whose time is up holds up no other',
    undo('begun', 0, left('failed', 3)),
    timedOut,
    undo('due', 1, left('failed', 3)),
  ],
  ['the last undo step ends the job', undo('begun', 2, left('canceled', 2)), done(true), ended('canceled')],
  ['a due undo step cannot be cancelled', undo('due', 1, left('failed', 1)), cancel, undo('due', 1, left('failed', 1))],
  [
    'a begun undo step cannot be cancelled',
    undo('begun', 1, left('failed', 1)),
    cancel,
    undo('begun', 1, left('failed', 1)),
  ],
  ['an end is final', ended('failed'), cancel, ended('failed')],
];

t.test('each row of the table', async (t) => {
  for (const [about, from, event, state, effects = []] of rows)
    t.strictSame(stepWorkflow(plan, from, event, 'job'), { state: { ...state }, effects }, about);
});

t.test('an undo step for every job is carried out, whatever has begun', async (t) => {
  const last = { name: 'always', maxTries: 1, isTask: false, undoes: undefined };
  const always: Plan = { ...plan, onerror: [...plan.onerror.slice(0, 1), last] };
  const cases: [string, WorkflowState, WorkflowEvent, WorkflowState][] = [
    ['before the first step', at('due', 0), cancel, undo('due', 1, left('canceled', 0))],
    ['after a failure', at('begun', 1, 1), failed(), undo('due', 1, left('failed', 2))],
    ['after other undo steps', undo('begun', 0, left('failed', 3)), done(), undo('due', 1, left('failed', 3))],
    ['once', undo('begun', 1, left('failed', 3)), done(), ended('failed')],
    ['not after a success', at('begun', 2), done(), ended('succeeded')],
  ];
  for (const [about, from, event, to] of cases) t.strictSame(stepWorkflow(always, from, event, 'job').state, to, about);
});

t.test('what cannot happen throws with the job, its state and the event', async (t) => {
  const illegal: [WorkflowState, WorkflowEvent][] = [
    [at('due', 0), done()],
    [at('due', 0), failed()],
    [at('due', 0), timedOut],
    [ended('succeeded'), begin],
    [ended('failed'), done()],
    [ended('canceled'), failed()],
    [ended('failed'), timedOut],
  ];
  for (const [state, event] of illegal)
    t.throws(() => stepWorkflow(plan, state, event, 'j1'), {
      name: 'WorkflowTransitionError',
      message: `workflow job j1: ${event.type} in state ${state.name}`,
    });
});

t.test('every workflow ends, whatever its steps become', async (t) => {
  const all = [
    ['server-reboot', { drain: true }],
    ['server-reboot', {}],
    ['server-setup', {}],
    ['server-factory-reset', {}],
    ['server-update-nics', {}],
    ['vm-provision', { image_url: 'http://images/one' }],
  ] as const;
  for (const [name, params] of all) {
    const workflow = buildPlan(name, stepNames(name, params));
    for (const event of [done(), failed(), failed(true), done(true), cancel, timedOut] as const) {
      let state: WorkflowState = at('due', 0);
      for (let turns = 0; state.name !== 'ended' && turns < 100; turns += 1) {
        const isTask: boolean | undefined = state.name === 'begun' && workflow[state.phase][state.step]?.isTask;
        const next: WorkflowEvent =
          state.name === 'due' ? begin : event.type === 'cancel' && isTask ? failed(false, true) : event;
        const isKept: boolean = state.name === 'begun' && next.type === 'cancel' && state.phase === 'onerror';
        state = stepWorkflow(workflow, state, isKept ? done() : next, 'job').state;
      }
      t.equal(state.name, 'ended', `${name} with ${event.type}`);
    }
  }
});

t.test('a reboot with drain resumes the agent if it fails after the pause', async (t) => {
  const reboot = buildPlan('server-reboot', stepNames('server-reboot', { drain: true }));
  t.strictSame(
    reboot.chain.map(({ name }) => name),
    ['begin-drain', 'await-idle', 'reboot', 'mark-rebooting', 'await-boot', 'end-drain'],
  );
  const { state } = stepWorkflow(reboot, { name: 'begun', phase: 'chain', step: 2, tries: 0 }, failed(), 'job');
  t.strictSame(state, undo('due', 1, left('failed', 3)), 'the mark, which it had not made, needs no undo');
  t.strictSame(
    reboot.onerror.map(({ name }) => name),
    ['mark-not-rebooting', 'end-drain'],
  );
});

t.test('a job that creates a VM gives up its ticket and its room at each point', async (t) => {
  const provision = buildPlan('vm-provision', stepNames('vm-provision', { image_url: 'http://images/one' }));
  const undone = (from: WorkflowState) => {
    const names: string[] = [];
    let { state } = stepWorkflow(provision, from, from.name === 'due' ? cancel : failed(true), 'job');
    while (state.name !== 'ended') {
      names.push(provision.onerror[state.step]?.name ?? '');
      state = stepWorkflow(provision, { ...state, name: 'begun' }, done(), 'job').state;
    }
    return names;
  };
  t.strictSame(
    provision.chain.map(({ name }) => name),
    ['take-ticket', 'ensure-image', 'create-vm', 'release'],
  );
  t.strictSame(undone(at('due', 0)), ['release'], 'cancelled before its first step');
  t.strictSame(undone(at('begun', 0)), ['release']);
  t.strictSame(undone(at('due', 2)), ['release']);
  t.strictSame(undone(at('begun', 2)), ['delete-vm', 'release']);
  t.strictSame(undone(at('due', 3)), ['delete-vm', 'release']);
});

t.test('a step that this version does not know is an error', async (t) => {
  t.throws(
    () => buildPlan('server-reboot', { chain: ['dance'], onerror: [] }),
    /does not know step dance of workflow server-reboot/,
  );
  t.throws(() => buildPlan('server-dance', { chain: ['reboot'], onerror: [] }), /does not know step reboot/);
});

t.test('a server whose reset fails is set up as before, unless the reset has begun', async (t) => {
  const { work } = workflowStep('server-factory-reset', 'restore-set-up');
  if (work.kind !== 'change') throw new Error(`it is a ${work.kind}`);
  const undone = (setup: unknown, ...results: StepJob['results']) =>
    work.change({ id: 'job', chain: [], params: {}, facts: { setup }, results });
  const reset = (error_code: string) => ({ name: 'factory-reset', error_code });
  const asBefore = { resetting: false, setup: true };
  t.strictSame(undone(true), asBefore, 'the job was cancelled before it began');
  t.strictSame(undone(true, { name: 'await-idle', error_code: 'StepTimeout' }), asBefore);
  t.strictSame(undone(false), { resetting: false, setup: false }, 'it was not set up');
  t.strictSame(undone(null), { resetting: false }, 'nobody knows');
  for (const code of ['NotDrained', 'FactoryResetNotAllowed', 'ServerHasVms', 'NotTaken'])
    t.strictSame(undone(true, reset(code)), asBefore, code);
  for (const code of ['FactoryResetFailed', 'Cancelled', 'TaskTimeout', 'OutcomeUnknown', 'AgentRestarted'])
    t.strictSame(undone(true, reset(code)), { resetting: false }, code);
});

t.test('a job of a former version ends the pause that it has begun', async (t) => {
  const names = { chain: ['pause-agent', 'await-idle', 'reboot'], onerror: ['resume-agent'] };
  const { state } = stepWorkflow(buildPlan('server-reboot', names), at('begun', 2), failed(), 'job');
  t.strictSame(state, undo('due', 0, left('failed', 3)));
  const job: StepJob = { id: 'job', chain: names.chain, params: { drain: true }, facts: {}, results: [] };
  for (const name of [...names.onerror, 'pause-agent', 'reboot']) {
    const { work } = workflowStep('server-reboot', name);
    t.strictSame(work.kind === 'task' && (work.params?.(job) ?? {}), {}, `${name} means what it has always meant`);
  }
});
