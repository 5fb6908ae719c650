import t from 'tap';
import { complete, isPlainWord } from '../../../lib/cli/completion/complete.ts';
import { parseOnly } from '../../../lib/cli/invocation/command-runner.ts';
import { createProgram } from '../../../lib/cli/program.ts';

t.test('completion offers what may come next on a command line', (t) => {
  const program = createProgram(parseOnly);
  const rows: [string[], unknown][] = [
    [['serve'], { words: ['servers', 'server'] }],
    [['servers', '--st'], { words: ['--status'] }],
    [['servers', '--status', ''], { words: ['running', 'unknown', 'rebooting'] }],
    [['tasks', '--status', ''], { words: ['active', 'complete', 'failure'] }],
    [['exec', 'web-1', ''], { wanted: 'server' }],
    [['--url', 'http://x', 'exec', ''], { wanted: 'server' }],
    [['exec', 'web-1', '--', ''], { words: [] }],
    [['exec', '--timeout', ''], { words: [] }],
    [['task', ''], { wanted: 'task' }],
    [['task', 'x', ''], { words: [] }],
    [['lock', 'web-1', ''], { words: [] }],
    [['drain', ''], { wanted: 'instance' }],
    [['token', ''], { words: ['create', 'list', 'revoke', 'header', 'help'] }],
    [['token', 'create', 'x', '--role', 'o'], { words: ['operator'] }],
    [['token', 'revoke', ''], { wanted: 'token' }],
    [['audit', '--server', ''], { wanted: 'server' }],
    [['job', 'status', ''], { wanted: 'job' }],
    [['job', 'start', ''], { wanted: 'server' }],
    [['job', 'start', '--group', ''], { wanted: 'server-group' }],
    [['job', 'start', '--from-job', ''], { wanted: 'job' }],
    [['job', 'start', '--status', 'f'], { words: ['failed'] }],
    [['org', 'group', 'add', 'acme', 'admins', '--group', ''], { words: [] }],
    [['schedule', 'pause', ''], { wanted: 'schedule' }],
    [['workflow', 'wait', ''], { wanted: 'workflow' }],
    [
      ['server', ''],
      {
        words: ['setup', 'nics', 'pause', 'resume', 'reboot', 'factory-reset', 'delete', 'help'],
        wanted: 'server',
      },
    ],
    [['server', 'reboot', ''], { wanted: 'server' }],
    [['completion', ''], { words: ['bash', 'zsh', 'fish'] }],
    [['__c'], { words: [] }],
  ];
  for (const [words, expected] of rows) t.strictSame(complete(program, words), expected, words.join(' '));
  for (const bad of ['$(reboot)', 'a;b', '-rf', 'a b', '`x`', '', 'a\nb']) t.notOk(isPlainWord(bad), bad);
  t.end();
});
