/**
 * Containers with crun, which runs them where runc does not. crun refuses a machine that has
 * control groups of version 1 and controllers of version 2, as some test machines have. So the file
 * runs itself again in a mount namespace without the tree of version 2.
 */
import { stat } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import t, { type Test } from 'tap';
import { ContainerMachine, endOf, lacksContainers, shell } from '../../../support/container-machine.ts';
import { lacks } from '../../../support/debian-programs.ts';
import { FILE_TIMEOUT_MS } from '../../../support/patience.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || lacks('crun');
const isInside = process.env.CNAPI_TEST_IN_NAMESPACE === '1';
const ENTER = 'umount /sys/fs/cgroup/unified 2>&-; exec "$@"';

const runs = async (t: Test) => {
  const ownerOf = async () => {
    const { uid, gid, mode } = await stat('/dev/null');
    return [uid, gid, mode];
  };
  const before = await ownerOf();
  const machine = await ContainerMachine.open(t);
  const runtime = await machine.agent({ runtimes: ['crun'] });
  t.equal(runtime.unavailableReason, undefined);
  t.match(runtime.programs, /^crun \d/);
  const { exit, lines } = await machine.run(runtime, shell('a', 'id -u; cat; exit 3'));
  t.same(exit, { code: 3 });
  t.same(lines, ['0'], 'its standard input is empty');
  t.same(await ownerOf(), before);
  await runtime.remove('a');
  const spec = shell('b', 'trap "exit 7" TERM; echo ready; while true; do sleep 0.05; done');
  const end = endOf(runtime, { id: 'b', number: 1 });
  await runtime.prepare(spec);
  await runtime.start(spec, 1);
  await machine.line('b', /ready/);
  await runtime.signal({ id: 'b', number: 1 }, 'SIGTERM');
  t.same(await end, { code: 7 });
  t.same(await ownerOf(), before);
  await runtime.remove('b');
  t.same(await machine.traces(), []);
};

if (isInside || skip) t.test('crun runs containers, and gives them no device of the machine', { skip }, runs);
else {
  const file = fileURLToPath(import.meta.url);
  const again = [process.execPath, ...process.execArgv, file];
  const args = ['--mount', '--propagation', 'private', 'sh', '-c', ENTER, 'sh', ...again];
  t.spawn('unshare', args, { env: { ...process.env, CNAPI_TEST_IN_NAMESPACE: '1' } });
}
