import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { systemRandom as random } from '../../../lib/platform/random.ts';
import type { VmSummary } from '../../../lib/protocol/vms.ts';
import { lacksContainers } from '../../support/container-machine.ts';
import { cannotMount, mountsBelow } from '../../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../../support/patience.ts';
import { ScriptedInstance, type ScriptedSession } from '../../support/scripted-instance.ts';
import { IMAGE, uuidOf } from '../../support/vm-rig.ts';
import { dataWithImage, internal_metadata } from '../../support/vms-on-linux.ts';

t.setTimeout(FILE_TIMEOUT_MS);
const skip = lacksContainers() || cannotMount();
const MAIN = fileURLToPath(new URL('../../../lib/agent/main.ts', import.meta.url));
const A = uuidOf(1);
const create = { uuid: A, image_uuid: IMAGE, max_physical_memory: 64, internal_metadata };

/** An agent process that is killed, and its sessions, one after the other. */
class KilledAgent {
  readonly #instance: ScriptedInstance;
  readonly #data: string;
  #process: ChildProcess | undefined;
  #sessions = 0;
  #session: ScriptedSession | undefined;

  constructor(instance: ScriptedInstance, data: string) {
    this.#instance = instance;
    this.#data = data;
  }

  async start(): Promise<void> {
    const args = [MAIN, '--url', this.#instance.url, '--data', this.#data, '--containers'];
    this.#process = spawn(process.execPath, args, { stdio: 'ignore' });
    this.#session = await this.#instance.session(this.#sessions);
    this.#sessions += 1;
    await this.#session.received('inventory');
  }

  /** Kills the agent with SIGKILL. */
  async kill(): Promise<void> {
    if (this.#process === undefined) return;
    const ended = once(this.#process, 'exit');
    this.#process.kill('SIGKILL');
    await ended;
    this.#process = undefined;
  }

  begin(name: string, params: object): string {
    const id = random.uuid();
    this.#session?.task({ id, epoch: this.#sessions, name, params: { ...params } });
    return id;
  }

  async run(name: string, params: object) {
    const end = await this.#session?.end(this.begin(name, params));
    return end?.outcome === 'complete' ? end.result : end?.error;
  }

  /** Resolves when the task has started. */
  async begins(task: string): Promise<void> {
    await this.#session?.received('task_event', ({ id, event }) => id === task && event.name === 'started');
  }

  /** Resolves when a status frame tells that the VM is in one of these states. */
  async sees(...states: VmSummary['state'][]): Promise<VmSummary | undefined> {
    const vmOf = (status: Record<string, unknown>) => (status.vms as Record<string, VmSummary>)[A];
    const frame = await this.#session?.received('status', ({ status }) =>
      states.includes(vmOf(status)?.state as never),
    );
    return frame && vmOf(frame.status);
  }
}

t.test('an agent that is killed at any moment leaves VMs that the next one continues', { skip }, async (t) => {
  const data = await dataWithImage(t);
  const instance = await ScriptedInstance.start();
  t.teardown(() => instance.stop());
  const agent = new KilledAgent(instance, data);
  t.teardown(() => agent.kill());
  const again = async () => {
    await agent.kill();
    await agent.start();
  };
  await agent.start();

  agent.begin('machine_create', create);
  t.match(await agent.sees('provisioning'), { brand: 'oci' }, 'a change is told in a status frame');
  await again();
  const left = await agent.sees('failed', 'running');
  if (left?.state === 'failed') t.match(left, { error: 'The agent ended during the create of the VM' });
  t.same(await agent.run('machine_destroy', { uuid: A }), {});

  t.match(await agent.run('machine_create', create), { vm: { state: 'running' } });
  agent.begin('machine_reboot', { uuid: A });
  await agent.sees('stopping', 'stopped');
  await again();
  await agent.sees('running');
  t.match(await agent.run('machine_load', { uuid: A }), { state: 'running', pid: Number });

  await agent.run('machine_create_snapshot', { uuid: A, snapshot_name: 'one' });
  agent.begin('machine_rollback_snapshot', { uuid: A, snapshot_name: 'one' });
  await agent.sees('stopping', 'stopped');
  await again();
  await agent.sees('running');

  await agent.begins(agent.begin('machine_destroy', { uuid: A }));
  await again();
  t.same(await agent.run('machine_destroy', { uuid: A }), {});
  t.match(await agent.run('machine_load', { uuid: A }), { code: 'VmNotFound' });
  const containers = join(data, 'containers');
  t.same(await readdir(join(data, 'vms')), []);
  t.same(await readdir(join(containers, 'all')), []);
  t.same([await readdir(join(containers, 'exits')), await readdir(join(containers, 'runtime'))], [[], []]);
  t.same(await mountsBelow(join(containers, 'all')), []);
});
