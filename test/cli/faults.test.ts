/** Commands under way while instances are killed, frozen and drained. */
import { writeFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import t from 'tap';
import { startZone } from '../support/fleet-harness.ts';
import { Cli } from './rig.ts';

t.test('the CLI while instances fail', async (t) => {
  const zone = await startZone(t, { instances: 3, agents: 1, simulated: 0 });
  const [first, ...others] = zone.instances;
  const [server] = zone.agents.map(({ serverUuid }) => serverUuid);
  if (first === undefined || server === undefined) throw new Error('the zone is empty');
  /** The CLI learns the other addresses from the named instance. */
  const cli = new Cli(t, [first.url]);
  /** Restores the zone after each test, so that one failure does not cause others. */
  const restore = async () => {
    for (const { program } of zone.instances) {
      if (program.isFrozen) program.thaw();
      if (!program.isAlive) program.start();
    }
    await Promise.all(zone.instances.map((instance) => zone.ready(instance)));
    await zone.untilRunning(1);
  };

  await t.test('exec, lock and events continue at another instance after theirs is killed or freezes', async (t) => {
    t.teardown(restore);
    const go = `${cli.home}/go`;
    const script = `echo begun; while [ ! -e ${go} ]; do sleep 0.1; done; echo done`;
    const exec = cli.start(['exec', server, '--', script]);
    const lock = cli.start(['lock', server, 'vm', 'x', '--expires', '6s', '--', 'sh', '-c', script]);
    await exec.says('begun');
    await lock.says('begun');
    const waiter = cli.start(['lock', server, 'vm', 'x', '--', 'echo', 'mine']);
    await waiter.says('1 ahead');
    const events = cli.start(['events', '--kind', 'ticket', '--json']);
    await events.says('following');
    await first.program.kill();
    others[0]?.program.freeze();
    // Longer than an unrenewed ticket lasts.
    await sleep(7000);
    t.equal(waiter.stdout(), '', 'the lock was renewed');
    others[0]?.program.thaw();
    writeFileSync(go, '');
    t.match(await exec.ended, { code: 0, stdout: 'begun\ndone\n', stderr: /continuing at another instance/ });
    t.match(await lock.ended, { code: 0, stdout: 'begun\ndone\n' });
    t.match(await waiter.ended, { code: 0, stdout: 'mine\n' });
    const finished = /"finished"[\s\S]*"finished"/;
    await events.says(finished);
    t.match(events.stderr(), /continuing at another instance/);
    events.child.kill('SIGINT');
  });

  await t.test('a lock that cannot be renewed stops the command in time', async (t) => {
    t.teardown(restore);
    const holder = cli.start([
      'lock',
      server,
      'vm',
      'y',
      '--expires',
      '4s',
      '--',
      'sh',
      '-c',
      'echo held; exec sleep 60',
    ]);
    await holder.says('held');
    for (const { program } of zone.instances) program.freeze();
    const { code, stderr } = await holder.ended;
    t.equal(code, 125);
    t.match(stderr, /could not be renewed in time/);
  });

  await t.test('drain --wait returns when the instance has gone', async (t) => {
    const { code, stdout, stderr } = await cli.run('drain', first.url, '--wait');
    t.equal(code, 0);
    t.match(stderr, /draining, \d agents/);
    t.match(stdout, `${first.uuid} has stopped after`);
    await first.program.ended();
    t.match(await cli.run('drain', first.uuid), { code: 3 }, 'the named instance has gone');
    const elsewhere = cli.start(['drain', first.uuid], { env: { CNAPI_URL: others[0]?.url ?? '' } });
    t.match(await elsewhere.ended, { code: 2, stderr: /There is no instance/ });
  });
});
