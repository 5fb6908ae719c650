/** `cnapi workflow` and `cnapi server reboot`, with a real instance and a real agent. */
import t from 'tap';
import type { WorkflowJob } from '../../../lib/protocol/api/workflows.ts';
import { RebootingServer } from '../../control/workflows/rebooting-server.ts';
import { freshZone } from '../../support/apps.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { Cli } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);

t.test('a reboot is followed to its end, and its job is listed and shown', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const server = await RebootingServer.start(t, [app]);
  const cli = new Cli(t, [app.url]);
  t.match(await cli.run('workflow', 'list'), { code: 0, stderr: 'cnapi: No workflow jobs\n' });

  const following = cli.start(['server', 'reboot', server.serverUuid, '--drain', '--wait']);
  await following.says('await-boot: waits until the server is back, with another boot time');
  const [job] = await cli.json<WorkflowJob[]>('workflow', 'list', '--execution', 'running');
  const uuid = job?.uuid ?? '';
  const prefix = uuid.slice(0, 8);
  t.match(await cli.run('workflow', 'list', '--server', server.serverUuid), { code: 0, stdout: /running +await-boot/ });
  const shown = await cli.run('workflow', 'show', prefix);
  t.match(shown.stdout, /^now +await-boot: waits until the server is back/m);
  t.match(
    shown.stdout,
    /^begin-drain +OK .*\n.*await-idle +OK .*\nreboot +OK .*\nmark-rebooting +OK .*\nawait-boot +running/m,
  );
  t.match(shown.stdout, /^end-drain +waiting/m, 'a step that is still to come');

  await t.test('who leaves is told that the job goes on, and how to follow it', async (t) => {
    const waiting = cli.start(['workflow', 'wait', prefix]);
    await waiting.says('await-boot: waits');
    waiting.child.kill('SIGINT');
    const { code, stderr } = await waiting.ended;
    t.equal(code, 130);
    t.match(stderr, `workflow job ${uuid} continues; to follow it: cnapi workflow wait ${prefix}; to cancel it: cnapi`);
    const late = await cli.run('workflow', 'wait', prefix, '--timeout', '1ms');
    t.match(late, { code: 1, stdout: '', stderr: /not ended within 0\.0s: workflow job .* continues/ });
    t.equal((await cli.json<WorkflowJob>('workflow', 'show', prefix)).execution, 'running');
  });

  const again = await cli.run('server', 'reboot', server.serverUuid, '--drain');
  t.match(again, { code: 0, stdout: `${uuid}\n`, stderr: /cnapi workflow wait/ }, 'the same request gets the same job');
  server.powerOff();
  await server.boot();
  const { code, stdout, stderr } = await following.ended;
  t.equal(code, 0);
  t.match(stdout, /^server-reboot succeeded after [0-9.ms ]+\n$/);
  t.match(
    stderr,
    /^cnapi: begin-drain: OK after .*\n(.*\n)*cnapi: await-boot: OK after .*\n(.*\n)*cnapi: end-drain: OK/m,
  );
  const once = await cli.run('workflow', 'wait', prefix);
  t.match(once, { code: 0, stdout, stderr: /end-drain: OK/ }, 'a job that has ended');
  t.equal((await cli.json<WorkflowJob>('workflow', 'wait', uuid)).execution, 'succeeded');
  t.match(await cli.run('workflow', 'cancel', prefix), { code: 1, stderr: /has succeeded; only a job that has not/ });
});

t.test('a job that fails or is cancelled says so, and what was undone', async (t) => {
  const app = await (await freshZone(t)).startApp();
  const server = await RebootingServer.start(t, [app], { allowReboot: false });
  const cli = new Cli(t, [app.url]);
  const failed = await cli.run('server', 'reboot', server.serverUuid, '--drain', '--wait');
  t.match(failed, { code: 1, stdout: '' });
  t.match(failed.stderr, /^cnapi: reboot: .*allow-reboot.*; see cnapi task [0-9a-f]{8}$/m);
  t.match(failed.stderr, /^cnapi: undo: end-drain: OK/m);
  t.match(failed.stderr, /^cnapi: server-reboot failed after .*: reboot: .*allow-reboot/m);

  await app.post(`/servers/${server.serverUuid}/tasks`, { task: 'sleep', params: { timeout: 3_600_000 } });
  const uuid = (await cli.run('server', 'reboot', server.serverUuid, '--drain', '-q')).stdout.trim();
  const waiting = cli.start(['workflow', 'wait', uuid]);
  await waiting.says('await-idle: waits until the server has no task that has not ended');
  const cancelled = await cli.run('workflow', 'cancel', uuid.slice(0, 8));
  t.match(cancelled, { code: 0, stdout: `cancel of workflow job ${uuid} requested\n` });
  const { code, stderr } = await waiting.ended;
  t.equal(code, 1);
  t.match(stderr, /^cnapi: await-idle: canceled after .*\n(.*\n)*cnapi: undo: end-drain: OK/m);
  t.match(stderr, /^cnapi: server-reboot was cancelled by .* after/m);
  const { stdout } = await cli.run('workflow', 'show', uuid);
  t.match(stdout, /^await-idle +Canceled +.*\nundo: end-drain +OK/m);
  t.notMatch(stdout, 'waiting', 'the other steps of the chain do not follow');
});
