/** `cnapi job output` where agents went down while the command ran. */
import t from 'tap';
import type { PushJob } from '../../../lib/protocol/api/push/job-schemas.ts';
import type { Task } from '../../../lib/protocol/api/tasks.ts';
import { scripted } from '../../client/rig.ts';
import { freshZone } from '../../support/apps.ts';
import { startAgents } from '../../support/simulated-agents.ts';
import { until } from '../../support/until.ts';
import { Cli, records } from '../rig.ts';

t.test('what a command wrote before its agent went down is shown', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const [agent] = await startAgents(t, [app], 1);
  if (agent === undefined) throw new Error('no agent');
  const cli = new Cli(t, [app.url]);
  const { body: job } = await app.post<PushJob>('/push-jobs', {
    command: 'echo early\nsleep 300',
    servers: [agent.serverUuid],
  });
  const counts = async () => (await app.get<PushJob>(`/push-jobs/${job.id}`)).body.counts;
  await until(async () => (await counts()).running === 1, 'the command to run');
  const taskOf = async () => {
    const [node] = records<{ task: Task }>((await cli.run('--json', 'job', 'output', job.id)).stdout);
    return node?.task;
  };
  const written = async () => {
    const { rows } = await zone.database.query("select 1 from cnapi_task_events where name = 'output'");
    return rows.length > 0;
  };
  await until(written, 'the output to be stored');
  agent.crash();
  await until(async () => (await counts()).crashed === 1, 'the node to have crashed');

  await t.test('while the agent is down, what shows it is named, and the exit code is 4', async (t) => {
    for (const servers of [[], [agent.serverUuid]])
      t.match(await cli.run('job', 'output', job.id, ...servers), {
        code: 4,
        stdout: '',
        stderr: new RegExp(`has not reported the end; cnapi job watch ${job.id.slice(0, 8)} shows`),
      });
    t.match(await cli.run('job', 'watch', job.id), { code: 1, stdout: /^early\n/ });
  });

  await t.test('once the agent is back, it is shown', async (t) => {
    await agent.restart();
    await until(async () => (await taskOf())?.status === 'failure', 'the agent to report the end');
    t.match(await cli.run('job', 'output', job.id), { code: 0, stdout: /^\S+ +\| early\n$/ });
    t.match(await cli.run('job', 'output', job.id, agent.serverUuid), { code: 0, stdout: /^early\n$/ });
  });
});

t.test('of a node that crashed, what its agent reported when it was back is told', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = await startAgents(t, [app], 2);
  const [server = '', other = ''] = agents.map(({ serverUuid }) => serverUuid);
  const cli = new Cli(t, [app.url]);
  const { body: job } = await app.post<PushJob>('/push-jobs', {
    command: 'echo done\nsleep 2',
    servers: [server, other],
  });
  const counts = async () => (await app.get<PushJob>(`/push-jobs/${job.id}`)).body.counts;
  await until(async () => (await counts()).running === 2, 'the commands to run');
  // The rows say that the server was disconnected for a long time.
  await zone.database.query(
    `update cnapi_push_nodes set state = 'crashed', reason = 'down' where server_uuid = $1::uuid`,
    [server],
  );
  const ended = async () =>
    records<{ task: Task }>((await cli.run('--json', 'job', 'output', job.id)).stdout).map(({ task }) => task.status);
  await until(async () => (await ended()).every((status) => status === 'complete'), 'the commands to end');
  await until(async () => (await counts()).succeeded === 1, 'the other node to end');
  t.match(await counts(), { crashed: 1, succeeded: 1 });
  const late = /its agent came back and reported exit code 0 at \d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/;
  const line = (await cli.run('job', 'status', job.id, '--node', server)).stdout;
  t.match(line, new RegExp(`crashed .*: down \\(${late.source}\\)\n$`));
  for (const servers of [[], [server]]) {
    const { code, stdout, stderr } = await cli.run('job', 'output', job.id, ...servers);
    t.match({ code, stdout, stderr }, { code: 0, stdout: /done/, stderr: late });
    t.equal(stderr.match(/came back/g)?.length, 1, 'of this node alone');
  }
  t.notMatch((await cli.run('job', 'status', job.id, '--node', other)).stdout, late);
});

t.test('outputs of all nodes are shown where the memory for answers permits only some at once', async (t) => {
  const zone = await freshZone(t);
  const app = await zone.startApp();
  const agents = await startAgents(t, [app], 5);
  const { body: job } = await app.post<PushJob>('/push-jobs', {
    command: 'echo it',
    servers: agents.map(({ serverUuid }) => serverUuid),
  });
  const counts = async () => (await app.get<PushJob>(`/push-jobs/${job.id}`)).body.counts;
  await until(async () => (await counts()).succeeded === 5, 'the commands to end');

  // This imitates an instance with a slow connection: two answers of the caller fit, and they are
  // read only after each of the three others has been refused four times.
  let held = 0;
  let refusedCount = 0;
  const slow = await scripted(t, async (response, { path }) => {
    const isTask = path.startsWith('/tasks/');
    if (isTask && held >= 2) {
      refusedCount += 1;
      response.writeHead(429, { 'content-type': 'application/json', 'retry-after': '0' });
      response.end(JSON.stringify({ code: 'AnswerShareFull', message: 'read them, and ask again' }));
      return;
    }
    if (isTask) held += 1;
    const answer = await fetch(`${app.url}${path}`);
    const text = await answer.text();
    if (isTask) await until(() => refusedCount >= 12, 'the others to be refused');
    response.on('close', () => {
      if (isTask) held -= 1;
    });
    response.writeHead(answer.status, { 'content-type': 'application/json' });
    response.end(text);
  });
  const seen = await new Cli(t, [slow.url]).run('job', 'output', job.id);
  t.match(seen, { code: 0, stdout: /^(node-\d \| it\n){5}$/ });
  t.equal(refusedCount, 12);
  t.equal(seen.stdout, (await new Cli(t, [app.url]).run('job', 'output', job.id)).stdout, 'in the same order');
});
