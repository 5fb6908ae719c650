/** The command of a user as tasks and push jobs take it. */
import t from 'tap';
import { jobCommandOf, shellCommandOf, taskParamsOf, variablesOf } from '../../../lib/cli/invocation/remote-program.ts';

t.test('one word is for sh, several run a program with its arguments', async (t) => {
  const none = { env: {}, secrets: [] };
  t.match(taskParamsOf({ words: ['a | b'], script: undefined }, none), { script: 'a | b\n' });
  t.same(taskParamsOf({ words: ['a', 'b c'], script: undefined }, none).args, ['a', 'b c']);
  t.match(jobCommandOf({ words: ['a | b'], script: undefined }), { command: 'a | b' });
  t.match(jobCommandOf({ words: ['a', "it's"], script: undefined }), { command: `exec 'a' 'it'\\''s'` });
  t.equal(shellCommandOf(['a', 'b c']), `'a' 'b c'`);
});

t.test('a script goes to many servers as a file, for the interpreter that its first line names', async (t) => {
  const rows: [script: string, command: string][] = [
    ['echo x', `exec '/bin/sh' "$CHEF_PUSH_JOB_FILE" 'a b'`],
    ['#!/usr/bin/env python3\nx', `exec '/usr/bin/env' 'python3' "$CHEF_PUSH_JOB_FILE" 'a b'`],
    ['#! /bin/bash -e -u\nx', `exec '/bin/bash' '-e -u' "$CHEF_PUSH_JOB_FILE" 'a b'`],
  ];
  for (const [script, command] of rows)
    t.same(jobCommandOf({ words: ['a b'], script }), { command, file: `raw:${script}` });
  t.throws(() => jobCommandOf({ words: [], script: 'x'.repeat(100_001) }), /100000 bytes/);
  t.throws(() => jobCommandOf({ words: ['x'.repeat(40_000)], script: undefined }), /use --script/);
});

t.test('variables come from the command line or from the environment', async (t) => {
  const own = { PASSWORD: 'p' };
  t.same(variablesOf({ env: ['A=1=2'], secretEnv: ['PASSWORD', 'KEY=k'] }, own), {
    env: { A: '1=2', PASSWORD: 'p', KEY: 'k' },
    secrets: ['PASSWORD', 'KEY'],
  });
  t.throws(() => variablesOf({ env: ['A'] }, own), /--env A is not NAME=VALUE/);
  t.throws(() => variablesOf({ env: ['1A=b'] }, own), /--env 1A: a shell cannot export/);
  for (const name of ['NONE', 'toString', 'constructor'])
    t.throws(() => variablesOf({ secretEnv: [name] }, own), /there is no such variable here/, name);
});
