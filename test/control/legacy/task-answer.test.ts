import t from 'tap';
import { endOfAnswer, endOfError, listOfAnswer, type PostedEnd } from '../../../lib/control/legacy/task-answer.ts';
import { MAX_JSON_DEPTH } from '../../../lib/protocol/json/storable.ts';
import { MAX_FRAME_VALUES } from '../../../lib/protocol/limits.ts';

const said = (status: number, body: unknown, isJson = true) =>
  endOfAnswer({ status, isJson, body: typeof body === 'string' ? body : JSON.stringify(body) });
const complete = (result: unknown) => ({ outcome: 'complete', result });
const failed = (code: string, message: string | RegExp) => ({ outcome: 'failure', error: { code, message } });

const answers: [name: string, end: PostedEnd, expected: object][] = [
  ['a result', said(200, { vm: { uuid: 'x' } }), complete({ vm: { uuid: 'x' } })],
  ['no body', said(200, ''), complete({})],
  ['204', said(204, ''), complete({})],
  ['null', said(200, 'null'), complete({})],
  ['a list', said(200, [1]), complete([1])],
  ['a text', said(200, '"done"'), complete({ value: 'done' })],
  ['invalid JSON', said(200, '<html>'), failed('BadAgentAnswer', /not JSON; whether the task ran is unknown/)],
  [
    'a result that is too long',
    endOfAnswer({ status: 200, isJson: true, unread: 'too long' }),
    complete({ truncated: true }),
  ],
  [
    'an endless answer, and not from an agent',
    endOfAnswer({ status: 200, isJson: false, unread: 'too long' }),
    failed('BadAgentAnswer', /HTTP 200/),
  ],
  [
    'an error that is too long',
    endOfAnswer({ status: 500, isJson: true, unread: 'too long' }),
    failed('BadAgentAnswer', /HTTP 500/),
  ],
  ['a failure', said(500, { error: 'vmadm failed' }), failed('Failed', 'vmadm failed')],
  [
    'a failure with a code',
    said(500, { error: 'gone', details: { restCode: 'VmNotFound' } }),
    failed('VmNotFound', 'gone'),
  ],
  ['an invalid code', said(500, { error: 'gone', details: { restCode: 'a b' } }), failed('Failed', 'gone')],
  ['a failure without a message', said(500, {}), failed('Failed', 'no error given')],
  ['a message that is not a text', said(500, { error: { not: 'a text' } }), failed('Failed', 'no error given')],
  ['paused', said(503, { message: 'not accepting tasks' }), failed('AgentPaused', 'not accepting tasks')],
  ['an unknown task', said(404, { message: "Unknown task, 'x'" }), failed('UnknownTask', "Unknown task, 'x'")],
  ["another server's agent", said(404, ''), failed('NotThisServer', /not this server's/)],
  ['a missing key', said(409, { message: "Missing key 'task'" }), failed('Failed', "Missing key 'task'")],
  ['a redirect', said(302, ''), failed('BadAgentAnswer', /HTTP 302/)],
];

t.test('the answer of a legacy agent gives the end of its task', async (t) => {
  for (const [name, end, expected] of answers) t.match(end, expected, name);
  t.equal(answers.length, new Set(answers.map(([name]) => name)).size);
});

const nested = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;
const listOf = (values: number) => `[${'0,'.repeat(values - 2)}0]`;

t.test('an answer of too many values, or nested too deep, is not kept', async (t) => {
  const tooMany = listOf(MAX_FRAME_VALUES + 1);
  const tooDeep = nested(MAX_JSON_DEPTH + 1);
  const many = 'what the agent answered was not kept: it holds more than 250000 values';
  const deep = 'what the agent answered was not kept: it is nested more than 64 levels deep';
  t.match(said(200, tooMany), complete({ truncated: true, message: many }));
  t.match(said(200, tooDeep), complete({ truncated: true, message: deep }));
  t.match(
    said(200, tooMany, false),
    failed('BadAgentAnswer', /HTTP 200; .* 250000 values$/),
    'perhaps not from an agent',
  );
  t.match(said(500, `{"error":"no luck","details":${tooDeep}}`), failed('BadAgentAnswer', /HTTP 500; .* levels deep$/));
  const deepest = nested(MAX_JSON_DEPTH);
  t.same(said(200, deepest), complete(JSON.parse(deepest)), 'the maximum depth');
  const kept = said(200, listOf(MAX_FRAME_VALUES));
  t.equal(kept.outcome === 'complete' && kept.result.length, MAX_FRAME_VALUES - 1, 'the maximum number of values');
});

t.test('an answer with a list is read, and other answers are refused', async (t) => {
  const list = (body: string) => listOfAnswer({ status: 200, isJson: true, body });
  t.same(list('[{"task":"nop"}]'), [{ task: 'nop' }]);
  for (const body of ['', '{}', 'null', '[', '<html>']) t.equal(list(body), undefined, body);
  t.equal(listOfAnswer({ status: 200, isJson: true, unread: 'too long' }), undefined);
  t.equal(list(listOf(MAX_FRAME_VALUES))?.length, MAX_FRAME_VALUES - 1);
  t.equal(list(listOf(MAX_FRAME_VALUES + 1)), undefined, 'too many values');
  t.equal(list(nested(MAX_JSON_DEPTH + 1)), undefined, 'too deep');
});

t.test('a long message is cut', async (t) => {
  const end = said(500, { error: 'x'.repeat(100_000) });
  t.equal(end.outcome === 'failure' && end.error.message.length, 4_000);
});

t.test('a call without an answer says whether the task may have run', async (t) => {
  const unreached = failed('AgentUnreachable', 'the agent could not be reached; the log says why');
  t.match(endOfError({ kind: 'unreachable', mayHaveArrived: false }), unreached);
  t.match(endOfError({ kind: 'timed-out', mayHaveArrived: false }), unreached);
  t.match(endOfError({ kind: 'given-up', mayHaveArrived: false }), failed('NotTaken', /did not take the task/));
  t.match(endOfError({ kind: 'given-up', mayHaveArrived: true }), failed('OutcomeUnknown', /instance .* is gone/));
  t.match(
    endOfError({ kind: 'timed-out', mayHaveArrived: true }),
    failed('TaskTimeout', /did not report an end in time/),
  );
  t.match(
    endOfError({ kind: 'broken-off', mayHaveArrived: true }),
    failed('OutcomeUnknown', 'the agent gave no answer; whether the task ran is unknown'),
  );
});
