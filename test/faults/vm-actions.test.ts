/**
 * Many clients act on VMs at three instances, as jobs of a workflow engine do, while instances and
 * agents are killed in turn. Each boot of a VM adds a line to a file in it, so that one that was
 * done twice is seen. Real containers.
 */
import { randomUUID } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import t from 'tap';
import { parseHierarchies } from '../../lib/agent/containers/cgroups/mounts.ts';
import { allContainers, exitsOf, runtimeRoot } from '../../lib/agent/containers/linux/container-paths.ts';
import { allProcesses } from '../../lib/agent/machine/proc.ts';
import { systemClock } from '../../lib/platform/time/clock.ts';
import { Cli } from '../cli/rig.ts';
import { lacksContainers } from '../support/container-machine.ts';
import { type Instance, type RealAgent, startZone } from '../support/fleet-harness.ts';
import { cannotMount, mountsBelow } from '../support/mounted-folder.ts';
import { FILE_TIMEOUT_MS } from '../support/patience.ts';
import { noRedisServer } from '../support/redis.ts';
import { Caller, type TaskBody } from '../support/retrying-caller.ts';
import { until } from '../support/until.ts';
import { IMAGE } from '../support/vm-rig.ts';
import { cgroupParentOf, dataWithImage } from '../support/vms-on-linux.ts';

/** The sizes of a large run are 50 and 1,000. */
const CLIENTS = Number(process.env.CNAPI_TEST_VM_CLIENTS ?? 12);
const ACTIONS = Number(process.env.CNAPI_TEST_VM_ACTIONS ?? 120);
/** Each takes a whole core of the two servers, which have room for 13 (placement.md). */
const MIN_VMS = 6;
/** Each time this many more actions have ended, one of all programs is killed. */
const KILL_EACH = 12;
const PATIENCE_MS = 240_000;
/** Errors of tasks that may have been carried out (docs/runbooks.md). */
const UNCERTAIN: ReadonlySet<string> = new Set(['AgentRestarted', 'OutcomeUnknown', 'TaskTimeout']);

const skip = lacksContainers() || cannotMount() || noRedisServer;
const internal_metadata = { 'docker:cmd': '["sh", "-c", "echo boot >> /boots; exec sleep 100000"]' };

interface KnownVm {
  uuid: string;
  server: string;
  /** Boots that were answered as done, and those whose end nobody knows. */
  boots: number;
  maybe: number;
  /** How each start and reboot has ended. */
  outcomes: string[];
  snapshots: string[];
  isGone: boolean;
}

interface Asked {
  status: number;
  body: { id?: string; code?: string; message?: string; server?: { uuid: string }; uuid?: string; state?: string };
}

