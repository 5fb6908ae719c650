/**
 * How an instance leaves, phase by phase: what it does in each, and when it stops waiting for
 * agents and callers.
 */
import t from 'tap';
import {
  AGENTS_GO_LATER_MS,
  AGENTS_PER_SECOND,
  beginDrain,
  type DrainEvent,
  type DrainState,
  DrainTransitionError,
  LAST_ANSWERS_MS,
  LAST_CALLERS_MS,
  stepDrain,
  WITHDRAWN_AFTER_MS,
} from '../../../../lib/control/roster/relocation/drain.ts';

const times = { drainAgentsMs: 30_000, drainWaitsMs: 60_000 };
/**
 * Times in the table count from here: with a drain that began at 0, a sum and a difference would
 * look the same.
 */
const BEGAN_AT = 7_000_000;
const step = (state: DrainState, event: DrainEvent, now: number) => stepDrain(state, event, BEGAN_AT + now, times);
const tick = (view: Partial<{ others: number; agents: number; unanswered: number }> = {}): DrainEvent => ({
  type: 'tick',
  view: { others: 2, agents: 100, unanswered: 3, ...view },
});
const announcing = beginDrain(BEGAN_AT).state;
const unannounced = step(announcing, { type: 'unannounced' }, 10).state;
const unannouncedAgain = step(step(unannounced, tick(), 1_000).state, { type: 'unannounced' }, 1_010).state;
const moving = step(announcing, { type: 'announced', answer: 'draining' }, 100).state;
const finishing = step(moving, tick({ agents: 0 }), 5_000).state;
const late = step(finishing, tick(), 60_000).state;
const left = step(finishing, tick({ unanswered: 0 }), 5_000 + LAST_CALLERS_MS).state;

t.same(beginDrain(BEGAN_AT).effects, [{ do: 'announce' }], 'a drain begins with its announcement');

const table: { name: string; from: DrainState; event: DrainEvent; now: number; to: string; does?: unknown[] }[] = [
  {
    name: 'once the drain is announced, agents are moved',
    from: announcing,
    event: { type: 'announced', answer: 'draining' },
    now: 50,
    to: 'moving',
  },
  {
    name: 'the last instance leaves at once',
    from: announcing,
    event: { type: 'announced', answer: 'last' },
    now: 50,
    to: 'left',
    does: [{ do: 'leave' }],
  },
  {
    name: 'a run that was declared dead announces again under its next run',
    from: announcing,
    event: { type: 'announced', answer: 'gone' },
    now: 50,
    to: 'announcing',
  },
  {
    name: 'a failed announcement is not repeated at once',
    from: unannounced,
    event: tick(),
    now: 500,
    to: 'announcing',
  },
  {
    name: 'a failed announcement is repeated after a second',
    from: unannounced,
    event: tick(),
    now: 1_000,
    to: 'announcing',
    does: [{ do: 'announce' }],
  },
  {
    name: 'the second counts from the latest announcement',
    from: unannouncedAgain,
    event: tick(),
    now: 1_500,
    to: 'announcing',
  },
  {
    name: 'only one announcement is in progress at a time',
    from: announcing,
    event: tick(),
    now: 5_000,
    to: 'announcing',
  },
  {
    name: 'with the database away for as long as agents have, it leaves',
    from: unannounced,
    event: tick(),
    now: 30_000,
    to: 'left',
    does: [{ do: 'leave' }],
  },
  {
    name: 'agents are told to leave at a bounded pace',
    from: moving,
    event: tick(),
    now: 200,
    to: 'moving',
    does: [{ do: 'ask-agents', atMost: AGENTS_PER_SECOND / 10, withinMs: 29_800 + AGENTS_GO_LATER_MS }],
  },
  {
    name: 'a late tick does not make up for missed ones',
    from: moving,
    event: tick(),
    now: 10_000,
    to: 'moving',
    does: [{ do: 'ask-agents', atMost: AGENTS_PER_SECOND / 4, withinMs: 20_000 + AGENTS_GO_LATER_MS }],
  },
  {
    name: 'with nobody to go to, agents are left in peace',
    from: moving,
    event: tick({ others: 0 }),
    now: 200,
    to: 'moving',
  },
  {
    name: 'with nobody to go to, an instance without agents answers on',
    from: moving,
    event: tick({ others: 0, agents: 0 }),
    now: 20_000,
    to: 'moving',
  },
  {
    name: 'without agents it waits until callers can know of the drain',
    from: moving,
    event: tick({ agents: 0 }),
    now: WITHDRAWN_AFTER_MS,
    to: 'moving',
  },
  {
    name: 'without agents, and once callers can know, it closes the listening sockets',
    from: moving,
    event: tick({ agents: 0 }),
    now: 100 + WITHDRAWN_AFTER_MS,
    to: 'finishing',
    does: [{ do: 'stop-listening' }],
  },
  {
    name: 'one other instance is enough to close the listening sockets',
    from: moving,
    event: tick({ agents: 0, others: 1 }),
    now: 100 + WITHDRAWN_AFTER_MS,
    to: 'finishing',
    does: [{ do: 'stop-listening' }],
  },
  {
    name: 'one remaining agent keeps the listening sockets open',
    from: moving,
    event: tick({ agents: 1, others: 0 }),
    now: 29_999,
    to: 'moving',
  },
  {
    name: 'agents that did not leave in time are left behind',
    from: moving,
    event: tick({ others: 0 }),
    now: 30_000,
    to: 'finishing',
    does: [{ do: 'stop-listening' }],
  },
  { name: 'unanswered requests are waited for', from: finishing, event: tick(), now: 59_900, to: 'finishing' },
  {
    name: 'callers that connected just before the listening sockets closed have a moment to ask',
    from: finishing,
    event: tick({ unanswered: 0 }),
    now: 4_999 + LAST_CALLERS_MS,
    to: 'finishing',
  },
  {
    name: 'it leaves once all requests are answered',
    from: finishing,
    event: tick({ unanswered: 0 }),
    now: 5_000 + LAST_CALLERS_MS,
    to: 'left',
    does: [{ do: 'leave' }],
  },
  {
    name: 'waits are answered when their time is over',
    from: finishing,
    event: tick(),
    now: 60_000,
    to: 'finishing',
    does: [{ do: 'end-waits' }],
  },
  { name: 'waits are answered once', from: late, event: tick(), now: 60_100, to: 'finishing' },
  {
    name: 'callers that do not read their answer are left behind',
    from: late,
    event: tick(),
    now: 60_000 + LAST_ANSWERS_MS,
    to: 'left',
    does: [{ do: 'leave' }],
  },
  { name: 'nothing happens after the end', from: left, event: tick(), now: 70_000, to: 'left' },
];
for (const { name, from, event, now, to, does = [] } of table) {
  const { state, effects } = step(from, event, now);
  t.match({ phase: state.phase, effects }, { phase: to, effects: does }, name);
  t.equal(effects.length, does.length, name);
}

t.throws(() => step(moving, { type: 'announced', answer: 'last' }, 200), DrainTransitionError);
t.throws(() => step(unannounced, { type: 'unannounced' }, 200), DrainTransitionError);
