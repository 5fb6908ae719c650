/** `cnapi exec` on several servers: the real program against scripted instances. */
import type { ServerResponse } from 'node:http';
import t from 'tap';
import { json, scripted } from '../../client/rig.ts';
import { until } from '../../support/until.ts';
import { Cli } from '../rig.ts';

const JOB = '9d3c5d6e-0f53-4c4e-8f43-2a1d2f0c7b10';
const SHORT = JOB.slice(0, 8);
const NOT_NOW = { code: 'ServiceUnavailable', message: 'not now' };
const SERVERS = [0, 1, 2].map((at) => ({
  uuid: `564d5b45-3a8c-4c1f-9d0a-01234567000${at}`,
  hostname: `web-${at}`,
  status: 'running',
}));

interface Event {
  name: string;
  data: object;
}

const output = (offset: number, text: string): Event => ({ name: 'output', data: { stream: 'stdout', offset, text } });

const JOB_FACTS = { quorum: 1, run_timeout_ms: 1000, voting_timeout_ms: 1000, actor: null };
const NOW = '2030-01-01T00:00:00Z';
const ofJob = (status: string) => ({
  ...{ id: JOB, command: 'x', status, node_count: 3, counts: {} },
  ...{ ...JOB_FACTS, created_at: NOW, updated_at: NOW },
});

/** The stream of a push job: events of the tasks of its servers, by their number. */
function jobStream(events: readonly [server: number, event: Event][]): string {
  const all = SERVERS.map(({ uuid }) => uuid);
  return events
    .map(([server, event], at) => {
      const told = { seq: at + 1, attempt: 1, timestamp: NOW, ...event };
      const data = { server_uuid: all[server], task_id: all[server], event: told };
      return `id: ${NOW}\nevent: task\ndata: ${JSON.stringify(data)}\n\n`;
    })
    .join('');
}

t.test('an unfinished last line is shown even if the end of the task is unknown', async (t) => {
  const instance = await scripted(t, (response, { method, path, headers }) => {
    if (method === 'POST') return json(response, 201, ofJob('voting'));
    if (path.startsWith('/servers')) return json(response, 200, SERVERS.slice(0, 2));
    if (!path.endsWith('/events')) return json(response, 200, []);
    if (headers['last-event-id'] !== undefined) return json(response, 401, NOT_NOW);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.end(
      jobStream([
        [0, output(0, 'half a line')],
        [1, output(0, 'half a line')],
      ]),
    );
  });
  const { code, stdout, stderr } = await new Cli(t, [instance.url]).run('exec', '--all', '--', 'x');
  t.equal(code, 3);
  t.match(stdout, 'web-0 | half a line\n');
  t.match(stdout, 'web-1 | half a line\n');
  t.match(stderr, `see later: cnapi job status ${SHORT}`);
});

t.test('on exit, exec names what may still run', async (t) => {
  const aborts: string[] = [];
  let created: ServerResponse | undefined;
  const instance = await scripted(t, (response, { method, path }) => {
    if (path.startsWith('/servers') && method === 'GET') return json(response, 200, SERVERS);
    if (method === 'POST') {
      created = response;
      return isCreating ? undefined : json(response, 201, ofJob('voting'));
    }
    if (method === 'PUT') {
      aborts.push(path);
      return json(response, 409, { code: 'PushJobNotEnded', message: 'not now' });
    }
    if (!path.endsWith('/events')) return json(response, 200, []);
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(
      jobStream([
        [0, output(0, 'begun\n')],
        [0, output(9, 'later\n')],
      ]),
    );
  });
  let isCreating = false;
  const cli = new Cli(t, [instance.url]);
  for (const each of [['SIGINT', 'SIGINT'], ['SIGHUP']] as const) {
    const running = cli.start(['exec', '--all', '--concurrency', '2', '--', 'x']);
    await running.says('begun');
    for (const signal of each) {
      running.child.kill(signal);
      if (each.length > 1) await running.says(`push job ${SHORT} could not be cancelled: not now`);
    }
    const { code, stdout, stderr } = await running.ended;
    t.equal(code, each.length > 1 ? 130 : 129);
    t.match(stdout, 'later', 'output that was held back after a gap');
    t.match(stderr, `left: push job ${SHORT} may still run on 3 of 3 servers; see cnapi job status ${SHORT}`);
  }
  t.same(
    aborts,
    [`/push-jobs/${JOB}/abort`, `/push-jobs/${JOB}/abort`],
    'the second one asks only that no more starts',
  );
  isCreating = true;
  created = undefined;
  const early = cli.start(['exec', '--all', '--', 'x']);
  await until(() => created, 'a request that gets no answer');
  early.child.kill('SIGHUP');
  t.match(await early.ended, { code: 129, stderr: /left: a push job may have been created; see cnapi job list/ });
});

t.test('a refusal of the whole command is reported once, with the number of servers', async (t) => {
  const instance = await scripted(t, (response, { method, path }) => {
    if (method === 'POST')
      return json(response, 403, { code: 'Forbidden', message: 'CreatePushJob needs the role operator' });
    return json(response, 200, path.startsWith('/servers') ? SERVERS : []);
  });
  const cli = new Cli(t, [instance.url]);
  const { code, stderr } = await cli.run('exec', '--all', '--', 'x');
  t.equal(code, 1);
  t.equal(stderr.split('needs the role operator').length, 2, stderr);
  t.match(stderr, /^cnapi: 3 servers: CreatePushJob needs the role operator/m);
  t.match(stderr, '3 servers: 3 not started');
  const { stdout } = await cli.run('exec', '--all', '--json', '--', 'x');
  t.equal(stdout.trim().split('\n').length, 3, 'programs get a record for each server');
});