t.setTimeout(2 * FILE_TIMEOUT_MS);
t.test('VMs of many clients, while instances and agents are killed', { skip }, async (t) => {
  const datas = [await dataWithImage(t), await dataWithImage(t)];
  const zone = await startZone(t, {
    instances: 3,
    agents: 0,
    simulated: 0,
    config: { startGraceMs: 2_000, reconnectMaxMs: 2_000 },
  });
  for (const data of datas) zone.addAgent(undefined, undefined, { data, options: ['--containers'] });
  await zone.untilRunning(datas.length);
  const urls = zone.instances.map(({ url }) => url);
  const accepted: string[] = [];
  const vms: KnownVm[] = [];
  const problems: string[] = [];
  let done = 0;
  let provisioning = 0;
  const counts = new Map<string, number>();
  const newCaller = () => new Caller({ urls, clock: systemClock });
  const callers = Array.from({ length: CLIENTS }, newCaller);

  /** Asks again while the server, or all of them, do not run: their agents were killed. */
  const ask = async (caller: Caller, method: string, path: string, body?: object): Promise<Asked> => {
    const headers = { 'Idempotency-Key': randomUUID() };
    const once = async () => {
      const answer: Asked = await caller.ask(method, path, { body, headers, withinMs: PATIENCE_MS });
      const isTemporary = ['ServerNotRunning', 'NoAllocatableServersError'].includes(answer.body?.code ?? '');
      return isTemporary ? undefined : answer;
    };
    return until(once, `${method} ${path}`, PATIENCE_MS);
  };
  /** Creates a task and waits for its end. The code is that of its error, or of the refusal. */
  const work = async (caller: Caller, method: string, path: string, body?: object) => {
    const answer = await ask(caller, method, path, body);
    const { id, code = String(answer.status) } = answer.body ?? {};
    if (answer.status >= 300 || id === undefined) return { isDone: false, code, mayBeDone: false };
    accepted.push(id);
    const task: TaskBody = (await caller.awaitTask(id, PATIENCE_MS)).body;
    const error = task.history.map(({ event }) => event.error).find((one) => one !== undefined);
    if (task.status === 'active') problems.push(`${method} ${path} did not end`);
    return { isDone: task.status === 'complete', code: error?.code, mayBeDone: UNCERTAIN.has(error?.code ?? '') };
  };
  const count = (name: string) => void counts.set(name, (counts.get(name) ?? 0) + 1);

  /** Undefined if there is no such VM. */
  const settledState = async (caller: Caller, uuid: string) => {
    const look = async () => {
      const { status, body } = await ask(caller, 'GET', `/vms/${uuid}`);
      if (status === 404) return { state: undefined };
      return body.state === 'provisioning' ? undefined : { state: body.state };
    };
    return (await until(look, `the end of the creation of ${uuid}`, PATIENCE_MS)).state;
  };

  /**
   * Does what a provisioning workflow does: allocates, takes a ticket, creates the VM, releases the
   * ticket.
   */
  async function provision(caller: Caller): Promise<void> {
    const vm: KnownVm = {
      uuid: randomUUID(),
      server: '',
      boots: 0,
      maybe: 0,
      outcomes: [],
      snapshots: [],
      isGone: false,
    };
    const owner_uuid = randomUUID();
    const wanted = { vm_uuid: vm.uuid, owner_uuid, ram: 32, quota: 1024, cpu_cap: 100 };
    const servers = zone.agents.map(({ serverUuid }) => serverUuid);
    const chosen = await ask(caller, 'POST', '/allocate', { vm: wanted, image: {}, nic_tags: [], servers });
    vm.server = chosen.body.server?.uuid ?? '';
    const ticket = await ask(caller, 'POST', `/servers/${vm.server}/tickets`, {
      scope: 'vm',
      id: vm.uuid,
      action: 'provision',
      expires_at: new Date(Date.now() + PATIENCE_MS).toISOString(),
    });
    await ask(caller, 'GET', `/tickets/${ticket.body.uuid}/wait`);
    const body = { uuid: vm.uuid, image_uuid: IMAGE, owner_uuid, max_physical_memory: 32, internal_metadata };
    for (let isThere = false; !isThere; ) {
      const made = await work(caller, 'POST', `/servers/${vm.server}/vms`, body);
      if (made.isDone) vm.boots += 1;
      if (made.mayBeDone) vm.maybe += 1;
      else if (!made.isDone && made.code !== 'VmExists') problems.push(`create: ${made.code}`);
      // An agent that was killed meanwhile has left a whole VM, or the remains of one, or nothing.
      const state = made.isDone ? 'running' : await settledState(caller, vm.uuid);
      if (state === 'failed') await work(caller, 'DELETE', `/servers/${vm.server}/vms/${vm.uuid}`);
      isThere = state === 'running' || state === 'stopped';
    }
    vms.push(vm);
    await ask(caller, 'PUT', `/tickets/${ticket.body.uuid}/release`);
    count('provision');
  }

  async function act(caller: Caller, vm: KnownVm): Promise<void> {
    const at = `/servers/${vm.server}/vms/${vm.uuid}`;
    const kinds = ['start', 'stop', 'reboot', 'kill', 'update', 'snapshot', 'delete-snapshot', 'destroy'];
    const kind = kinds[Math.floor(Math.random() * kinds.length)] ?? '';
    const note = ({ isDone, mayBeDone, code }: { isDone: boolean; mayBeDone: boolean; code: string | undefined }) => {
      vm.outcomes.push(`${kind} ${code ?? 'done'}`);
      if (isDone) vm.boots += 1;
      // The next agent starts a VM again that should run, if the end of its run was not seen.
      if (mayBeDone) vm.maybe += 2;
    };
    switch (kind) {
      case 'start':
        note(await work(caller, 'POST', `${at}/start`, {}));
        break;
      case 'reboot':
        note(await work(caller, 'POST', `${at}/reboot`, { force: true }));
        break;
      case 'stop':
        await work(caller, 'POST', `${at}/stop`, { force: true });
        break;
      case 'kill':
        await work(caller, 'POST', `${at}/kill`, { signal: 'USR1' });
        break;
      case 'update':
        await work(caller, 'POST', `${at}/update`, { max_physical_memory: 32 + Math.floor(Math.random() * 32) });
        break;
      case 'snapshot': {
        const snapshot_name = `s${vm.snapshots.length}`;
        vm.snapshots.push(snapshot_name);
        await work(caller, 'POST', `${at}/snapshots`, { snapshot_name });
        break;
      }
      case 'delete-snapshot':
        if (vm.snapshots.length > 0) await work(caller, 'DELETE', `${at}/snapshots/${vm.snapshots.pop()}`);
        break;
      default:
        if (present().length < MIN_VMS) return;
        vm.isGone = true;
        for (let ended = false; !ended; ) {
          const { isDone, mayBeDone, code } = await work(caller, 'DELETE', at);
          ended = isDone || code === 'ResourceNotFound' || code === 'VmNotFound';
          if (!ended && !mayBeDone) problems.push(`destroy: ${code}`);
          if (!mayBeDone) ended = true;
        }
    }
    count(kind);
  }

  const present = () => vms.filter(({ isGone }) => !isGone);
  async function client(caller: Caller): Promise<void> {
    while (done < ACTIONS) {
      done += 1;
      if (present().length + provisioning < MIN_VMS) {
        provisioning += 1;
        await provision(caller);
        provisioning -= 1;
      } else {
        const anyVm = () => present()[Math.floor(Math.random() * present().length)];
        await act(caller, await until(anyVm, 'a VM', PATIENCE_MS));
      }
    }
  }

  let isOver = false;
  const kills: string[] = [];
  async function killInTurn(): Promise<void> {
    const all: (Instance | RealAgent)[] = [...zone.instances, ...zone.agents];
    for (let turn = 0; !isOver; turn++) {
      const from = done;
      await until(() => isOver || done >= from + KILL_EACH, 'more actions', PATIENCE_MS);
      if (isOver) return;
      const { program } = all[turn % all.length] as Instance | RealAgent;
      await program.kill();
      kills.push(program.name);
      program.start();
    }
  }
  const killing = killInTurn();
  await Promise.all(callers.map(client));
  isOver = true;
  await killing;
  t.comment(`${accepted.length} tasks; ${JSON.stringify(Object.fromEntries(counts))}; killed ${kills.length} times`);
  t.same(problems, [], 'each step ended as a job expects');
  await Promise.all(zone.instances.map((instance) => zone.ready(instance)));
  await zone.untilRunning(datas.length);

  const caller = newCaller();
  for (const id of accepted) {
    const { body } = await caller.ask<TaskBody>('GET', `/tasks/${id}`, { withinMs: PATIENCE_MS });
    if (body.status === 'active') t.fail(`task ${id} has not ended`);
  }
  const cli = new Cli(t, urls);
  const left = present();
  for (const vm of left) {
    const started = await work(caller, 'POST', `/servers/${vm.server}/vms/${vm.uuid}/start`, {});
    if (started.isDone) vm.boots += 1;
    const shown = async () =>
      (await cli.run('vm', 'exec', vm.uuid, '--', 'cat', '/boots')).stdout.match(/boot/g)?.length;
    const boots = await until(shown, `the boots of ${vm.uuid}`);
    t.ok(
      boots >= vm.boots && boots <= vm.boots + vm.maybe,
      `${boots} boots of ${vm.boots} to ${vm.boots + vm.maybe}: ${vm.outcomes.join(', ')}`,
    );
  }
  for (const { uuid, server } of left) t.ok((await work(caller, 'DELETE', `/servers/${server}/vms/${uuid}`)).isDone);
  const shown = async () => {
    const path = '/vms';
    return (await caller.ask<{ vms: { uuid: string }[] }>('GET', path, { withinMs: PATIENCE_MS })).body.vms;
  };
  await until(async () => (await shown()).length === 0, 'no VM is shown');

  for (const { program } of zone.agents) await program.kill('SIGTERM');
  for (const data of datas) t.same(await traces(data), [], 'nothing is left of any VM');
});

/** What exists of containers of the agent with this data directory. */
async function traces(data: string): Promise<string[]> {
  const directory = join(data, 'containers');
  const places = [allContainers(directory), exitsOf(directory), runtimeRoot(directory), join(data, 'vms')];
  const files = await Promise.all(places.map(async (place) => (await readdir(place)).map((name) => join(place, name))));
  const trees = parseHierarchies(await readFile('/proc/self/mountinfo', 'utf8'));
  const groups = await Promise.all(
    trees.map(async (tree) => {
      const parent = join(tree.directory, cgroupParentOf(data));
      const entries = await readdir(parent, { withFileTypes: true }).catch(() => []);
      return entries.filter((entry) => entry.isDirectory()).map(({ name }) => join(parent, name));
    }),
  );
  const lines = await Promise.all(
    (await allProcesses()).map(({ pid }) => readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')),
  );
  const mounts = (await mountsBelow(data)).filter((point) => point !== data);
  return [...files.flat(), ...groups.flat(), ...mounts, ...lines.filter((line) => line.includes(directory))];
}
