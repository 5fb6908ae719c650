/** `cnapi watch` beside an instance that answers as a test says. */
import type { ServerResponse } from 'node:http';
import t from 'tap';
import { json, scripted } from '../client/rig.ts';
import { until } from '../support/until.ts';
import { Cli, records } from './rig.ts';

interface View {
  tasks?: { id: string }[];
}

t.test('tasks whose ends may have been missed are not shown as running, and those that come later are', async (t) => {
  const streams: ServerResponse[] = [];
  let refusals = 0;
  const instance = await scripted(t, (response, { path }) => {
    if (!path.startsWith('/events')) return json(response, 200, []);
    if (streams.length === 1 && ++refusals < 2)
      return json(response, 500, { code: 'InternalError', message: 'not now' });
    streams.push(response.writeHead(200, { 'content-type': 'text/event-stream' }));
    const data = {
      id: `task ${streams.length}`,
      status: 'active',
      task: 'x',
      server_uuid: 'y',
      time: '2030-01-01T00:00:00Z',
    };
    response.write(`id: ${streams.length}\nevent: task\ndata: ${JSON.stringify(data)}\n\n`);
  });
  const watching = new Cli(t, [instance.url]).start(['watch', '--json', '--interval', '200ms']);
  const tasks = () => records<View>(watching.stdout()).map((view) => view.tasks?.map(({ id }) => id));
  await until(() => tasks().at(-1)?.join() === 'task 1', 'the first task');
  const first = tasks().length;
  streams[0]?.destroy();
  await until(() => tasks().slice(first).includes(undefined), 'the tasks not to be told');
  await until(() => tasks().at(-1)?.join() === 'task 2', 'the second task alone');
  t.ok(refusals > 0);
  watching.child.kill('SIGINT');
  t.equal((await watching.ended).code, 130);
});
