/** The command of a user as tasks and push jobs take it. */
import t from 'tap';
import {
  buildJobCommand,
  buildTaskParams,
  parseVariables,
  quoteShellCommand,
} from '../../../lib/cli/invocation/remote-program.ts';

t.test('one word is for sh, several run a program with its arguments', async (t) => {
  const none = { env: {}, secrets: [] };
  t.match(buildTaskParams({ words: ['a | b'], script: undefined }, none), { script: 'a | b\n' });
  t.same(buildTaskParams({ words: ['a', 'b c'], script: undefined }, none).args, ['a', 'b c']);
  t.match(buildJobCommand({ words: ['a | b'], script: undefined }), { command: 'a | b' });
  t.match(buildJobCommand({ words: ['a', "it's"], script: undefined }), { command: `exec 'a' 'it'\\''s'` });
  t.equal(quoteShellCommand(['a', 'b c']), `'a' 'b c'`);
});

t.test('a script goes to many servers as a file, for the interpreter that its first line names', async (t) => {
  const rows: [script: string, command: string][] = [
    ['echo x', `exec '/bin/sh' "$CHEF_PUSH_JOB_FILE" 'a b'`],
    ['#!/usr/bin/env python3\nx', `exec '/usr/bin/env' 'python3' "$CHEF_PUSH_JOB_FILE" 'a b'`],
    ['#! /bin/bash -e -u\nx', `exec '/bin/bash' '-e -u' "$CHEF_PUSH_JOB_FILE" 'a b'`],
  ];
  for (const [script, command] of rows)
    t.same(buildJobCommand({ words: ['a b'], script }), { command, file: `raw:${script}` });
  t.throws(() => buildJobCommand({ words: [], script: 'x'.repeat(100_001) }), /100000 bytes/);
  t.throws(() => buildJobCommand({ words: ['x'.repeat(40_000)], script: undefined }), /use --script/);
});

t.test('variables come from the command line or from the environment', async (t) => {
  const own = { PASSWORD: 'p' };
  t.same(parseVariables({ env: ['A=1=2'], secretEnv: ['PASSWORD', 'KEY=k'] }, own), {
    env: { A: '1=2', PASSWORD: 'p', KEY: 'k' },
    secrets: ['PASSWORD', 'KEY'],
  });
  t.throws(() => parseVariables({ env: ['A'] }, own), /--env A is not NAME=VALUE/);
  t.throws(() => parseVariables({ env: ['1A=b'] }, own), /--env 1A: a shell cannot export/);
  for (const name of ['NONE', 'toString', 'constructor'])
    t.throws(() => parseVariables({ secretEnv: [name] }, own), /there is no such variable here/, name);
});
