import t from 'tap';
import { prepareCommand } from '../../../lib/agent/push/prepared-command.ts';
import { refusalOf } from '../../../lib/agent/push/refusal.ts';
import { MAX_PUSH_FILE_BYTES } from '../../../lib/protocol/limits.ts';
import type { PushPrepareFrame } from '../../../lib/protocol/link/frames.ts';
import { prepareFrame } from './prepare-frame.ts';

const able = { machine: { reasonNotRunnable: async () => undefined }, reasonPaused: undefined, allowed: undefined };

t.test('the options of a job become those of its command', async (t) => {
  const file = Buffer.from('hello').toString('base64');
  t.same(prepareCommand(prepareFrame({ command: 'echo', user: 'u', dir: '/d', env: { A: '=' }, file })), {
    script: 'echo',
    args: [],
    env: { A: '=' },
    user: 'u',
    directory: '/d',
    file: Buffer.from('hello'),
  });
  t.same(prepareCommand(prepareFrame({ command: 'echo' })), { script: 'echo', args: [], env: {} });
});

t.test('options that cannot be used are refused with a sentence that names them', async (t) => {
  const many = Object.fromEntries(Array.from({ length: 1001 }, (_, n) => [`A${n}`, '']));
  const rows: [string, Partial<PushPrepareFrame>, RegExp][] = [
    ['a number in the environment', { env: { A: 1 } }, /environment of "A" cannot be used: .*expected string/],
    ['a name with =', { env: { 'A=B': '' } }, /environment of "A=B" .*not a name/],
    ['an empty name', { env: { '': '' } }, /environment of "" .*not a name/],
    ['a NUL in a name', { env: { 'A\0': '' } }, /environment of "A\\u0000" .*not a name/],
    ['a name that a shell loses', { env: { 'a.b': '' } }, /environment of "a\.b" .*not a name/],
    ['a name that an object loses', { env: JSON.parse('{"__proto__":""}') }, /environment of "__proto__" .*not a name/],
    ['a NUL in a value', { env: { A: 'b\0' } }, /environment of "A" .*NUL/],
    ['too many variables', { env: many }, /environment cannot be used: holds more than 1000/],
    ['no base64', { file: '???' }, /the file is not valid base64/],
    ['base64 with more behind it', { file: 'aGk=aGk=' }, /the file is not valid base64/],
    [
      'a large file',
      { file: Buffer.alloc(MAX_PUSH_FILE_BYTES + 1).toString('base64') },
      /the file has 100001 bytes, more than 100000/,
    ],
  ];
  for (const [name, fields, message] of rows)
    t.match(await refusalOf(prepareFrame(fields), able), { reason: 'bad-options', message }, name);
  const full = { file: Buffer.alloc(MAX_PUSH_FILE_BYTES).toString('base64'), env: { A: '' } };
  t.equal(await refusalOf(prepareFrame(full), able), undefined);
});

t.test('a paused agent runs no command of a push job', async (t) => {
  t.match(await refusalOf(prepareFrame(), { ...able, reasonPaused: 'by a job' }), {
    ...{ reason: 'paused', message: 'this agent is paused and starts no commands: by a job' },
  });
});

t.test('a machine that cannot run the command says why', async (t) => {
  const machine = { reasonNotRunnable: async () => 'this server has no user "u"' };
  t.same(await refusalOf(prepareFrame({ user: 'u' }), { machine, reasonPaused: undefined, allowed: undefined }), {
    reason: 'bad-options',
    message: 'this server has no user "u"',
  });
});
