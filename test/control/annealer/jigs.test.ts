import t from 'tap';
import { decideRun, decideTaskEnd, decideWithInputs } from '../../../lib/control/annealer/jigs.ts';
import type { RoleDocument } from '../../../lib/protocol/api/documents/annealer.ts';

const role = (fields: Partial<RoleDocument>): RoleDocument => ({
  uuid: '564d5b45-3a8c-4c1f-9d0a-0123456789ab',
  name: 'web',
  jig: 'script',
  script: 'echo',
  timeout: 60,
  ...{ flags: [], requires: [], runs_after: [], conflicts: [], provides: [], wants: [], template: {} },
  ...{ retry: 0, delay: 0 },
  ...fields,
});

t.test('a run of the jig noop ends at once, and one of a destructive role that has run keeps its wall', async (t) => {
  t.strictSame(decideRun(role({ jig: 'noop' }), false), { do: 'end', outcome: 'succeeded', wall: {} });
  t.strictSame(decideRun(role({ flags: ['destructive'] }), true), { do: 'end', outcome: 'succeeded' });
  t.equal(decideRun(role({ flags: ['destructive'] }), false), 'read-inputs');
  t.equal(decideRun(role({}), true), 'read-inputs');
});

t.test('the inputs of a script are a secret of its task', async (t) => {
  const step = decideWithInputs(role({ script: 'x', timeout: 5 }), {
    sent: { password: 'geheim' },
    compared: { a: 1 },
  });
  t.match(step, { do: 'begin-task', timeoutMs: 5000, inputs: { a: 1 } });
  if (step.do !== 'begin-task') return;
  t.match(step.params, { script: 'x', env: { NODEROLE_INPUTS: '{"password":"geheim"}' } });
  t.notMatch(JSON.stringify(step.maskedParams), 'geheim');
});

t.test('inputs that do not fit into a variable are an error of the run', async (t) => {
  const step = decideWithInputs(role({}), { sent: { text: 'ü'.repeat(60_000) }, compared: {} });
  t.match(step, { do: 'end', error: { code: 'InputsTooLarge', message: /120011 bytes/ } });
});

t.test('the jig test fails, returns a wall, or refuses wrong data', async (t) => {
  const run = (test: unknown) => decideWithInputs(role({ jig: 'test' }), { sent: { test, a: 1 }, compared: { a: 1 } });
  t.match(run({ fail: 'why' }), { error: { code: 'TestFailed', message: 'why' } });
  t.strictSame(
    run({ wall: { a: 1, b: 2 } }),
    { do: 'end', outcome: 'succeeded', wall: { b: 2 } },
    'only what differs from the inputs',
  );
  t.strictSame(run(undefined), { do: 'end', outcome: 'succeeded', wall: {} });
  t.match(run({ wall: 5 }), { error: { code: 'InvalidInputs' } });
});

t.test('the end of its task ends a run', async (t) => {
  const complete = (result: Record<string, unknown>) =>
    decideTaskEnd({ outcome: 'complete', error: null, cancel_requested_at: null, result }, { port: 80 });
  const wall = (stdout: string) => complete({ exitCode: 0, stdout }).wall;
  t.strictSame(wall(''), {});
  t.strictSame(wall('done\n'), {});
  t.strictSame(wall('log\n{"wall": {"port": 80, "ip": "::1"}}\n'), { ip: '::1' });
  t.strictSame(wall('{"wall": {"ip": "::1"}}\nlast'), {}, 'only the last line counts');
  t.match(complete({ exitCode: 0, stdout: '{"wall": 5}' }), { error: { code: 'InvalidResult' } });
  t.strictSame(wall('{ all done }'), {}, 'output like any other');
  t.match(complete({ exitCode: 0, stdout: '{"port": 1}' }), { error: { code: 'InvalidResult' } });
  t.match(complete({ exitCode: 3, stderr: ' no disk \n' }), {
    error: { message: 'the script ended with exit code 3: no disk' },
  });
  t.match(complete({ exitCode: null, signal: 'SIGKILL' }), { error: { code: 'ScriptFailed' } });
  const failed = { outcome: 'failure', result: null, cancel_requested_at: null } as const;
  t.match(decideTaskEnd({ ...failed, error: { code: 'AgentRestarted', message: 'm' } }, {}), {
    error: { code: 'AgentRestarted', message: 'm' },
  });
  t.match(decideTaskEnd(undefined, {}), { error: { code: 'OutcomeUnknown' } });
});

t.test('an end that says that the agent has not begun does not count, and a cancelled one is final', async (t) => {
  const failed = (code: string) =>
    decideTaskEnd(
      { outcome: 'failure', result: null, cancel_requested_at: new Date(0), error: { code, message: '' } },
      {},
    );
  t.match(failed('AgentPaused'), { outcome: 'refused' });
  t.match(failed('Cancelled'), { outcome: 'final' });
  t.match(failed('TaskError'), { outcome: 'failed' });
});

t.test('whatever an agent or a script says, a run ends with what the database can store', async (t) => {
  const end = (result: Record<string, unknown>) =>
    decideTaskEnd({ outcome: 'complete', error: null, cancel_requested_at: null, result }, {});
  const deep = `{"wall":{"a":${'['.repeat(5_000)}${']'.repeat(5_000)}}}`;
  for (const stdout of [
    '{"wall":{"a":"\\u0000"}}',
    '{"wall":{"a":"\\ud800"}}',
    deep,
    `{"wall":{"a":"${'x'.repeat(40_000)}"}}`,
  ]) {
    const step = end({ exitCode: 0, stdout });
    t.match(step, { outcome: 'failed', error: { code: 'InvalidResult' } }, stdout.slice(0, 30));
    t.equal(step.error?.message.includes('\0'), false);
  }
  t.strictSame(end({ exitCode: 0, stdout: { toString: 1 } }), { do: 'end', outcome: 'succeeded', wall: {} });
  t.match(end({ exitCode: { toString: 1 }, stderr: { toString: 1 } }), { error: { code: 'ScriptFailed' } });
  t.match(end({ exitCode: 1, stderr: 'a\0b\ud800' }), { error: { message: /exit code 1: ab/ } });
});
