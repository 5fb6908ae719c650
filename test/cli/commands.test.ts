/** The commands against real instances and agents. All tests share one zone. */
import { existsSync, writeFileSync } from 'node:fs';
import t from 'tap';
import { processFacts } from '../../lib/agent/machine/proc.ts';
import { startZone } from '../support/fleet-harness.ts';
import { matchLists } from '../support/match-lists.ts';
import { until } from '../support/until.ts';
import { Cli, CNAPI, records } from './rig.ts';

t.test('the commands of cnapi against real instances and agents', async (t) => {
  const zone = await startZone(t, { instances: 2, agents: 2, simulated: 1 });
  const [one, two] = zone.agents.map(({ serverUuid }) => serverUuid) as [string, string];
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );

  await t.test('servers lists and filters servers; commands accept the beginning of a uuid', async (t) => {
    const all = await cli.json<{ uuid: string; hostname: string }[]>('servers');
    t.equal(all.length, 3);
    const { hostname } = all.find(({ uuid }) => uuid === one) ?? { hostname: '' };
    t.equal((await cli.json<unknown[]>('servers', '--hostname', hostname)).length, 2);
    t.equal((await cli.json<unknown[]>('servers', '--hostname', 'node-*')).length, 1);
    t.equal((await cli.json<unknown[]>('servers', '--status', 'unknown')).length, 0);
    t.equal((await cli.json<unknown[]>('servers', '--limit', '2')).length, 2);
    t.match(await cli.run('servers', '--status', 'foo'), {
      code: 2,
      stderr: /'foo' is invalid. Allowed choices are running, unknown, rebooting/,
    });
    t.match((await cli.run('servers', '--wide')).stdout.match(/ now$/gm), { length: 3 }, 'on any instance');
    for (const command of ['server', 'tasks', 'tickets'])
      t.match(await cli.run(command, one.slice(0, 8)), { code: 0 }, 'by the beginning of the uuid');
    for (const where of [['hostnam=node-*'], ['hostnam!=node-*', '--limit', '1'], ['hostnam=node-*', '--json']])
      t.match(
        await cli.run('servers', '--where', ...where),
        { code: 2, stdout: /^$/, stderr: /No server has a property hostnam;/ },
        where.join(' '),
      );
    t.match((await cli.run('servers', '--where', 'hostname=nod')).stderr, /No server matches/);
    t.match((await cli.run('server', one)).stdout, /^decided by +[-0-9a-f]{36}$/m);
    for (const [command, prefix] of [
      ['server', one.slice(0, 3)],
      ['drain', zone.instances[0]?.uuid.slice(0, 3) ?? ''],
    ] as const)
      t.match(await cli.run(command, prefix), { code: 2, stderr: /the beginning of a uuid has at least 4 characters/ });
    for (const args of [
      ['task', 'zzz'],
      ['cancel', '0000-1'],
      ['unlock', 'abc'],
      ['exec', one, '--ticket', 'x', '--', 'id'],
    ])
      t.match(await cli.run(...args), { code: 2, stderr: /is not the id of a/ }, args.join(' '));
    const { stdout } = await cli.run('servers', '--where', 'hostname=node-*');
    t.match(stdout, /^UUID +HOSTNAME +STATUS +DATACENTER\n[-0-9a-f]{36} {2}node-0 +running +local\n$/);
    matchLists(t, await cli.json('server', 'node-0'), { hostname: 'node-0', status_history: [{ status: 'running' }] });
    t.match(await cli.run('server', hostname), { code: 2, stderr: new RegExp(`Several servers .*${one}`) });
    t.match((await cli.run('instances')).stdout, new RegExp(`${zone.instances[0]?.uuid} +${zone.instances[0]?.url}`));
  });

  await t.test('exec passes arguments unchanged and keeps stdout and stderr apart', async (t) => {
    const hostile = ['a  b', '$(id)', '`id`', '; id', "'", '"', '--', '*'];
    const { code, stdout } = await cli.run('exec', one, '--', 'printf', '%s\\n', ...hostile);
    t.equal(code, 0);
    t.equal(stdout, `${hostile.join('\n')}\n`);
    t.match(await cli.run('exec', one, '--', 'echo out; echo err >&2; printf "\\033[2J"'), {
      code: 0,
      stdout: 'out\n\x1b[2J',
      stderr: 'err\n',
    });
    const script = cli.start(['exec', one, '--script', '-', '--env', 'WHO=me', '--', 'x y'], {
      input: '#!/bin/sh\necho "$WHO:$1"\nexit 3\n',
    });
    t.match(
      await script.ended,
      { code: 3, stdout: 'me:x y\n', stderr: /exit code 3/ },
      'the exit code of the command is passed on',
    );
    t.match(await cli.run('exec', one, '--timeout', '300ms', '--', 'sleep 60'), {
      code: 124,
      stderr: /within 0\.3 s .*TaskTimeout/,
    });
  });

  await t.test('20 MB of output of one server arrive in order, and missing bytes are reported', async (t) => {
    // Half of the time this reads through an instance that does not hold the agent. Each line has
    // eight bytes.
    const { code, stdout, stderr } = await cli.run('exec', one, '--', 'seq 1000000 3500000');
    const cut = [...stderr.matchAll(/(\d+) bytes of stdout are missing/g)].reduce((sum, [, n]) => sum + Number(n), 0);
    t.equal(stdout.length + cut, 20_000_008);
    t.equal(code, cut === 0 ? 0 : 4, stderr);
    const numbers = stdout.split('\n').filter((line) => line.length === 7);
    t.ok(numbers.every((line, at) => at === 0 || Number(line) > Number(numbers[at - 1])));
    const [task] = await cli.json<{ id: string }[]>('tasks', one, '--limit', '1');
    t.match(await cli.json('task', task?.id ?? ''), { params: { paced: true } }, 'the command is paced');
  });

  await t.test('missing output sets the exit code, and unused input is refused', async (t) => {
    const much = 'head -c 3000000 /dev/zero | tr "\\0" x';
    t.match(await cli.run('exec', one, two, '--', much), { code: 4, stderr: /\d+ bytes of stdout are missing/ });
    t.equal((await cli.run('exec', one, two, '--json', '--', much)).code, 4);
    t.equal((await cli.run('exec', one, '--', `${much}; exit 9`)).code, 9, 'a failed command keeps its own exit code');
    const [left] = await cli.json<{ id: string }[]>('tasks', one, '--limit', '1', '--status', 'complete');
    t.match(await cli.run('task', left?.id.slice(0, 8) ?? '', '--follow'), { code: 1 });
    const marker = `${cli.home}/ran`;
    const given = cli.start(['exec', one, '--', `touch ${marker}; cat`], { input: 'data\n' });
    t.match(await given.ended, {
      code: 2,
      stdout: '',
      stderr: /standard input does not reach the command: nothing was run/,
    });
    t.notOk(existsSync(marker));
    const file = cli.start(['-c', 'exec "$0" "$@" < /etc/passwd', CNAPI, 'exec', one, '--', 'cat'], {
      program: '/bin/sh',
    });
    t.match(await file.ended, { code: 2, stderr: /does not reach/ });
    const loop = cli.start(['-c', 'exec "$0" "$@" < /dev/null', CNAPI, 'exec', one, '--', 'cat; echo ran'], {
      program: '/bin/sh',
    });
    t.match(await loop.ended, { code: 0, stdout: 'ran\n' });
  });

  await t.test('output that is faster than the live stream is complete and in order in a pipe', async (t) => {
    const burst = 'i=0; while [ $i -lt 3 ]; do seq -f "%0100g" 1 2000; sleep 0.12; i=$((i+1)); done';
    const lines = Array.from({ length: 2000 }, (_, at) => `${String(at + 1).padStart(100, '0')}\n`).join('');
    const { code, stdout, stderr } = await cli.run('exec', one, '--', burst);
    t.strictSame([code, stderr], [0, '']);
    t.ok(stdout === lines.repeat(3), 'every line in order');
  });

  await t.test('exec on several servers marks each line with its server and reports each end', async (t) => {
    const { code, stdout, stderr } = await cli.run('exec', one, two, '--', `echo hello; test $PPID = 0 || exit 4`);
    t.equal(code, 1);
    for (const uuid of [one, two]) {
      t.match(stdout, new RegExp(`^\\S+ ${uuid} \\| hello$`, 'm'));
      t.match(stderr, new RegExp(`^cnapi: \\S+ ${uuid}: exit code 4$`, 'm'));
    }
    t.match(stderr, /2 servers: 2 failed/);
    const json = await cli.run('exec', '--all', '--json', '--', 'echo hello');
    t.equal(json.code, 0);
    const ends = records(json.stdout).filter(({ event }) => event === 'end');
    t.equal(ends.length, 3);
    matchLists(t, ends, [{ outcome: 'ok' }, { outcome: 'ok' }, { outcome: 'ok' }]);
    t.match(await cli.run('exec', one, 'nobody', '--', 'touch', '/nowhere/x'), { code: 2, stderr: /no server nobody/ });
  });

  await t.test('a task can be detached, followed, listed and cancelled', async (t) => {
    const left = await cli.run('exec', '--detach', one, '--', 'echo first; sleep 60');
    const id = left.stdout.trim();
    const following = cli.start(['task', id, '--follow']);
    await following.says('first');
    matchLists(t, await cli.json('tasks', one, '--active'), [{ id, status: 'active' }]);
    matchLists(t, await cli.json('tasks', '--active'), [{ id, server_uuid: one, summary: 'echo first; sleep 60' }]);
    t.match(await cli.run('watch', '--once'), { stdout: /tasks: 1 active/ });
    matchLists(t, await cli.json('watch', '--once'), { tasks: [{ id, summary: 'echo first; sleep 60' }] });
    t.match(await cli.run('task', id.slice(0, 13)), { code: 0, stdout: new RegExp(`id +${id}`) });
    t.match(await cli.run('task', 'ffffffff'), { code: 2, stderr: /no task whose id begins with ffffffff/ });
    t.match(await cli.run('cancel', id.slice(0, 8)), { code: 0, stdout: /cancellation of .* requested/ });
    t.match(await following.ended, { code: 1, stdout: 'first\n', stderr: /Cancelled/ });
    t.match(await cli.json('task', id), { id, status: 'failure' });
    t.match((await cli.run('task', id)).stdout, /^status +cancelled$/m);
    t.match((await cli.run('tasks', '--status', 'failure', '--limit', '1')).stdout, / command_execute +cancelled /);
    await cli.run('exec', two, '--', 'exit 7');
    t.match((await cli.run('tasks', '--limit', '1')).stdout, / command_execute +complete +7 .* open .* exit 7\n$/);
    t.match(
      (await cli.run('tasks', two, '--limit', '1')).stdout,
      /^CREATED .*\n.* command_execute +complete +7 .* exit 7\n$/,
    );
    matchLists(t, await cli.json('tasks', '--status', 'failure', '--limit', '1'), [{ id, error_code: 'Cancelled' }]);
    matchLists(t, await cli.json('tasks', '--since', '1h', '--actor', 'nobody'), []);
    t.match(await cli.run('tasks', '--status', 'failed'), { code: 2, stderr: /choices are active, complete, failure/ });
    t.match((await cli.run('server', two)).stdout, / command_execute +complete +7 /);
    t.match(await cli.run('cancel', id), { code: 1, stderr: /\(TaskEnded; at http.*, request [-0-9a-f]{36}\)/ });
  });

  await t.test('the first Ctrl-C cancels the tasks, the second one exits', async (t) => {
    const first = cli.start(['exec', one, two, '--', 'echo begun; sleep 60'], { wrapper: true });
    await first.says(/begun[\s\S]*begun/);
    first.child.kill('SIGINT');
    t.match(await first.ended, { code: 130, stderr: /cancelling 2 of 2[\s\S]*Cancelled[\s\S]*2 servers: 2 cancelled/ });
    const stubborn = cli.start(['exec', one, '--', 'trap "" TERM; echo begun; sleep 60']);
    await stubborn.says('begun');
    stubborn.child.kill('SIGINT');
    await stubborn.says('cancelling');
    stubborn.child.kill('SIGINT');
    const { code, stderr } = await stubborn.ended;
    t.equal(code, 130);
    t.match(stderr, /left: \S+: task [-0-9a-f]{36} may still run/);
  });

  await t.test('SIGHUP ends exec but not the task, and exec under nohup continues', async (t) => {
    const go = `${cli.home}/go`;
    const script = `echo begun; while [ ! -e ${go} ]; do sleep 0.1; done; echo done`;
    const lost = cli.start(['exec', one, '--', script], { wrapper: true });
    const kept = cli.start(['exec', two, '--', script], { wrapper: true, under: ['nohup'] });
    await Promise.all([lost.says('begun'), kept.says('begun')]);
    lost.child.kill('SIGHUP');
    kept.child.kill('SIGHUP');
    const { code, stderr } = await lost.ended;
    t.equal(code, 129);
    const [, id = ''] = /left: \S+: task ([-0-9a-f]{36}) may still run/.exec(stderr) ?? [];
    writeFileSync(go, '');
    t.match(await cli.run('task', id, '--follow'), {
      code: 0,
      stdout: 'begun\ndone\n',
      stderr: /cnapi: command_execute succeeded after \d+(\.\d)?s\n$/,
    });
    t.match(await kept.ended, { code: 0, stdout: 'begun\ndone\n' });
  });

  await t.test('lock holds the ticket while the command runs and passes on its exit code', async (t) => {
    t.match(await cli.run('lock', one, 'vm', 'x', '--', 'sh', '-c', 'echo $CNAPI_TICKET; exit 7'), {
      code: 7,
      stdout: /^[-0-9a-f]{36}\n$/,
    });
    t.strictSame(await cli.json('tickets'), [], 'the lock is released');
    t.match(await cli.run('lock', one, 'vm', 'x', '--', 'no-such-command'), { code: 127 });
    t.match(await cli.run('lock', one, 'vm', 'x', '--', 'sh', '-c', 'kill -9 $$'), { code: 137 });
    const script = 'trap "" HUP; echo held; exec sleep 60';
    const holder = cli.start(['lock', 'default', 'vm', 'x', '--', 'sh', '-c', script]);
    await holder.says('held');
    t.match(await cli.run('lock', 'default', 'vm', 'x', '--wait', '0', '--', 'echo'), { code: 124, stdout: '' });
    t.match(await cli.run('lock', 'default', 'vm', 'x', '--wait', '0', '-E', '9', '--', 'echo'), { code: 9 });
    holder.child.kill('SIGHUP');
    const next = cli.start(['lock', 'default', 'vm', 'x', '--', 'echo', 'mine']);
    await next.says(/1 ahead, held by ticket [-\da-f]{36} \(open, cnapi lock: sh\)/);
    const shown = await cli.run('tickets');
    t.match(shown.stdout, /HOLDER +ACTION +TICKET[\s\S]*default +vm +x +open +cnapi lock: sh +[-\da-f]{36} /);
    matchLists(t, await cli.json('tickets'), [{ server_uuid: 'default', scope: 'vm', id: 'x', depth: 1 }]);
    holder.child.kill('SIGTERM');
    t.equal((await holder.ended).code, 143, 'the command is ended by the signal');
    t.match(await next.ended, { code: 0, stdout: 'mine\n' });
  });

  await t.test('a lock command that is stopped while waiting gives up its place', async (t) => {
    const holder = cli.start(['lock', 'default', 'vm', 'y', '--', 'sh', '-c', 'echo held; exec sleep 60']);
    await holder.says('held');
    const waiter = cli.start(['lock', 'default', 'vm', 'y', '--', 'echo', 'never']);
    await waiter.says('1 ahead');
    waiter.child.kill('SIGINT');
    t.match(await waiter.ended, { code: 130, stdout: '' });
    matchLists(t, await cli.json('tickets'), [{ depth: 0 }]);
    holder.child.kill('SIGTERM');
    await holder.ended;
  });

  await t.test('when the lock is lost, the command and its children are stopped', async (t) => {
    const script =
      'trap "echo told; exit 0" TERM; sh -c "trap : TERM; echo child \\$\\$; sleep 60; sleep 60" & echo held; wait';
    const holder = cli.start(['lock', one, 'vm', 'z', '--', 'sh', '-c', script]);
    await holder.says(/held/);
    await holder.says(/child \d+/);
    const [{ holder: ticket }] = await cli.json<[{ holder: { uuid: string } }]>('tickets');
    t.match(await cli.run('unlock', ticket.uuid), { code: 0 });
    const { code, stdout, stderr } = await holder.ended;
    t.equal(code, 125);
    t.match(stdout, 'told');
    t.match(stderr, /the lock is lost, the command is stopped/);
    const pid = Number(/child (\d+)/.exec(stdout)?.[1]);
    // A zombie counts as gone.
    await until(async () => ['Z', undefined].includes((await processFacts(pid))?.state), 'the child to end');
  });

  await t.test('events filters by server and kind, and continues after a given position', async (t) => {
    const following = cli.start(['events', '--kind', 'task', '--server', one, '--limit', '2', '--json']);
    await following.says('following');
    await cli.run('exec', two, '--', 'true');
    await cli.run('exec', one, '--', 'true');
    const { code, stdout } = await following.ended;
    t.equal(code, 0);
    const [first, second] = records<{ id: string; data: { id: string } }>(stdout);
    matchLists(
      t,
      [first, second],
      [
        { event: 'task', data: { server_uuid: one } },
        { event: 'task', data: { server_uuid: one } },
      ],
    );
    const later = await cli.run(
      'events',
      '--kind',
      'task',
      '--server',
      one,
      '--limit',
      '1',
      '--json',
      '--after',
      first?.id ?? '',
    );
    t.strictSame(records(later.stdout), [second]);
    const people = await cli.run('events', '--kind', 'task', '--limit', '1', '--after', '0');
    t.match(
      people.stdout,
      /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ {2}task {6}[-0-9a-f]{36} {2}[-0-9a-f]{36} {2}command_execute/,
    );
    t.match(await cli.run('events', '--after', 'nonsense'), { code: 2, stderr: /request [-0-9a-f]{36}/ });
    const endless = cli.start(['events']);
    await endless.says('following');
    endless.child.kill('SIGTERM');
    t.equal((await endless.ended).code, 143, 'a signal that ends it gives the usual exit code');
  });

  await t.test('watch and audit show the current state', async (t) => {
    t.match((await cli.run('watch', '--once')).stdout, /instances: 2 live; servers: 3, 3 running; locks: 0 held/);
    const watching = cli.start(['watch', '--json', '--interval', '300ms']);
    await watching.says('"total":3');
    watching.child.kill('SIGINT');
    t.equal((await watching.ended).code, 130);
    matchLists(t, await cli.json('audit', '--server', one, '--action', 'CreateTask', '--limit', '2'), [
      { action: 'CreateTask', server_uuid: one, status: 202 },
      { action: 'CreateTask', server_uuid: one, status: 202 },
    ]);
    const [task] = await cli.json<{ id: string }[]>('tasks', one, '--limit', '1');
    for (const object of [task?.id ?? '', task?.id.slice(0, 8).toUpperCase() ?? ''])
      matchLists(t, await cli.json('audit', '--object', object), [{ object: task?.id }], object);
    t.same(await cli.json('audit', '--object', 'x%'), []);
    const [head, first] = (await cli.run('audit', '--object', task?.id ?? '')).stdout.split('\n');
    t.match(head, /^TIME +ACTOR +ACTION +SERVER +STATUS +OBJECT$/);
    t.ok(first?.endsWith(task?.id ?? ' ') && !first.includes(one), 'the server has its name, the object its whole id');
    t.match((await cli.run('audit', '--limit', '1', '--wide')).stdout, /OBJECT +SOURCE +REQUEST\n/);
  });

  await t.test('a reader that closes the pipe causes no error', async (t) => {
    const piped = cli.start(['servers'], {});
    piped.child.stdout?.destroy();
    const { code, stderr } = await piped.ended;
    t.strictSame([code, stderr], [0, '']);
  });

  await t.test('when the reader of a pipe ends, exec cancels its task', async (t) => {
    const endless = cli.start(['exec', one, '--', 'while sleep 0.1; do echo more; done']);
    await endless.says('more');
    endless.child.stdout?.destroy();
    const { code, stderr } = await endless.ended;
    t.strictSame([code, stderr], [141, '']);
    const [task] = await cli.json<{ status: string; error_code?: string }[]>('tasks', one, '--limit', '1');
    t.match(task, { status: 'failure', error_code: 'Cancelled' });
  });

  await t.test(
    'when the reader of a pipe ends, exec on several servers cancels its job and says nothing',
    async (t) => {
      const endless = cli.start(['exec', one, two, '--', 'while sleep 0.1; do echo more; done']);
      await endless.says('more');
      endless.child.stdout?.destroy();
      const { code, stderr } = await endless.ended;
      t.strictSame([code, stderr], [141, '']);
      const [job] = await cli.json<{ counts: object }[]>('job', 'list', '--limit', '1');
      t.same(job?.counts, { aborted: 2 });
    },
  );

  await t.test('completion offers names and ids of the fleet', async () => {
    // On a busy machine, completion gives up rather than block the shell.
    const completes = async (wanted: string, ...args: string[]) =>
      void (await until(
        async () => (await cli.run('__complete', '--', ...args)).stdout.split('\n').includes(wanted),
        `${wanted} among the completions of ${args.join(' ')}`,
      ));
    await completes('node-0', 'exec', 'no');
    await completes(one, 'server', one.slice(0, 8));
    await completes(zone.instances[1]?.uuid ?? '', 'drain', '');
    const [task] = await cli.json<{ id: string }[]>('tasks', one, '--limit', '1');
    await completes(task?.id ?? 'none', 'cancel', '');
  });
});
