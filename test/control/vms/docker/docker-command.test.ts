import t from 'tap';
import { dockerExecOf, unsupportedPart } from '../../../../lib/control/vms/docker/docker-command.ts';

const program = { task: 'vm_exec', isDetached: false, isTty: false, hasInput: false, hasExitCode: true };
const logs = { ...program, task: 'vm_logs', hasExitCode: false };
const terminal = { type: 'xterm', columns: 80, rows: 24 };

const commands: [name: string, command: Record<string, unknown>, exec: object][] = [
  ['a program alone, as cloudapi asks', { Cmd: ['ls', '-l'] }, { ...program, params: { args: ['ls', '-l'] } }],
  [
    'all that sdc-docker sends for docker exec',
    {
      Cmd: ['cat'],
      AttachStdin: true,
      AttachStdout: true,
      AttachStderr: true,
      Container: 'x',
      Detach: false,
      Privileged: false,
      Tty: false,
      User: '',
    },
    { ...program, hasInput: true, params: { args: ['cat'] } },
  ],
  [
    'a terminal',
    { Cmd: ['sh'], AttachStdin: true, Tty: true },
    { ...program, hasInput: true, isTty: true, params: { args: ['sh'], terminal } },
  ],
  ['no input, so no terminal', { Cmd: ['sh'], Tty: true }, { ...program, isTty: true, params: { args: ['sh'] } }],
  [
    'a detached program',
    { Cmd: ['sleep', '1'], Detach: true, AttachStdin: true, Tty: true },
    { ...program, isDetached: true, isTty: true, params: { args: ['sleep', '1'] } },
  ],
  [
    'variables',
    { Cmd: ['env'], Env: ['A=b=c', 'EMPTY'] },
    { ...program, params: { args: ['env'], env: { A: 'b=c', EMPTY: '' } } },
  ],
  ['the whole log', { Cmd: ['Logs'], Logs: true, Tail: 'all' }, { ...logs, params: { follow: false } }],
  ['the end of a log', { Logs: true, Tail: '10', Follow: true }, { ...logs, params: { follow: true, tail: 10 } }],
];

for (const [name, command, exec] of commands)
  t.test(name, (t) => {
    t.same(dockerExecOf(command), exec);
    t.equal(unsupportedPart(command), undefined);
    t.end();
  });

t.test('a command that is none says which part', (t) => {
  const refused: [command: Record<string, unknown>, field: string][] = [
    [{}, 'command.Cmd'],
    [{ Cmd: [] }, 'command.Cmd'],
    [{ Cmd: 'ls' }, 'command.Cmd'],
    [{ Cmd: ['ls', 1] }, 'command.Cmd.1'],
    [{ Cmd: ['l\0s'] }, 'command'],
    [{ Cmd: ['ls'], Env: ['A=\0'] }, 'command'],
    [{ Cmd: ['ls'], Tty: 'yes' }, 'command.Tty'],
    [{ Logs: true, Tail: 'some' }, 'command.Tail'],
  ];
  for (const [command, field] of refused)
    t.throws(() => dockerExecOf(command), { code: 'InvalidParameters', errors: { 0: { field } } }, field);
  t.end();
});

t.test('what agents cannot do is named, and never left out', (t) => {
  const Cmd = ['ls'];
  const parts: [command: Record<string, unknown>, part: RegExp][] = [
    [{ AttachConsole: true, Cmd }, /AttachConsole/],
    [{ Logs: true, Timestamps: true }, /Timestamps/],
    [{ Privileged: true, Cmd }, /Privileged/],
    [{ User: 'root', Cmd }, /User/],
    [{ WorkingDir: '/tmp', Cmd }, /WorkingDir/],
  ];
  for (const [command, part] of parts) t.match(unsupportedPart(command), part);
  t.end();
});
