/** `cnapi schedule`, and `cnapi job start --at` and `--ticket`, as people and scripts run them. */
import t from 'tap';
import { laterTime } from '../../../lib/cli/push-jobs/schedule-create.ts';
import type { PushJob } from '../../../lib/protocol/api/push/job-schemas.ts';
import type { PushSchedule } from '../../../lib/protocol/api/push/schedules.ts';
import { freshZone } from '../../support/apps.ts';
import { matchLists } from '../../support/match-lists.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

t.test('schedules on the command line', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = await startAgents(t, [app], 2);
  const [server = ''] = agents.map(({ serverUuid }) => serverUuid);
  const cli = new Cli(t, [app.url]);
  const command = ['--', 'echo hello'];
  const json = async <Value>(...args: string[]): Promise<Value> => {
    const { code, stdout, stderr } = await cli.run('--json', ...args);
    if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}: ${stderr}`);
    return JSON.parse(stdout);
  };

  await t.test('a schedule is created, listed, shown, paused, resumed and deleted', async (t) => {
    const daily = ['schedule', 'create', '--cron', '30 2 * * *', '--time-zone', 'Europe/Berlin', '--overlap', 'queue'];
    const { id, job } = await json<PushSchedule>(...daily, '--all', '--quorum', '80%', ...command);
    t.same(job, { command: 'echo hello', where: ['uuid=*'], quorum: '80%' });
    const first = id.slice(0, 8);
    t.match(await cli.run('schedule', 'list'), { stdout: /active +30 2 \* \* \* Europe\/Berlin .*echo hello/ });
    t.match(await cli.run('schedule', 'get', first), { stdout: /overlap +queue\nnext +\d{4}-[\s\S]*\nservers +all\n/ });
    t.match(await cli.run('schedule', 'pause', first), { code: 0, stdout: /status +paused\n[\s\S]*next +-\n/ });
    t.match(await cli.run('schedule', 'resume', first), { code: 0, stdout: /status +active/ });
    t.match(await cli.run('schedule', 'delete', first), { code: 0, stdout: `deleted schedule ${id}\n` });
    t.match(await cli.run('schedule', 'get', first), { code: 2 });
  });

  await t.test('several schedules are deleted by one command, or none if one of them is unknown', async (t) => {
    const create = async () =>
      (await json<PushSchedule>('schedule', 'create', '--cron', '@daily', '--all', ...command)).id;
    const [one, other] = [await create(), await create()];
    t.match(await cli.run('schedule', 'delete', one, 'ffffffff', other), { code: 2, stdout: '' });
    t.match(await cli.run('schedule', 'delete', one, other), {
      code: 0,
      stdout: `deleted schedule ${one}\ndeleted schedule ${other}\n`,
    });
    t.same(await json('schedule', 'list'), []);
  });

  await t.test('the outcome of a time that was refused says each thing once', async (t) => {
    const run = ['schedule', 'create', '--at', '1s', 'hostname=nothing-*', '--json', ...command];
    const { id } = JSON.parse((await cli.run(...run)).stdout) as PushSchedule;
    const shown = await until(async () => {
      const { stdout } = await cli.run('schedule', 'get', id);
      return stdout.includes('refused') ? stdout : undefined;
    }, 'its time');
    t.match(shown, /\noutcome +refused: where: no server matches \(InvalidParameters\)\n/);
    await cli.run('schedule', 'delete', id);
  });

  await t.test('how the jobs of a schedule ended is shown with it, and they are listed', async (t) => {
    const { id } = await json<PushSchedule>('schedule', 'create', '--cron', '@daily', '--all', ...command);
    const first = id.slice(0, 8);
    t.notMatch((await cli.run('schedule', 'get', first)).stdout, /last job|CREATED/, 'it has started none');
    t.match(await cli.run('schedule', 'run', first), { code: 0 });
    await cli.run('schedule', 'update', first, '--', 'exit 3');
    t.match(await cli.run('schedule', 'run', first), { code: 1 });
    const jobs = await json<PushJob[]>('job', 'list', '--schedule', first);
    matchLists(t, jobs, [{ counts: { failed: 2 } }, { counts: { succeeded: 2 } }]);
    const [last, before] = jobs.map((job) => job.id);
    const { stdout } = await cli.run('schedule', 'get', first);
    t.match(stdout, new RegExp(`\\nlast job +${last}: complete, 0 of 2 ok\\n`));
    t.match(stdout, new RegExp(`${last} +complete +2 +0 .*\\n.*${before} +complete +2 +2 `));
    t.notMatch(await cli.run('schedule', 'get', first), { stderr: /lists them all/ }, 'these are all');
    t.match((await cli.run('schedule', 'list')).stdout, /started +complete, 0 of 2 ok +exit 3/);
    t.same(await json('job', 'list', '--schedule', id, '--status', 'running'), []);
    t.match(await cli.run('job', 'delete', last ?? ''), { code: 0 });
    t.match((await cli.run('schedule', 'get', first)).stdout, new RegExp(`last job +${last}: deleted\\n`));
    await cli.run('schedule', 'delete', id);
    matchLists(t, await json('job', 'list', '--schedule', id), [{ id: before }], 'they are listed after its end');
    t.same(await json('job', 'list', '--schedule', server), [], 'a schedule that never was has none');
  });

  await t.test('a schedule is shown with all that decides what runs, and who did', async (t) => {
    const file = { file: 'raw:planted', env: { LD_PRELOAD: '/tmp/x\n.so' }, user: 'root', dir: '/srv' };
    const job = { command: 'sh $CHEF_PUSH_JOB_FILE', where: ['uuid=*'] };
    const { id } = (await app.post<PushSchedule>('/push-schedules', { cron: '@daily', job })).body;
    const { stdout: before } = await cli.run('schedule', 'get', id);
    t.match(before, /\ncreated +\d{4}-\S+ \S+ by open\njob actor +open\n$/);
    await app.post(`/push-schedules/${id}`, { job: file });
    const { stdout } = await cli.run('schedule', 'get', id);
    t.match(stdout, /\nuser +root\ndir +\/srv\nenv +\{"LD_PRELOAD":"\/tmp\/x\\n.so"\}\nfile +yes\n/);
    t.match(stdout, /\nchanged +\d{4}-\S+ \S+ by open\njob actor +open\n$/);
    const facts = { actor: 'open', job_actor: 'open', changed_by: 'open', changed_at: String, file_specified: true };
    t.match(await json<PushSchedule>('schedule', 'get', id), facts);
    await cli.run('schedule', 'delete', id);
  });

  await t.test('a schedule that reaches no server now is created with a warning', async (t) => {
    const daily = ['schedule', 'create', '--cron', '@daily'];
    for (const [query, why] of [
      ['hostnam=web-*', /warning: a time that came now would be refused: .*hostnam/],
      ['hostname=nothing-*', /would be refused: No server matches/],
    ] as const) {
      const { code, stdout, stderr } = await cli.run(...daily, query, ...command);
      t.match({ code, stderr }, { code: 0, stderr: why });
      await cli.run('schedule', 'delete', stdout.trim());
    }
    const { code, stdout, stderr } = await cli.run(...daily, '--all', ...command);
    t.match({ code, stderr }, { code: 0, stderr: /the schedule starts its first job at \d{4}-/ });
    t.notMatch(stderr, /would be refused/);
    await cli.run('schedule', 'delete', stdout.trim());
  });

  await t.test('a schedule for a group that does not exist is refused', async (t) => {
    t.match(await cli.run('schedule', 'create', '--cron', '@daily', '--group', 'wbe', ...command), {
      code: 2,
      stderr: /There is no server group wbe/,
    });
  });

  await t.test('a dry run shows the next times and the servers of this moment, and creates nothing', async (t) => {
    const before = await json<PushSchedule[]>('schedule', 'list');
    const dry = ['schedule', 'create', '--dry-run', '--cron', '30 2 * * *'];
    const { code, stdout } = await cli.run(...dry, '--all', ...command);
    t.equal(code, 0);
    t.match(stdout, /^(\d{4}-\d\d-\d\d 02:30:00Z\n){5}\n([0-9a-f-]{36} .*\n){2}$/);
    matchLists(t, await json(...dry, 'hostnam=x', ...command), { servers: [], complaint: /hostnam/ });
    const once = ['job', 'start', '--at', '1h', '--dry-run'];
    t.match(await cli.run(...once, server, ...command), { code: 0, stdout: new RegExp(`Z\n\n${server}`) });
    t.same(await json<PushSchedule[]>('schedule', 'list'), before);
  });

  await t.test('all schedules are listed and found, although each page holds only a few large ones', async (t) => {
    const servers = Array.from(
      { length: 15_000 },
      (_, place) => `564d5b45-3a8c-4c1f-9d0a-${String(place).padStart(12, '0')}`,
    );
    const ids: string[] = [];
    for (let count = 0; count < 4; count += 1) {
      const body = { cron: '@daily', job: { command: 'true', servers } };
      ids.unshift((await app.post<PushSchedule>('/push-schedules', body)).body.id);
    }
    const listed = await json<PushSchedule[]>('schedule', 'list');
    t.same(
      listed.map(({ id }) => id),
      ids,
    );
    t.equal((await json<PushSchedule[]>('schedule', 'list', '--limit', '3')).length, 3);
    for (const id of ids.toReversed()) t.match(await cli.run('schedule', 'delete', id.slice(0, 13)), { code: 0 });
  });

  await t.test('a job that starts later is a schedule, whose job runs at its time', async (t) => {
    const { code, stdout } = await cli.run('job', 'start', '--at', '2s', server, ...command);
    t.equal(code, 0);
    const id = stdout.trim();
    const schedule = await until(async () => {
      const one = await json<PushSchedule>('schedule', 'get', id);
      return one.status === 'ended' ? one : undefined;
    }, 'its time');
    t.equal(schedule.last_outcome, 'started');
    t.same(schedule.job, { command: 'echo hello', servers: [server] });
    const job = await until(async () => {
      const one = await json<PushJob>('job', 'status', schedule.last_job ?? '', '--summary');
      return one.status === 'complete' ? one : undefined;
    }, 'the job to end');
    t.match(job.counts, { succeeded: 1 });
  });

  await t.test('a schedule is updated: its times, its policy and its job, each alone', async (t) => {
    const daily = ['schedule', 'create', '--cron', '30 2 * * *', '--all', '--quorum', '80%', '--env', 'A=1'];
    const { id, next_at } = await json<PushSchedule>(...daily, ...command);
    const update = ['schedule', 'update', id.slice(0, 8)];
    t.match(await cli.run(...update, '--overlap', 'queue', '--', 'echo', 'new'), {
      code: 0,
      stdout: /overlap +queue\n[\s\S]*servers +all\ncommand +'echo' 'new'\nenv +\S+\nquorum +80%\n/,
    });
    const changed = await json<PushSchedule>(...update, server, '--without', 'quorum', '--user', 'root');
    t.equal(changed.next_at, next_at);
    t.same(changed.job, { command: "'echo' 'new'", env: { A: '1' }, servers: [server], user: 'root' });
    const moved = await json<PushSchedule>(...update, '--cron', '30 3 * * *', '--time-zone', 'Asia/Tokyo');
    t.match(moved, { cron: '30 3 * * *', time_zone: 'Asia/Tokyo', overlap: 'queue', next_at: /T18:30:00/ });
    const refusals: [string[], RegExp][] = [
      [[], /What should change\?/],
      [['--without', 'command'], /--without command is not one of quorum/],
      [['--without', 'user', '--user', 'root'], /--user and --without user cannot be combined/],
      [['--at', '1h', '--cron', '@daily'], /--at or --cron/],
      [['--secret-env', 'A=1'], /--secret-env cannot be used in a schedule: the secret would stay/],
      [['--'], /Which command/],
    ];
    for (const [args, why] of refusals)
      t.match(await cli.run(...update, ...args), { code: 2, stderr: why }, args.join(' '));
    t.match(await cli.run(...update, '--cron', '99 * * * *'), { code: 2, stderr: /99 is an invalid expression/ });
    await cli.run('schedule', 'delete', id);
  });

  await t.test('a schedule is run beside its times, once while its job has not ended', async (t) => {
    const daily = ['schedule', 'create', '--cron', '@daily', server];
    const { id, next_at } = await json<PushSchedule>(...daily, '--', 'echo hello');
    const { code, stdout, stderr } = await cli.run('schedule', 'run', id.slice(0, 8), '--capture');
    t.match({ code, stdout, stderr }, { code: 0, stdout: /hello[\s\S]*succeeded/, stderr: /asks 1 server/ });
    await cli.run('schedule', 'update', id, '--', 'sleep 60');
    const job = (await cli.run('schedule', 'run', id, '--detach')).stdout.trim();
    t.match(await json<PushSchedule>('schedule', 'get', id), { next_at, last_outcome: 'started', last_job: job });
    t.match(await cli.run('schedule', 'run', id), {
      code: 1,
      stderr: new RegExp(`overlap policy skip, and its last job ${job} has not ended: .*PushScheduleBusy`),
    });
    t.match(await cli.run('job', 'abort', job), { code: 0 });
    await cli.run('schedule', 'delete', id);
  });

  await t.test('a job that waits for its ticket says so', async (t) => {
    await app.post('/servers/default/tickets', { scope: 'rollout', id: 'web', expires_in: 600 });
    const ticket = ['--ticket', 'rollout/web', '--ticket-timeout', '5m'];
    const job = await json<PushJob>('job', 'start', server, ...ticket, '--detach', ...command);
    t.match(job, { status: 'waiting', ticket: { scope: 'rollout', id: 'web', timeout_ms: 300_000 } });
    t.match(await cli.run('job', 'status', job.id, '--summary'), {
      stdout: /status +waiting[\s\S]*ticket +rollout\/web of default/,
    });
    t.match(await cli.run('job', 'abort', job.id), { code: 0 });
  });

  await t.test('the help of schedules does not offer what they refuse', async (t) => {
    const helpOf = async (...words: string[]) => (await cli.start([...words, '--help']).ended).stdout;
    for (const verb of ['create', 'update']) t.notMatch(await helpOf('schedule', verb), /^ +--secret-env/m);
    t.match(await helpOf('job', 'start'), /^ +--secret-env/m);
  });

  await t.test('wrong usage is refused before anything is asked for', async (t) => {
    const refusals: [string[], RegExp][] = [
      [['schedule', 'create', '--all'], /When\? Give --at TIME/],
      [['schedule', 'create', '--at', '22:00', '--time-zone', 'Europe/Berlin', '--all'], /--time-zone is for --cron/],
      [['schedule', 'create', '--at', '22:00', '--cron', '@daily', '--all'], /--at or --cron/],
      [
        ['schedule', 'create', '--cron', '@daily', '--all', '--overlap', 'never'],
        /'never' is invalid. Allowed choices are skip/,
      ],
      [
        ['schedule', 'create', '--cron', '@daily', '--all', '--secret-env', 'A=1'],
        /--secret-env cannot be used in a schedule: the secret would stay/,
      ],
      [
        ['schedule', 'create', '--cron', '@daily', '--all', '--concurrency', '1', '--max-fail', '5%'],
        /takes no percentage here/,
      ],
      [['schedule', 'create', '--cron', '99 * * * *', '--all'], /99 is an invalid expression/],
      [['schedule', 'create', '--cron', '@dayly', '--all'], /not one of the names @hourly, @daily, @weekly/],
      [['job', 'start', '--at', 'noon', '--all'], /neither a time/],
      [['job', 'start', '--at', '1h', '--detach', '--all'], /cannot be combined/],
      [['job', 'start', '--ticket', 'web', '--all'], /SCOPE\/ID/],
    ];
    for (const [args, why] of refusals) t.match((await cli.run(...args, ...command)).stderr, why, args.join(' '));
    matchLists(t, await json<PushSchedule[]>('schedule', 'list'), [{ status: 'ended' }]);
  });
});

t.test('a time is one of this day or the next, one with an offset, or a duration from now', async (t) => {
  const now = new Date(2030, 0, 15, 12, 0, 0).getTime();
  t.equal(laterTime('22:00', now), new Date(2030, 0, 15, 22, 0, 0).toISOString());
  t.equal(laterTime('9:30', now), new Date(2030, 0, 16, 9, 30, 0).toISOString());
  t.equal(laterTime('12:00', now), new Date(2030, 0, 16, 12, 0, 0).toISOString());
  t.equal(laterTime('90m', now), new Date(2030, 0, 15, 13, 30, 0).toISOString());
  t.equal(laterTime('2030-02-01T00:00:00+01:00', now), '2030-01-31T23:00:00.000Z');
  t.throws(() => laterTime('25:00', now), /neither a time/);
  t.throws(() => laterTime('2030-02-30T00:00:00Z', now), /neither a time/);
});
