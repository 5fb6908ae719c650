/** `cnapi vm port-forward` with real instances, a real agent and a real VM. */
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import t from 'tap';
import { lacksContainers } from '../../support/container-machine.ts';
import { startZone } from '../../support/fleet-harness.ts';
import { cannotMount } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { until } from '../../support/until.ts';
import { IMAGE } from '../../support/vm-rig.ts';
import { dataWithImage } from '../../support/vms-on-linux.ts';
import { Cli } from '../rig.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();

/** Answers each connection with what it has received, once the caller has ended. */
const ECHO = 'while true; do nc -l -p 80 -e /bin/cat; done';

t.test('connections to a port of this machine reach a port of a VM', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const zone = await startZone(t, { instances: 2, agents: 0, simulated: 0 });
  const agent = zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(1);
  const cli = new Cli(
    t,
    zone.instances.map(({ url }) => url),
  );
  const fields = [`image_uuid=${IMAGE}`, 'alias=web', 'max_physical_memory=64', '--cmd', ECHO];
  const made = await cli.run('vm', 'create', agent.serverUuid, ...fields);
  t.equal(made.code, 0, made.stderr);
  const running = cli.start(['vm', 'port-forward', 'web', ':80', ':81']);
  const portTo = async (remote: number) => {
    const line = new RegExp(`^Forwarding 127\\.0\\.0\\.1:(\\d+) -> web:${remote}$`, 'm');
    await until(() => line.test(running.stdout()), 'the line of the port');
    return Number(line.exec(running.stdout())?.[1]);
  };
  const [port, closed] = [await portTo(80), await portTo(81)];
  const ask = async (at: number, words: string) => {
    const socket = connect({ host: '127.0.0.1', port: at, allowHalfOpen: true });
    t.teardown(() => socket.destroy());
    socket.end(words);
    return text(socket).catch((error: Error) => error.message);
  };

  await until(async () => (await ask(port, 'first')) === 'first', 'the program of the VM to listen');
  const long = 'x'.repeat(1_000_000);
  t.equal(await ask(port, long), long, 'all bytes, in both directions');
  await ask(closed, '');
  await running.says(/web:81: Nothing listens on 127\.0\.0\.1:81 of the VM/);
  t.equal((await cli.run('vm', 'stop', 'web', '--timeout', '1')).code, 0);
  await ask(port, 'late');
  await running.says(/web:80: .*VmNotRunning|web:80: VM .* is not running/);
  running.child.kill('SIGINT');
  t.match(await running.ended, { code: 0 });
});
