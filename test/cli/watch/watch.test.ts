/** `cnapi watch` against a scripted instance. */
import t from 'tap';
import { json, scripted } from '../../client/rig.ts';
import { until } from '../../support/until.ts';
import { Cli, records } from '../rig.ts';

interface View {
  tasks?: { id: string }[];
  errorMessage?: string;
}

const ONE = '00000000-0000-4000-8000-000000000001';
const TWO = '00000000-0000-4000-8000-000000000002';
const THREE = '00000000-0000-4000-8000-000000000003';

const task = (id: string) => ({
  id,
  task: 'x',
  server_uuid: ONE,
  attempt: 1,
  cancel_requested: false,
  status: 'active',
  timestamp: '2030-01-01T00:00:00Z',
  actor: null,
});

t.test('watch shows all active tasks, also older ones and those on further pages', async (t) => {
  let pages: object[] = [{ tasks: [task(ONE)], next: 'p' }, { tasks: [] }];
  const instance = await scripted(t, (response, { path }) => {
    if (!path.startsWith('/tasks?')) return json(response, 200, []);
    t.match(path, 'status=active');
    return json(response, 200, pages[path.includes('after=p') ? 1 : 0]);
  });
  const cli = new Cli(t, [instance.url]);
  t.match((await cli.run('watch', '--once')).stdout, /tasks: 1 active$/m);
  const watching = cli.start(['watch', '--json', '--interval', '200ms']);
  const seen = () => records<View>(watching.stdout()).map((view) => view.tasks?.map(({ id }) => id).join());
  await until(() => seen().at(-1) === ONE, 'the first task');
  pages = [{ tasks: [task(TWO)], next: 'p' }, { tasks: [task(THREE)] }];
  await until(() => seen().at(-1) === `${TWO},${THREE}`, 'the two active tasks');
  watching.child.kill('SIGINT');
  t.equal((await watching.ended).code, 130);
});

t.test('watch omits the tasks when an instance has no list of tasks', async (t) => {
  const gone = { code: 'ResourceNotFound', message: '/tasks does not exist' };
  const instance = await scripted(t, (response, { path }) =>
    path.startsWith('/tasks?') ? json(response, 404, gone) : json(response, 200, []),
  );
  const { code, stdout } = await new Cli(t, [instance.url]).run('watch', '--once');
  t.equal(code, 0);
  t.match(stdout, /instances: none/);
  t.notMatch(stdout, /tasks/);
});

t.test('after a failed update, watch does not wait for the whole interval', async (t) => {
  let isBroken = true;
  const instance = await scripted(t, (response, { path }) => {
    if (isBroken && path.startsWith('/servers')) json(response, 500, { code: 'InternalError', message: 'a defect' });
    else json(response, 200, path.startsWith('/tasks?') ? { tasks: [] } : []);
  });
  const watching = new Cli(t, [instance.url]).start(['watch', '--json', '--interval', '1h']);
  const last = () => records<View>(watching.stdout()).at(-1);
  await until(() => last()?.errorMessage === 'a defect', 'the failure');
  isBroken = false;
  await until(() => last() !== undefined && last()?.errorMessage === undefined, 'the recovery');
  watching.child.kill('SIGINT');
  t.equal((await watching.ended).code, 130);
});
