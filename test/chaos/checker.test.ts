/** Each rule finds nothing in a good run, and finds each kind of violation that it exists for. */
import t from 'tap';
import { type Bad, badPushJobs } from './bad-push-jobs.ts';
import { check, rules } from './checker.ts';
import {
  A,
  arrival,
  B,
  begin,
  FIRST,
  faultOf,
  goodEvidence,
  op,
  opOf,
  SECOND,
  status,
  storedTask,
  TWO,
  taskOf,
  uptime,
  violationsOf,
  wall,
} from './good-evidence.ts';

t.test('a good run violates nothing, and every rule was applied to it', async (t) => {
  t.same(violationsOf(goodEvidence()), []);
  const held = new Set(check(goodEvidence()).flatMap(({ rule, outcome }) => (outcome === 'held' ? [rule] : [])));
  t.equal(held.size, rules.length);
});

const bad: readonly Bad[] = [
  ...badPushJobs,
  [
    'a session that was lost while others arrived',
    'arriving agents take no session from others',
    /lost its session: many agents arriving/,
    ({ stored }) => stored.statuses.push(status(B, 'unknown', 152_000)),
  ],
  [
    'an agent that was admitted and lost its session again',
    'arriving agents take no session from others',
    /1 of 2 that had arrived lost their session again/,
    ({ stored }) => stored.statuses.push(status(arrival.crowd?.[0] ?? '', 'unknown', 153_000)),
  ],
  [
    'a server that stays with a frozen instance',
    'servers leave a frozen instance',
    /was not taken over 11500 ms after/,
    ({ history }) =>
      Object.assign(history.find((entry) => entry.kind === 'roster' && entry.at === 205_000) ?? {}, { at: 217_000 }),
  ],
  [
    'an accepted task that is not in the database',
    'nothing accepted is missing',
    /was accepted and is not in the database/,
    ({ stored }) => stored.tasks.shift(),
  ],
  [
    'an instance that does not know an accepted task',
    'nothing accepted is missing',
    /instance-1 does not know/,
    ({ history }) => history.push(op({ op: 'get', askedAt: 1_500, status: 404, task: FIRST, instance: 1 })),
  ],
  [
    'a task without an end',
    'each task ends once',
    /is claimed with 0 ends/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { state: 'claimed', ends: 0, endedAt: null, outcome: null }),
  ],
  [
    'a task with two ends',
    'each task ends once',
    /with 2 ends/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { ends: 2 }),
  ],
  [
    'attempts that are not consecutive',
    'each task ends once',
    /at attempt 3 after 1 retries/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { attempt: 3, retries: 1 }),
  ],
  [
    'an answered end that differs from the recorded one',
    'answers about a task agree',
    /answered as failure and is stored as complete/,
    (evidence) => Object.assign(opOf(evidence, 'wait'), { reported: 'failure' }),
  ],
  [
    'an end that was answered before it was recorded',
    'answers about a task agree',
    /990 ms before that was recorded/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { endedAt: wall(4_000) }),
  ],
  [
    'a task that is active again after its end',
    'answers about a task agree',
    /is active at attempt 1 at instance-1, after an end/,
    ({ history }) =>
      history.push(
        op({ op: 'get', askedAt: 3_500, status: 200, task: FIRST, reported: 'active', attempt: 1, instance: 1 }),
      ),
  ],
  [
    'an attempt that decreases',
    'answers about a task agree',
    /after attempt 2/,
    ({ history }) => {
      history.push(op({ op: 'get', askedAt: 1_200, status: 200, task: FIRST, reported: 'active', attempt: 2 }));
    },
  ],
  [
    'a command that ran twice',
    'commands run once, before their end',
    /began 2 times: process 10 of agent 9 at 1100, process 20/,
    ({ effects }) => effects.push(begin('t1', FIRST, 1_500)),
  ],
  [
    'a command that started after its end',
    'commands run once, before their end',
    /began 1000 ms after its end \(Cancelled\)/,
    ({ effects }) => effects.splice(2, 2, begin('t2', SECOND, 4_000)),
  ],
  [
    'a command that continues after it was reported cancelled',
    'commands run once, before their end',
    /continued 900 ms after its end/,
    ({ effects }) => effects.push({ ...begin('t2', SECOND, 3_900), event: 'beat' }),
  ],
  [
    'a command of an unknown task',
    'commands run once, before their end',
    /which is not its task/,
    (evidence) => Object.assign(evidence.effects[0] ?? {}, { task: SECOND }),
  ],
  [
    'complete although the command never ended',
    'outcomes are real',
    /its command ended 0 times/,
    ({ effects }) => effects.splice(1, 1),
  ],
  [
    'complete with another exit code',
    'outcomes are real',
    /exit code is 0 in its line, 7 as recorded/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { exitCode: 7 }),
  ],
  [
    'complete with the output of another command',
    'outcomes are real',
    /its recorded output is "t2/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { stdout: 't2\n' }),
  ],
  [
    'a failure without a cause',
    'outcomes are real',
    /failed with AgentRestarted, which nothing caused/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { outcome: 'failure', errorCode: 'AgentRestarted' }),
  ],
  [
    'cancelled without a request',
    'outcomes are real',
    /failed with Cancelled, which nothing caused/,
    (evidence) => Object.assign(opOf(evidence, 'cancel'), { op: 'get' }),
  ],
  [
    'a task that no agent takes for a minute',
    'tasks end in time',
    /took 62000 ms, 49000 of them undisturbed/,
    (evidence) => Object.assign(taskOf(evidence, FIRST), { endedAt: wall(63_000) }),
  ],
  [
    'a wait that exceeds its timeout',
    'waits end',
    /ended 5010 ms after its timeout/,
    ({ history }) =>
      history.push(
        op({
          op: 'wait',
          askedAt: 2_000,
          overAt: 7_010,
          status: 200,
          task: SECOND,
          reported: 'failure',
          timeoutMs: 1_000,
        }),
      ),
  ],
  [
    'a wait that continues after its event',
    'waits end',
    /ended 9000 ms after its event/,
    (evidence) => Object.assign(opOf(evidence, 'wait'), { overAt: 12_000 }),
  ],
  [
    'a request without an answer',
    'requests are answered',
    /get .* at instance-0 was not answered/,
    (evidence) => Object.assign(opOf(evidence, 'get'), { status: 0, code: 'TimeoutError' }),
  ],
  [
    '503 without a reason',
    'requests are answered',
    /was answered with 503 DatabaseUnavailable/,
    (evidence) => Object.assign(opOf(evidence, 'get'), { status: 503, code: 'DatabaseUnavailable' }),
  ],
  [
    '500',
    'requests are answered',
    /was answered with 500 InternalError/,
    (evidence) => Object.assign(opOf(evidence, 'get'), { status: 500, code: 'InternalError' }),
  ],
  [
    'one key, two tasks',
    'a key gives one task',
    /the key k1 was answered with 2.* and 1/,
    (evidence) => Object.assign(opOf(evidence, 'create'), { task: SECOND }),
  ],
  [
    'one key stored twice',
    'a key gives one task',
    /are stored under one key/,
    ({ stored }) => stored.tasks.push(storedTask({ id: B, key: 'k1' })),
  ],
  [
    'a task that was never requested',
    'a key gives one task',
    /no client requested it/,
    ({ stored }) => stored.tasks.push(storedTask({ id: B, key: 'k9' })),
  ],
  [
    'two bodies accepted under one key',
    'a key gives one task',
    /two different requests/,
    (evidence) => Object.assign(opOf(evidence, 'create'), { body: 'other' }),
  ],
  [
    'a key refused although it was used for nothing else',
    'a key gives one task',
    /was refused as used/,
    (evidence) => Object.assign(opOf(evidence, 'create'), { status: 409, code: 'IdempotencyConflict' }),
  ],
  [
    'a cancel without effect',
    'cancels end',
    /ended 97490 ms after its cancel was accepted/,
    (evidence) => Object.assign(taskOf(evidence, SECOND), { endedAt: wall(100_000) }),
  ],
  [
    'a cancel refused because of a later end',
    'cancels end',
    /was reported as ended 490 ms before its end/,
    (evidence) => Object.assign(opOf(evidence, 'cancel'), { status: 409 }),
  ],
  [
    'two holders at once',
    'a lock has one holder',
    /held one from 5500 and .* until 6000/,
    (evidence) => Object.assign(opOf(evidence, 'ticket-wait', TWO), { overAt: 5_500 }),
  ],
  [
    'holders out of order',
    'locks are granted in order',
    /held one before .*, which was created before/,
    (evidence) => {
      Object.assign(opOf(evidence, 'ticket', TWO), { askedAt: 4_000, overAt: 4_010 });
    },
  ],
  [
    'tickets active out of order',
    'locks are granted in order',
    /was active before .*, which was ahead of it/,
    ({ stored }) => Object.assign(stored.tickets[1] ?? {}, { activeAt: wall(5_500) }),
  ],
  [
    'a queue without progress',
    'locks are granted in order',
    /was idle for 3995 ms/,
    ({ stored }) => Object.assign(stored.tickets[1] ?? {}, { activeAt: wall(10_000), updatedAt: wall(10_500) }),
  ],
  [
    'a ticket without an end',
    'locks are granted in order',
    /is still queued/,
    ({ stored }) => Object.assign(stored.tickets[1] ?? {}, { status: 'queued', activeAt: null }),
  ],
  [
    'a lock that was reported and not held',
    'a wait is answered when the lock is held',
    /reported as active and was not/,
    ({ stored }) => Object.assign(stored.tickets[0] ?? {}, { activeAt: null }),
  ],
  [
    'an accepted ticket that is missing',
    'a wait is answered when the lock is held',
    /ticket .* is not in the database/,
    ({ stored }) => stored.tickets.pop(),
  ],
  [
    'a live server that became unknown',
    'a live server is never unknown',
    /became unknown \(silent\)/,
    ({ stored }) => stored.statuses.push(status(B, 'unknown', 25_000), status(B, 'running', 25_100, 2)),
  ],
  [
    'a dead server that did not become unknown',
    'a dead server becomes unknown in time',
    /was not unknown 4000 ms after/,
    ({ stored }) => stored.statuses.splice(2, 1, status(A, 'unknown', 27_000)),
  ],
  [
    'a status that was never recorded',
    'the status shown is the one recorded',
    /instance-0 shows a wrong status of/,
    (evidence) => Object.assign(opOf(evidence, 'servers'), { unknown: [B] }),
  ],
  [
    'a list that lacks a server',
    'the status shown is the one recorded',
    /lists 1 of 2/,
    (evidence) => Object.assign(opOf(evidence, 'servers'), { count: 1 }),
  ],
  [
    'a task refused although its server runs',
    'the status shown is the one recorded',
    /refused as not running/,
    ({ history }) =>
      history.push(
        op({
          op: 'create',
          askedAt: 8_000,
          status: 409,
          code: 'ServerNotRunning',
          server: A,
          key: 'k1',
          body: 'first',
        }),
      ),
  ],
  [
    'a fault without recovery',
    'the zone recovers from faults',
    /the zone did not recover: instance-1/,
    (evidence) => {
      const fault = faultOf(evidence);
      delete fault.settledAt;
      fault.lacking = ['instance-1'];
    },
  ],
  [
    'a workload that does not continue',
    'the zone recovers from faults',
    /these did not continue: locks/,
    (evidence) => Object.assign(faultOf(evidence), { lacking: ['locks'] }),
  ],
  [
    'an epoch that decreases',
    'epochs only rise',
    /fell from 2 to 1/,
    ({ history }) =>
      history.push({ kind: 'roster', at: 41_000, rows: [{ server: A, epoch: 1, owner: 'i0', status: 'running' }] }),
  ],
  [
    'a process that ended without a fault',
    'no process ends without a fault',
    /instance-1 ended with 1/,
    ({ history }) => history.push({ kind: 'exited', at: 40_500, name: 'instance-1', exitCode: 1 }),
  ],
];

t.test('an agent that was frozen when a push job ended may begin its command late', async (t) => {
  const evidence = goodEvidence();
  const [job] = evidence.stored.pushJobs;
  Object.assign(job ?? {}, { createdAt: wall(19_000), endedAt: wall(25_000) });
  const [effect] = evidence.pushEffects;
  Object.assign(effect ?? {}, { uptime: uptime(30_100) });
  const isAboutCommands = (text?: string) => /ms after its end/.test(text ?? '');
  t.notOk(violationsOf(evidence).some(({ text }) => isAboutCommands(text)));
  Object.assign(job ?? {}, { endedAt: wall(19_500) });
  t.ok(violationsOf(evidence).some(({ text }) => isAboutCommands(text)));
});

t.test('each bad run violates its rule', async (t) => {
  for (const [what, rule, text, spoil] of bad) {
    const evidence = goodEvidence();
    spoil(evidence);
    const found = violationsOf(evidence).filter((each) => each.rule === rule);
    t.ok(
      found.some((each) => text.test(each.text ?? '')),
      what,
      { found, rule },
    );
  }
  t.equal(new Set(bad.map(([, rule]) => rule)).size, rules.length, 'each rule has been shown to find a violation');
});
