import t from 'tap';
import { buildExecution, readReply } from '../../../lib/control/ur/execution.ts';

const bytes = (value: unknown) => Buffer.from(JSON.stringify(value));
const reply = (exitStatus: number, stdout = '') => ({ exitStatus, stdout, stderr: '' });

t.test('a script is sent with its arguments and its environment', async (t) => {
  const params = { script: '#!/bin/sh\necho', args: ['a', 1], env: { A: 'b' }, timeout: 500 };
  const execution = buildExecution('command_execute', params);
  t.same(execution?.message, { type: 'script', script: params.script, args: ['a', '1'], env: { A: 'b' } });
  t.equal(execution?.waitMs, 500);
  t.same(buildExecution('command_execute', { script: 'x' })?.message, { type: 'script', script: 'x', args: [] });
});

t.test('a server without an agent can only run scripts, and say its sysinfo', async (t) => {
  t.equal(buildExecution('machine_boot', { uuid: 'x' }), undefined);
  t.equal(buildExecution('command_execute', {}), undefined);
  t.same(buildExecution('server_sysinfo', {})?.message, { type: 'file', file: '/usr/bin/sysinfo' });
});

t.test('a script that failed is a task that is complete, with its exit status', async (t) => {
  const end = buildExecution('command_execute', { script: 'x' })?.endOf({ exitStatus: 3, stdout: 'o', stderr: 'e' });
  t.same(end, { outcome: 'complete', result: { exitCode: 3, signal: null, stdout: 'o', stderr: 'e' } });
});

t.test('a script that asks for a reboot has not failed', async (t) => {
  t.match(buildExecution('command_execute', { script: 'x' })?.endOf(reply(113)), { result: { exitCode: 0 } });
});

const sysinfos = [
  {
    name: 'its sysinfo',
    reply: reply(0, '{"UUID":"u"}'),
    expect: { outcome: 'complete', result: { sysinfo: { UUID: 'u' } } },
  },
  { name: 'no JSON', reply: reply(0, 'Segmentation fault'), expect: { outcome: 'failure', error: { code: 'Failed' } } },
  { name: 'a failure', reply: reply(1), expect: { outcome: 'failure', error: { code: 'Failed' } } },
];
for (const { name, reply, expect } of sysinfos)
  t.test(`the reply to a request for sysinfo: ${name}`, async (t) => {
    t.match(buildExecution('server_sysinfo', {})?.endOf(reply), expect);
  });

const replies = [
  {
    name: 'whole',
    content: bytes({ exit_status: 1, stdout: 'o', stderr: 'e' }),
    expect: { exitStatus: 1, stdout: 'o', stderr: 'e' },
  },
  {
    name: 'killed by a signal',
    content: bytes({ stdout: 'o' }),
    expect: { exitStatus: null, stdout: 'o', stderr: '' },
  },
  {
    name: 'of other types',
    content: bytes({ exit_status: 'x', stdout: 1, stderr: {} }),
    expect: { exitStatus: null, stdout: '', stderr: '' },
  },
  { name: 'no JSON', content: Buffer.from('x'), expect: 'it is not-json' },
  { name: 'too large', content: Buffer.alloc(4 * 1024 * 1024 + 1), expect: 'it has more than 4194304 bytes' },
];
for (const { name, content, expect } of replies)
  t.test(`a reply that is ${name}`, async (t) => {
    t.same(readReply(content), expect);
  });
