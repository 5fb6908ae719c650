/** Push jobs as clients of Chef use them, through two instances and simulated agents. */
import t from 'tap';
import type { AuditRecord } from '../../../lib/protocol/api/audit.ts';
import { until } from '../../support/until.ts';
import { asked, created, ended, JOBS, startAcme } from './acme.ts';

const RFC_1123 = /^(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT$/;
const OCTETS = { headers: { Accept: 'application/octet-stream' } };

t.test('an organization with three nodes', async (t) => {
  const { zone, a, b, acme, names } = await startAcme(t, 3);
  const nodes = names.slice(0, 3).toSorted();
  const start = async (body: object) => (await asked(a, 'POST', JOBS, { body: { nodes, ...body } })).body.id;
  const jobCount = async () =>
    (await zone.database.query<{ count: number }>('select count(*)::int as count from cnapi_push_jobs')).rows[0]?.count;

  await t.test('a job is created with its uri and its id, and any instance shows its nodes by status', async (t) => {
    const { status, headers, body } = await asked(a, 'POST', JOBS, {
      body: { command: 'echo hello', nodes, run_timeout: 60 },
      headers: { 'X-Forwarded-Proto': 'https' },
    });
    t.equal(status, 201);
    t.match(body.id, /^[0-9a-f]{32}$/);
    t.equal(body.uri, `https://${new URL(a.url).host}${JOBS}/${body.id}`);
    t.equal(headers.get('location'), body.uri);
    const job = await ended(b, body.id);
    t.match(job.created_at, RFC_1123);
    t.match(job.updated_at, RFC_1123);
    t.same(job, {
      id: body.id,
      command: 'echo hello',
      status: 'complete',
      run_timeout: 60,
      created_at: job.created_at,
      updated_at: job.updated_at,
      nodes: { succeeded: nodes },
    });
    const own = await b.get(`/push-jobs/${body.id.replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-')}`);
    t.match(
      own,
      { status: 200, body: { command: 'echo hello', counts: { succeeded: 3 } } },
      'our own tools see it, too',
    );
  });

  await t.test('options are shown as Chef shows them', async (t) => {
    const body = { command: 'true', nodes, env: { A: '1' }, file: 'raw:hello', capture_output: true };
    const { id } = (await asked(a, 'POST', JOBS, { body })).body;
    await ended(a, id);
    t.match((await asked(b, 'GET', `${JOBS}/${id}`)).body, {
      env: { A: '1' },
      file_specified: true,
      capture_output: true,
      file: undefined,
    });
  });

  await t.test('output is answered as bytes, if the job captures it', async (t) => {
    const captured = await start({ command: 'echo hello', capture_output: true });
    t.equal((await ended(a, captured)).status, 'complete');
    const not = await start({ command: 'echo hello', quorum: 0 });
    await ended(a, not);
    const output = (id: string, stream: string, options: object = OCTETS, node = nodes[0]) =>
      asked(b, 'GET', `${JOBS}/${id}/output/${node}/${stream}`, options);
    const stdout = await output(captured, 'stdout');
    t.match({ status: stdout.status, text: stdout.text }, { status: 200, text: 'hello\n' });
    t.equal(stdout.headers.get('content-type'), 'application/octet-stream');
    const stderr = await output(captured, 'stderr');
    t.match({ status: stderr.status, text: stderr.text }, { status: 200, text: '' });
    t.equal((await output(captured, 'stdout', { headers: { Accept: 'application/json' } })).status, 406);
    t.equal((await output(captured, 'stdout', OCTETS, 'strange')).status, 404);
    t.match(await output(not, 'stdout'), { status: 404, body: { error: { 0: /does not capture/ } } });
  });

  await t.test('the list has all jobs, newest first; status, pages and counts may be asked for', async (t) => {
    const { body: all } = await asked(b, 'GET', JOBS);
    t.equal(all.length, 4);
    t.ok(all.every((job: object) => !('nodes' in job) && !('counts' in job)));
    const ids = all.map(({ id }: { id: string }) => id);
    const first = (await asked(b, 'GET', `${JOBS}?limit=3&counts=true`)).body;
    t.same(
      first.map(({ id }: { id: string }) => id),
      ids.slice(0, 3),
    );
    t.match(first.at(-1).counts, { succeeded: 3 });
    const second = (await asked(b, 'GET', `${JOBS}?limit=3&cursor=${first.at(-1).id}`)).body;
    t.same(
      second.map(({ id }: { id: string }) => id),
      ids.slice(3),
    );
    t.same((await asked(b, 'GET', `${JOBS}?status=voting`)).body, []);
    t.equal((await asked(b, 'GET', `${JOBS}?status=complete`)).body.length, 4);
    t.equal((await asked(b, 'GET', `${JOBS}?status=aborting`)).status, 400);
    t.same((await asked(b, 'GET', '/organizations/other/pushy/jobs')).body, []);
  });

  await t.test('an abort can be repeated, and ends the job', async (t) => {
    const id = await start({ command: 'sleep 300', file: 'raw:hello' });
    const abort = (path = JOBS) => asked(b, 'PUT', `${path}/${id}/abort`);
    const withFile = () => asked(b, 'GET', `${JOBS}/${id}?include_file=true`);
    t.match((await withFile()).body, { file: 'raw:hello', file_specified: undefined });
    t.equal((await abort('/organizations/other/pushy/jobs')).status, 404);
    t.equal((await asked(a, 'DELETE', `${JOBS}/${id}`)).status, 409, 'it cannot be deleted before');
    t.match(await abort(), { status: 200, body: { id, nodes: Object } });
    t.match(await ended(a, id), { status: 'aborted' });
    t.match((await withFile()).body, { file: undefined, file_specified: true }, 'its file ends with it');
    t.match(await abort(), { status: 200, body: { id, status: 'aborted' } });
  });

  await t.test('a job that has ended can be deleted', async (t) => {
    const { id } = (await asked(a, 'GET', `${JOBS}?limit=1`)).body[0];
    t.match(await asked(b, 'DELETE', `${JOBS}/${id}`), { status: 200, body: { id } });
    const { body: records } = await a.get<AuditRecord[]>('/audit?action=DeleteChefJob&limit=1');
    t.match(records[0]?.details, { command: String, status: String, counts: Object });
    t.equal((await asked(a, 'GET', `${JOBS}/${id}`)).status, 404);
    t.equal((await asked(b, 'DELETE', `${JOBS}/${id}`)).status, 404);
  });

  await t.test('a job is found in its own organization only', async (t) => {
    const { id } = (await asked(a, 'GET', `${JOBS}?limit=1`)).body[0];
    for (const [method, path] of [
      ['GET', id],
      ['PUT', `${id}/abort`],
      ['DELETE', id],
      ['GET', `${id}/output/${nodes[0]}/stdout`],
      ['GET', `../job_status_feed/${id}`],
    ]) {
      const target = new URL(`/organizations/other/pushy/jobs/${path}`, a.url).pathname;
      const { status, body } = await asked(a, method ?? '', target);
      t.equal(status, 404, `${method} ${target}`);
      t.match(body, { error: { 0: /organization 'other' has no push job/ } });
    }
    t.equal((await asked(a, 'GET', `${JOBS}?cursor=${'0'.repeat(32)}`)).status, 404);
    t.equal((await asked(a, 'GET', `${JOBS}/nothing`)).status, 404);
  });

  await t.test('what is wrong with a job is named, and nothing is created', async (t) => {
    const before = await jobCount();
    for (const [body, field, error] of [
      [{ nodes: ['strange'] }, 'nodes', 'invalid nodes supplied'],
      [{ nodes: [...nodes, names[3]] }, 'nodes', 'invalid nodes supplied'],
      [{ nodes, quorum: 4 }, 'quorum', 'invalid quorum supplied'],
      [{ nodes, max_failures: 4 }, 'max_failures', 'invalid key supplied'],
    ] as const) {
      const answer = await asked(a, 'POST', JOBS, { body: { command: 'true', ...body } });
      t.match(answer, { status: 400, body: { field, error } });
    }
    await a.post(`/organizations/${acme}`, { allowed_commands: ['chef-client', 'echo *'] });
    t.match(await asked(b, 'POST', JOBS, { body: { command: 'reboot', nodes } }), {
      status: 400,
      body: { error: 'invalid command supplied', field: 'command', detail: /acme/ },
    });
    const withEnv = { command: 'echo it', nodes, env: { BASH_ENV: '$(id)' } };
    t.match(await asked(b, 'POST', JOBS, { body: withEnv }), { status: 400, body: { field: 'env', detail: /acme/ } });
    const withDir = { command: 'echo it', nodes, dir: '/tmp' };
    t.match(await asked(b, 'POST', JOBS, { body: withDir }), { status: 400, body: { field: 'dir', detail: /acme/ } });
    await a.post(`/organizations/${acme}`, { allowed_commands: ['*'] });
    const long = { command: 'true', nodes, file: `raw:${'x'.repeat(1_000_000)}` };
    const tooLong = await asked(a, 'POST', JOBS, { body: long });
    t.match(tooLong, { status: 413, body: { error: 'JSON must be no more than 1000000 bytes.' } });
    t.equal(await jobCount(), before);
  });

  await t.test('the order of refusals is that of Chef', async (t) => {
    const wrong = { body: { strange: 1 }, headers: { Accept: 'text/html' } };
    const nowhere = '/organizations/nowhere/pushy/jobs';
    t.match(await asked(a, 'PUT', nowhere, wrong), { status: 405, body: { error: { 0: 'PUT is not allowed' } } });
    t.match(await asked(a, 'POST', nowhere, wrong), {
      status: 404,
      body: { error: { 0: "organization 'nowhere' does not exist." } },
    });
    t.equal((await asked(a, 'POST', JOBS, wrong)).status, 406);
    t.equal((await asked(a, 'POST', JOBS, { ...wrong, headers: { 'content-type': 'text/xml' } })).status, 415);
    t.equal((await asked(a, 'POST', JOBS, { body: wrong.body })).status, 400);
    t.equal((await asked(a, 'GET', `${JOBS}/nothing`, { headers: { Accept: 'text/html' } })).status, 406);
    for (const feed of ['job_status_feed', 'job_status_feed/nothing']) {
      const target = `/organizations/acme/pushy/${feed}`;
      t.equal((await asked(a, 'POST', target, {})).status, 405);
      t.equal((await asked(a, 'GET', target, { headers: { Accept: 'application/json' } })).status, 406);
    }
    t.equal((await asked(a, 'GET', '/organizations/acme/pushy/job_status_feed/nothing')).status, 404);
  });

  await t.test('states of nodes', async (t) => {
    const states = '/organizations/acme/pushy/node_states';
    const { body } = await asked(b, 'GET', states);
    t.match(
      body,
      nodes.map((node_name) => ({ node_name, status: 'online', availability: 'available', updated_at: RFC_1123 })),
    );
    t.equal(body.length, 3);
    t.match((await asked(a, 'GET', `${states}/${nodes[0]}`)).body, body[0]);
    for (const name of ['strange', names[3]])
      t.same(
        (await asked(a, 'GET', `${states}/${name}`)).body,
        { node_name: name, status: 'offline', availability: 'unavailable' },
        'a node of another organization is not known here',
      );
  });

  await t.test('the configuration of a node has the URL of its link', async (t) => {
    const config = `/organizations/acme/pushy/config/${nodes[0]}`;
    t.match(await asked(a, 'GET', config), { status: 400, body: { error: { 0: 'Missing ccpk' } } });
    t.match(await asked(a, 'GET', `${config}?ccpk=x`), { status: 401, body: { error: { 0: 'Bad ccpk' } } });
    const { status, body } = await asked(a, 'GET', `${config}?ccpk=${'x'.repeat(40)}`);
    t.equal(status, 200);
    t.match(body, { type: 'config', node: nodes[0], organization: 'acme', lifetime: 3600 });
    t.match(body.push_jobs.heartbeat.command_addr, /^ws:\/\/127\.0\.0\.1:\d+\/agents\/[0-9a-f-]{36}\/link$/);
    const connect = '/organizations/acme/pushy/connect';
    t.same((await asked(a, 'GET', `${connect}/${nodes[0]}`)).body, body);
    t.equal((await asked(a, 'GET', `${connect}/strange`)).status, 404);
    t.equal((await asked(a, 'GET', '/organizations/acme/pushy/config/')).status, 404);
  });

  await t.test('the status of an instance', async (t) => {
    const id = await start({ command: 'sleep 300' });
    await until(
      async () => (await asked(a, 'GET', `${JOBS}/${id}`)).body.status === 'running',
      'the job to run at an instance',
    );
    for (const app of [a, b]) {
      const { status, body, text } = await asked(app, 'GET', '/pushy/_status');
      t.equal(status, 200);
      t.match(body, { status: "it's alive", incarnation_id: /^[0-9a-f-]{36}$/, node_fsm_count: Number });
      t.same(body.job_processes, []);
      t.notOk(text.includes(id), 'whoever asks learns the id of no job');
    }
    await asked(a, 'PUT', `${JOBS}/${id}/abort`);
    await ended(a, id);
    t.equal((await asked(a, 'POST', '/pushy/_status')).status, 405);
  });
});

t.test('a server that claims the hostname of another one makes the name unusable, and gets no job by it', async (t) => {
  const { a, b, acme, names } = await startAcme(t, 1);
  const [name = ''] = names;
  const [twin, late] = ['11111111-1111-4111-8111-111111111111', '22222222-2222-4222-8222-222222222222'];
  const report = (UUID: string, Hostname: string) =>
    a.post(`/servers/${UUID}/sysinfo`, { sysinfo: { UUID, Hostname } });
  const bind = (server_uuid: string) => created(a, '/bindings', { organization: acme, server_uuid });
  const create = () => asked(b, 'POST', JOBS, { body: { command: 'true', nodes: [name] } });
  await report(twin, name);
  t.equal((await create()).status, 201, 'a server that is not bound has no name in the organization');
  await report(late, 'late');
  await bind(late);
  await report(late, name);
  t.equal((await create()).status, 201, 'a name stays what the first report said');
  await bind(twin);
  t.match(await create(), { status: 400, body: { field: 'nodes', detail: /several servers/ } });
  const about = (what: string) => asked(b, 'GET', `/organizations/acme/pushy/${what}`);
  t.match(await about(`connect/${name}`), { status: 404, body: { error: { 0: /several servers with the hostname/ } } });
  t.match(await about(`node_states/${name}`), { body: { status: 'offline', availability: 'unavailable' } });
  const { body: states } = await about('node_states');
  t.same(
    states.map((state: { node_name: string }) => state.node_name),
    ['late', name, name].toSorted(),
    'the list shows both',
  );
});
