import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { processFacts } from '../../lib/agent/machine/proc.ts';
import { FakeLegacyCnapi } from '../support/fake-legacy-cnapi.ts';
import { type Script, ScriptedInstance, type ScriptedSession } from '../support/scripted-instance.ts';
import { until } from '../support/until.ts';

const MAIN = fileURLToPath(new URL('../../lib/agent/main.ts', import.meta.url));

async function folder(t: Test): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'agent-'));
  t.teardown(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function instance(t: Test, script: Script = {}): Promise<ScriptedInstance> {
  const started = await ScriptedInstance.start(script);
  t.teardown(() => started.stop());
  return started;
}

interface Running {
  child: ChildProcess;
  exit: Promise<[number | null, NodeJS.Signals | null]>;
  stderr: () => string;
}

function startAgent(t: Test, ...args: string[]): Running {
  const child = spawn(process.execPath, [MAIN, ...args], { stdio: ['ignore', 'ignore', 'pipe'] });
  let stderr = '';
  child.stderr?.on('data', (chunk) => {
    stderr += chunk;
  });
  const exit = once(child, 'exit') as Running['exit'];
  t.teardown(() => child.kill('SIGKILL'));
  return { child, exit, stderr: () => stderr };
}

const epochOf = async (session: ScriptedSession) => (await session.received('inventory')).epoch;

async function command(session: ScriptedSession, script: string): Promise<string> {
  const id = crypto.randomUUID();
  session.task({ id, epoch: await epochOf(session), name: 'command_execute', params: { script } });
  return id;
}

const isAlive = async (pid: number) => !['Z', undefined].includes((await processFacts(pid))?.state);

const pidIn = (path: string): Promise<number> =>
  until(async () => Number(await readFile(path, 'utf8').catch(() => '')) || undefined, `a pid in ${path}`);

t.test('after kill -9 the next agent kills the leftover command before it sends its hello', async (t) => {
  const [data, one] = await Promise.all([folder(t), instance(t)]);
  const first = startAgent(t, '--url', one.url, '--data', data);
  const before = await one.session(0);
  const id = await command(before, `echo $$ > ${data}/pid; exec sleep 1000`);
  const pid = await pidIn(join(data, 'pid'));
  const done = await command(before, 'echo done');
  t.match(await before.end(done), { result: { stdout: 'done\n' } });
  const next = await command(before, 'sleep 1000');
  await until(() => before.events(next).includes('accepted'), 'a task journalled after the acknowledgement');
  first.child.kill('SIGKILL');
  await first.exit;
  t.ok(await isAlive(pid), 'the command outlives its agent');

  startAgent(t, '--url', one.url, '--data', data);
  const after = await one.session(1);
  t.notOk(await isAlive(pid), 'the command is dead before the next agent’s hello');
  const [old, hello] = await Promise.all([before.received('hello'), after.received('hello')]);
  t.match(hello, { serverUuid: old.serverUuid, journalId: old.journalId, epoch: 1, conn: 1 });
  t.not(hello.incarnation, old.incarnation);
  const { tasks } = await after.received('inventory');
  t.match(
    tasks.find((task) => task.id === id),
    { state: 'ended', attempt: 1 },
  );
  t.notOk(
    tasks.some((task) => task.id === done),
    'the inventory omits the acknowledged task',
  );
  t.match(await after.end(id), { outcome: 'failure', error: { code: 'AgentRestarted', message: /unknown/ } });
  t.notOk(
    after.all('task_end').some((end) => end.id === done),
    'the end of the acknowledged task is not sent again',
  );
});

t.test('the next agent sends an unacknowledged end again, unchanged', async (t) => {
  const [data, one] = await Promise.all([folder(t), instance(t, { acknowledge: false })]);
  const first = startAgent(t, '--url', one.url, '--data', data);
  const before = await one.session(0);
  const id = await command(before, 'echo once; exit 7');
  const end = await before.end(id);
  first.child.kill('SIGKILL');
  await first.exit;
  one.script.acknowledge = true;
  startAgent(t, '--url', one.url, '--data', data);
  t.same(await (await one.session(1)).end(id), end);
});

t.test('SIGTERM ends running tasks, reports them and exits 0; a second agent on the same data exits 2', async (t) => {
  const [data, one] = await Promise.all([folder(t), instance(t)]);
  const first = startAgent(t, '--url', one.url, '--data', data);
  const session = await one.session(0);
  const id = await command(session, 'echo up; sleep 1000');
  await until(() => session.events(id).includes('output'), 'output');

  const second = startAgent(t, '--url', one.url, '--data', data);
  t.same(await second.exit, [2, null]);
  t.match(second.stderr(), new RegExp(`Another agent \\(pid ${first.child.pid}\\) runs on`));

  first.child.kill('SIGTERM');
  first.child.kill('SIGTERM');
  t.match(await session.end(id), { error: { code: 'AgentStopped' }, result: { stdout: 'up\n' } });
  t.same(await first.exit, [0, null]);
});

t.test('a wrong command line exits 2 and names the option', async (t) => {
  const wrong = startAgent(t, '--url', 'http://127.0.0.1:1');
  t.same(await wrong.exit, [2, null]);
  t.match(wrong.stderr(), /--data DIR is missing/);
  const noList = startAgent(t, '--url', 'http://127.0.0.1:1', '--data', await folder(t), '--push-commands', '/no/such');
  t.same(await noList.exit, [2, null]);
  t.match(noList.stderr(), /^cn-agent: --push-commands \/no\/such cannot be used: ENOENT[^\n]*\nTry --help.\n$/);
  const noDirectory = startAgent(t, '--url', 'http://127.0.0.1:1', '--data', MAIN);
  t.same(await noDirectory.exit, [2, null]);
  t.match(noDirectory.stderr(), /^cn-agent: --data .* cannot be used: EEXIST[^\n]*\nTry --help.\n$/);
});

t.test('an agent resumes by itself after SIGSTOP and SIGCONT', async (t) => {
  const [data, one] = await Promise.all([folder(t), instance(t, { welcome: { serverSilenceMs: 3000 } })]);
  const agent = startAgent(t, '--url', one.url, '--data', data);
  const before = await one.session(0);
  const id = await command(before, 'sleep 1; echo slept');
  await until(() => before.events(id).includes('started'), 'the task to start');
  agent.child.kill('SIGSTOP');
  await new Promise((done) => setTimeout(done, 5000));
  agent.child.kill('SIGCONT');
  t.match(await before.end(id), { outcome: 'complete', result: { stdout: 'slept\n' } });
  t.equal(one.sessions.length, 1, 'the agent keeps an instance that answered all the time');
  before.cut();
  const after = await one.session(1);
  t.match(await after.received('inventory'), { epoch: 2 });
});

t.test('when an agent dies, its posted task fails and the next agent does not know it', async (t) => {
  const [data, cnapi] = await Promise.all([folder(t), FakeLegacyCnapi.start()]);
  t.teardown(() => cnapi.stop());
  const serverUuid = crypto.randomUUID();
  const args = [
    '--url',
    cnapi.url,
    '--data',
    data,
    '--uuid',
    serverUuid,
    '--http-port',
    '0',
    '--http-from',
    '127.0.0.1',
  ];
  const first = startAgent(t, ...args);
  await until(() => cnapi.statusOf(serverUuid) === 'running', 'the first agent to run');
  const script = `echo $$ > ${data}/pid; exec sleep 1000`;
  const cut = cnapi.runTask(serverUuid, 'command_execute', { script }).catch((error: Error) => error);
  const pid = await pidIn(join(data, 'pid'));
  first.child.kill('SIGKILL');
  t.type(await cut, Error);
  const beats = cnapi.all('/events/heartbeat').length;
  startAgent(t, ...args, '--protocol', 'legacy');
  await until(() => cnapi.all('/events/heartbeat').length > beats, 'a heartbeat of the next agent');
  t.notOk(await isAlive(pid), 'the leftover command is dead');
  const answer = await cnapi.runTask(serverUuid, 'command_execute', { script: 'echo up' });
  t.match(answer, { status: 200, body: { stdout: 'up\n', exitCode: 0 } });
  t.same(await cnapi.historyOf(serverUuid).then((history) => history.length), 1);
});
