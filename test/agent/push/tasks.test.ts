/** The task of a push job, on the machine that runs this test. */
import { mkdtemp, rm } from 'node:fs/promises';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import t from 'tap';
import { openLinuxMachine } from '../../../lib/agent/machine/linux-machine.ts';
import { pushTasks } from '../../../lib/agent/push/tasks.ts';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import { systemClock as clock } from '../../../lib/platform/time/clock.ts';
import { prepareFrame } from './prepare-frame.ts';

t.test(
  'a job’s command finds its job, its node and its file in its environment, and is in its directory',
  async (t) => {
    const runDirectory = await mkdtemp(join(tmpdir(), 'push-command-'));
    t.teardown(() => rm(runDirectory, { recursive: true, force: true }));
    const machine = await openLinuxMachine({ clock, serverUuid: random.uuid(), agentVersion: '1', runDirectory });
    const prepare = prepareFrame({
      command: 'echo "$CHEF_PUSH_JOB_ID $CHEF_PUSH_NODE_NAME $A"; cat "$CHEF_PUSH_JOB_FILE"; pwd',
      env: { A: 'b', CHEF_PUSH_JOB_ID: 'not this', CHEF_PUSH_NODE_NAME: 'nor this' },
      dir: runDirectory,
      file: Buffer.from('contents\n').toString('base64'),
    });
    const { signal } = new AbortController();
    let ended = 0;
    const result = await pushTasks.push_command.run({ job: prepare.job }, {
      id: random.uuid(),
      signal,
      machine,
      begin: async () => {},
      output: () => {},
      pushJobs: { begin: () => ({ prepare, signal, ended: () => (ended += 1) }) },
    } as unknown as Parameters<typeof pushTasks.push_command.run>[1]);
    t.match(result, { exitCode: 0, stdout: `${prepare.job} ${hostname()} b\ncontents\n${runDirectory}\n` });
    t.equal(ended, 1);
  },
);
