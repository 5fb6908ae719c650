/** `cnapi job`, run as people and scripts run it. */
import t from 'tap';
import type { PushJob, PushNode } from '../../../lib/protocol/api/push/job-schemas.ts';
import type { PushNodeState } from '../../../lib/protocol/api/push/nodes.ts';
import { freshZone } from '../../support/apps.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { Cli, records } from '../rig.ts';

t.test('push jobs on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const [one, two, three] = await startAgents(t, [app], 3);
  const servers = [one, two, three].map((agent) => agent?.serverUuid ?? '');
  const cli = new Cli(t, [app.url]);
  const json = async <Value>(...args: string[]): Promise<Value> => {
    const { code, stdout, stderr } = await cli.run('--json', ...args);
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${stderr}`);
    return JSON.parse(stdout);
  };

  await t.test('a job shows its progress, then each node and the counts', async (t) => {
    const { code, stdout, stderr } = await cli.run('job', 'start', '--all', '--', 'echo hello');
    t.equal(code, 0);
    t.match(stderr, /push job [0-9a-f-]{36} asks 3 servers/);
    t.match(stdout, /NODE NAME +STATUS +LAST UPDATED[\s\S]*succeeded[\s\S]*3 nodes completed successfully/);
  });

  await t.test('the list goes on after a page of few, large jobs, and an id is found on any page', async (t) => {
    for (const [index, server] of servers.entries())
      await json('job', 'start', server, '--detach', '--', `echo ${index}`);
    await until(async () => (await json<PushJob[]>('job', 'list')).every(({ status }) => status === 'complete'));
    await zone.database.query('update cnapi_push_jobs set bytes = 2 * 1024 * 1024');
    const { body: page } = await app.get<{ jobs: unknown[]; next: string }>('/push-jobs');
    t.equal(page.jobs.length, 1);
    const jobs = await json<PushJob[]>('job', 'list');
    t.strictSame(
      jobs.slice(0, 3).map(({ command }) => command),
      ['echo 2', 'echo 1', 'echo 0'],
    );
    t.equal((await json<PushJob[]>('job', 'list', '--limit', '2')).length, 2);
    t.match(await json('job', 'status', jobs[2]?.id.slice(0, 8) ?? '', '--summary'), { id: jobs[2]?.id });
  });

  await t.test('one word is for sh, several are passed on unchanged', async (t) => {
    const outputOf = async (...words: string[]) => {
      const job = await json<PushJob>('job', 'start', servers[0] ?? '', '--detach', '--', ...words);
      return job.command;
    };
    t.equal(await outputOf('echo a | wc -c'), 'echo a | wc -c');
    await until(async () => (await json<PushJob[]>('job', 'list')).every(({ status }) => status === 'complete'));
    t.equal(await outputOf('echo', "it's", 'a b'), `'echo' 'it'\\''s' 'a b'`);
    await until(async () => (await json<PushJob[]>('job', 'list')).every(({ status }) => status === 'complete'));
  });

  await t.test('a failed node makes the exit code 1, and the next job runs on the failed nodes alone', async (t) => {
    const { code, stdout, stderr } = await cli.run('job', 'start', servers[1] ?? '', servers[2] ?? '', '--', 'exit 3');
    t.equal(code, 1);
    t.match(
      stderr,
      /what they wrote: cnapi job output [0-9a-f]{8} --status failed\n.*cnapi job retry [0-9a-f]{8}\n/,
      'where the output is comes before the retry',
    );
    t.match(stdout, /2 nodes completed with errors/);
    const id = /job +([0-9a-f]{8})/.exec(stdout)?.[1] ?? '';
    const dry = await cli.run('job', 'start', '--from-job', id, '--status', 'failed', '--dry-run');
    t.equal(dry.stdout.trim().split('\n').length, 2);
    t.match(await cli.run('job', 'start', '--from-job', id, '--status', 'failed', '--', 'true'), { code: 0 });
    const { stdout: summary } = await cli.run('job', 'status', id, '--summary');
    t.match(
      stdout,
      /^created +\S+ \S+ by .+\nquorum +\d of \d\n.*timeout +1h 0m\n/ms,
      'who started it, and with which limits',
    );
    t.match(summary, /2 nodes completed with errors/);
    t.match(await cli.run('job', 'status', id, '--node', servers[1] ?? ''), {
      stdout: /^node \S+ failed running job id \S+ at \S+ \S+: exit code 3$/m,
    });
    t.match(await cli.run('job', 'status', id, '--node', servers[0] ?? ''), { code: 2, stderr: /is not a node of/ });
  });

  await t.test('output that was shown as it came is not named again', async (t) => {
    const { code, stderr } = await cli.run('job', 'start', servers[1] ?? '', '--capture', '--', 'exit 3');
    t.equal(code, 1);
    t.match(stderr, /cnapi job retry/);
    t.notMatch(stderr, /cnapi job output/);
  });

  await t.test('a job is run again where it did not succeed, and its secrets are given again', async (t) => {
    const args = ['job', 'start', servers[0] ?? '', servers[1] ?? '', '--quorum', '1', '--secret-env', 'PASSWORD=x'];
    args.push('--secret-env', 'toString=x');
    const { stdout } = await cli.run(...args, '--timeout', '5m', '--', 'exit 3');
    const id = /job +([0-9a-f-]{36})/.exec(stdout)?.[1] ?? '';
    t.match(await cli.run('job', 'retry', id), {
      code: 2,
      stderr: /Give again: --secret-env PASSWORD --secret-env toString/,
    });
    const secrets = ['--secret-env', 'PASSWORD=y', '--secret-env', 'toString=y'];
    const again = await json<PushJob>('job', 'retry', id, ...secrets, '--detach');
    t.match(again, {
      ...{ command: 'exit 3', node_count: 2, quorum: 1, run_timeout_ms: 300_000 },
      env: { PASSWORD: '(secret)', toString: '(secret)' },
    });
    await until(async () => (await json<PushJob>('job', 'status', again.id, '--summary')).status === 'complete');
    t.match(await cli.run('job', 'retry', again.id, '--status', 'crashed', ...secrets), {
      code: 2,
      stderr: /No node of that job matches/,
    });
  });

  await t.test('a job that succeeded everywhere is not run again', async (t) => {
    const { stdout } = await cli.run('job', 'start', servers[0] ?? '', servers[1] ?? '', '--', 'true');
    const id = /job +([0-9a-f-]{36})/.exec(stdout)?.[1] ?? '';
    t.match(await cli.run('job', 'retry', id), {
      code: 1,
      stderr: `cnapi: All nodes of push job ${id.slice(0, 8)} have succeeded: there is nothing to retry\n`,
    });
  });

  await t.test('a job that held a lock is run again with its lock', async (t) => {
    const lock = ['--ticket', 'rollout/web', '--ticket-timeout', '5m'];
    const { stdout } = await cli.run('job', 'start', servers[0] ?? '', ...lock, '--', 'exit 3');
    const id = /job +([0-9a-f-]{36})/.exec(stdout)?.[1] ?? '';
    const again = await json<PushJob>('job', 'retry', id, '--detach');
    t.match(again.ticket, { server_uuid: 'default', scope: 'rollout', id: 'web', timeout_ms: 300_000 });
    await until(async () => (await json<PushJob>('job', 'status', again.id, '--summary')).status === 'complete');
  });

  await t.test('servers are given as a query, and their output is shown live with --capture', async (t) => {
    const { code, stdout } = await cli.run('job', 'start', 'status=running', '--capture', '--', 'echo live');
    t.equal(code, 0);
    t.equal(stdout.match(/^\S+ +\| live$/gm)?.length, 3);
    t.match(await cli.run('job', 'start', 'status=running', servers[0] ?? '', '--', 'true'), {
      code: 2,
      stderr: /cannot be combined/,
    });
  });

  await t.test('a dry run lists the servers that a job has, in each way to say which', async (t) => {
    const [first = '', second = ''] = servers;
    const list = `servers=["${first}","${second}"]`;
    for (const fields of [
      ['name=two', list],
      ['name=all', 'where=["status=running"]'],
    ] as const)
      t.match(await cli.run('group', 'create', ...fields), { code: 0 });
    const former = await json<PushJob>('job', 'start', first, '--detach', '--', 'true');
    await until(async () => (await json<PushJob>('job', 'status', former.id, '--summary')).status === 'complete');
    for (const [args, count] of [
      [['--group', 'two'], 2],
      [['--group', 'all'], 3],
      [['--where', `uuid=${second}`], 1],
      [['--from-job', former.id, '--status', 'succeeded'], 1],
      [['--all', '--max-fail', '50%', '--concurrency', '3'], 3],
    ] as const) {
      const listed = await json<{ uuid: string }[]>('job', 'start', ...args, '--dry-run');
      const job = await json<PushJob & { nodes: PushNode[] }>('job', 'start', ...args, '--', 'true');
      t.equal(listed.length, count, args.join(' '));
      t.same(listed.map(({ uuid }) => uuid).toSorted(), job.nodes.map(({ server_uuid }) => server_uuid).toSorted());
    }
    t.match(await cli.run('job', 'start', '--where', 'rack=1', '--', 'true'), {
      code: 2,
      stderr: /no server has a property rack/,
    });
  });

  await t.test('node status shows in which job a server is, and exec starts nothing there', async (t) => {
    const job = await json<PushJob>('job', 'start', servers[0] ?? '', '--detach', '--', 'sleep 300');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.running === 1);
    const states = await json<PushNodeState[]>('node', 'status');
    t.equal(states.length, 3);
    t.match(
      states.find(({ server_uuid }) => server_uuid === servers[0]),
      { status: 'in_job', job: job.id },
    );
    t.match(await cli.run('node', 'status', servers[1] ?? ''), { stdout: /NODE NAME +STATUS +JOB\n\S+ +idle +-\n$/ });
    t.match(await cli.run('job', 'retry', job.id), { code: 1, stderr: /is running; wait for its end/ });
    const { code, stderr } = await cli.run('exec', '--all', '--', 'exit 3');
    t.equal(code, 1);
    t.match(stderr, new RegExp(`it was not started: the server is busy with push job ${job.id.slice(0, 8)}$`, 'm'));
    t.match(stderr, /3 servers: 2 failed, 1 not started\n/);
    await cli.run('job', 'abort', job.id);
    await until(async () => (await json<PushNodeState[]>('node', 'status')).every(({ status }) => status === 'idle'));
  });

  await t.test('what the command wrote on a node is shown', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'echo written');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'complete');
    t.match(await cli.run('job', 'output', job.id, servers[0] ?? ''), { code: 0, stdout: 'written\n' });
  });

  await t.test('what the command wrote on all nodes is shown, each line with the name of its node', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'echo one; echo two');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'complete');
    const { code, stdout } = await cli.run('job', 'output', job.id);
    const lines = stdout.trim().split('\n');
    const names = lines.map((line) => line.split(' | ')[0]);
    t.equal(code, 0);
    t.equal(
      lines.length,
      3 * ((await cli.run('job', 'output', job.id, servers[0] ?? '')).stdout.split('\n').length - 1),
    );
    t.equal(new Set(names).size, 3);
    t.same(names, names.toSorted(), 'the output of each node stays together');
    const nodes = records<{ server_uuid: string; status: string; task: { id: string } }>(
      (await cli.run('--json', 'job', 'output', job.id)).stdout,
    );
    t.same(nodes.map(({ server_uuid }) => server_uuid).toSorted(), servers.toSorted());
    t.match(await cli.run('job', 'output', job.id, '--status', 'failed'), {
      code: 0,
      stdout: '',
      stderr: /did not start on any/,
    });
  });

  await t.test('a job that runs is followed by another call, whose end does not end it', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'sleep 300');
    const leaving = cli.start(['job', 'watch', job.id.slice(0, 8)]);
    const staying = cli.start(['job', 'watch', job.id]);
    for (const watching of [leaving, staying]) await watching.says('3 nodes running');
    t.match(await cli.run('job', 'output', job.id), {
      code: 0,
      stdout: '',
      stderr: /still runs on 3 nodes: cnapi job watch/,
    });
    leaving.child.kill('SIGINT');
    t.match(await leaving.ended, { code: 130, stderr: /continues; to follow it again: cnapi job watch/ });
    t.match(await json('job', 'status', job.id, '--summary'), { status: 'running' });
    await cli.run('job', 'abort', job.id);
    t.match(await staying.ended, { code: 1, stdout: /3 nodes aborted/ });
  });

  await t.test('following a job that has ended shows its output and its nodes', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'echo written');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'complete');
    const { code, stdout } = await cli.run('job', 'watch', job.id);
    t.equal(code, 0);
    t.equal(stdout.match(/^\S+ +\| written$/gm)?.length, 3);
    t.match(stdout, /3 nodes completed successfully/);
  });

  await t.test('an interrupted job is aborted if nobody can be asked', async (t) => {
    const running = cli.start(['job', 'start', '--all', '--', 'sleep 300']);
    await running.says('3 nodes running');
    running.child.kill('SIGINT');
    const { code, stdout, stderr } = await running.ended;
    t.equal(code, 1);
    t.match(stderr, /aborting the job/);
    t.match(stdout, /3 nodes aborted/);
  });

  await t.test('a job can be aborted by the beginning of its id', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'sleep 300');
    t.match(await cli.run('job', 'abort', job.id.slice(0, 8)), { code: 0, stdout: /abort of .* requested/ });
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'aborted');
    t.match(await cli.run('job', 'abort', job.id), { code: 1, stderr: /has ended already/ });
  });

  await t.test('some nodes of a job can be aborted, and the job goes on', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'sleep 300');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.running === 3);
    t.match(await cli.run('job', 'abort', job.id, servers[0] ?? ''), {
      code: 0,
      stdout: /on 1 server; the job continues/,
    });
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.aborted === 1);
    t.equal((await json<PushJob>('job', 'status', job.id, '--summary')).status, 'running');
    t.equal((await cli.run('job', 'abort', job.id)).code, 0);
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'aborted');
  });

  await t.test('a job that runs can be changed, and takes further servers', async (t) => {
    const [first = '', second = '', third = ''] = servers;
    const job = await json<PushJob>('job', 'start', first, second, '--concurrency', '1', '--detach', '--', 'sleep 300');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.running === 1);
    t.match(await cli.run('job', 'status', job.id, '--summary'), {
      stdout: new RegExp(`^coordinator +${app.cnapiUuid}$`, 'm'),
    });
    const options = ['--concurrency', 'none', '--start-rate', '5', '--max-fail', '50%', '--timeout', '2h'];
    const changed = await json<PushJob>('job', 'change', job.id, ...options);
    t.match(changed, { start_rate: 5, max_failures: 1, run_timeout_ms: 7_200_000 });
    t.notOk('concurrency' in changed);
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.running === 2);
    t.match(await cli.run('job', 'add', job.id, third), { code: 0, stdout: /3 nodes and needs 2/ });
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).counts.running === 3);
    t.match(await cli.run('job', 'change', job.id, '--quorum', '1'), { code: 1, stderr: /runs already/ });
    t.match(await cli.run('job', 'change', job.id), { code: 2, stderr: /What should change/ });
    t.match(await cli.run('job', 'change', job.id, '--concurrency', 'some'), { code: 2, stderr: /--concurrency some/ });
    t.equal((await cli.run('job', 'abort', job.id)).code, 0);
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'aborted');
  });

  await t.test('jobs are listed by status, and by a query on what they have', async (t) => {
    const job = await json<PushJob>('job', 'start', servers[0] ?? '', '--detach', '--', 'sleep 301');
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'running');
    const idsOf = async (...args: string[]) => (await json<PushJob[]>('job', 'list', ...args)).map(({ id }) => id);
    t.same(await idsOf('--status', 'running'), [job.id]);
    t.same(await idsOf('command=sleep*1', 'status=running'), [job.id]);
    t.same(await idsOf('command=sleep*1', 'status!=running'), []);
    t.match(await cli.run('job', 'list', 'command=nothing'), { code: 0, stderr: /No push job matches/ });
    t.match(await cli.run('job', 'list', 'comand=x'), { code: 2, stderr: /with one of the names id, command/ });
    const inJob = await json<PushNodeState[]>('node', 'status', '--status', 'in_job');
    t.same(
      inJob.map(({ server_uuid }) => server_uuid),
      [servers[0]],
    );
    t.match(await cli.run('node', 'status', '--status', 'rehab'), { code: 0, stderr: /No server is rehab/ });
    await cli.run('job', 'abort', job.id);
    await until(async () => (await json<PushNodeState[]>('node', 'status')).every(({ status }) => status === 'idle'));
  });

  await t.test('jobs that have ended can be deleted, and no others', async (t) => {
    const job = await json<PushJob>('job', 'start', '--all', '--detach', '--', 'sleep 300');
    t.match(await cli.run('job', 'delete', job.id), { code: 1, stderr: /abort it first|has not ended/ });
    t.equal((await cli.run('job', 'abort', job.id)).code, 0);
    await until(async () => (await json<PushJob>('job', 'status', job.id, '--summary')).status === 'aborted');
    t.match(await cli.run('job', 'delete', job.id.slice(0, 8), 'ffffffff'), { code: 2, stderr: /no push job/ });
    t.match(await cli.run('job', 'delete', job.id.slice(0, 8)), { code: 0, stdout: `deleted push job ${job.id}\n` });
    t.match(await cli.run('job', 'status', job.id), { code: 2, stderr: /push job/ });
  });

  await t.test('exec holds a lock while its command runs, on one server or on several', async (t) => {
    for (const targets of [['--all'], [servers[0] ?? '']]) {
      const first = cli.start(['exec', ...targets, '--ticket', 'rollout/web', '--', 'sleep 300']);
      await until(async () => (await json<PushJob[]>('job', 'list'))[0]?.status === 'running');
      const second = cli.start(['exec', ...targets, '--ticket', 'rollout/web', '--', 'echo second']);
      await second.says('waits for the lock rollout/web');
      await until(async () => (await json<PushJob[]>('job', 'list'))[0]?.status === 'waiting');
      first.child.kill('SIGINT');
      t.equal((await first.ended).code, 130);
      t.match(await second.ended, { code: 0, stdout: /second/ });
    }
  });

  await t.test('a ticket that exists is for one server alone', async (t) => {
    const ticket = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
    t.match(await cli.run('exec', '--all', '--ticket', ticket, '--', 'true'), {
      code: 2,
      stderr: /is a ticket for one server; on several, --ticket SCOPE\/ID/,
    });
    t.match(await cli.run('job', 'start', '--all', '--ticket', ticket, '--', 'true'), {
      code: 2,
      stderr: /is not SCOPE\/ID.*takes one of its own/,
    });
  });

  await t.test('wrong usage is refused before anything runs', async (t) => {
    const before = (await json<PushJob[]>('job', 'list')).length;
    for (const [args, says] of [
      [['--all'], /Which command should run/],
      [['--', 'true'], /On which servers/],
      [['--all', '--where', 'hostname=x', '--', 'true'], /cannot be combined/],
      [['--all', '--group', 'web', '--', 'true'], /--all and --group cannot be combined/],
      [['--from-job', 'c0ffee00', '--group', 'web', '--', 'true'], /cannot be combined/],
      [['--from-job', 'c0ffee00', '--status', 'bad', '--', 'true'], /Allowed choices are new, ready/],
      [['', '--', 'true'], /name of a server is empty/],
      [['nobody', '--', 'true'], /There is no server nobody/],
      [['--all', '--quorum', '120%', '--', 'true'], /--quorum 120% is more than 100%/],
      [['--all', '--quorum', 'most', '--', 'true'], /--quorum most is neither a number/],
      [['--all', '--max-fail', '1', '--', 'true'], /needs --concurrency/],
      [['--all', '--start-rate', '0', '--', 'true'], /--start-rate 0/],
      [['--all', '--status', 'failed', '--', 'true'], /--from-job/],
      [['--all', '--env', 'A', '--', 'true'], /NAME=VALUE/],
    ] as const)
      t.match(await cli.run('job', 'start', ...args), { code: 2, stderr: says }, args.join(' '));
    t.match(await cli.run('job', 'start', '--all', '--quorum', '7', '--', 'true'), { code: 2, stderr: /quorum/ });
    t.match(await cli.run('job', 'start', '--all', '--dir', 'relative', '--', 'true'), {
      code: 2,
      stderr: /dir: value is not an absolute path/,
    });
    t.equal((await json<PushJob[]>('job', 'list')).length, before);
  });
});
