/**
 * What an operator does with a deployment: creates its roles, binds them to servers and commits;
 * then changes data while it runs, tries again what has failed, proposes and deletes noderoles, and
 * commits each time.
 */
import type { DeploymentAction } from './deployments.ts';
import type { Operation } from './plan.ts';
import type { SimClient } from './sim-client.ts';
import { NODEROLE_OPERATION } from './sim-machine.ts';
import type { World } from './world.ts';

type DeploymentOperation = Extract<Operation, { kind: 'deployment' }>;

interface Listed {
  uuid: string;
  role: string;
  state: string;
}

const MAX_TRIES = 20;

export class DeploymentStory {
  readonly #world: World;
  readonly #client: SimClient;
  readonly #operation: DeploymentOperation;
  #uuid = '';
  /** Each change of data is another one. */
  #versions = 0;

  constructor(world: World, client: SimClient, operation: DeploymentOperation) {
    this.#world = world;
    this.#client = client;
    this.#operation = operation;
  }

  async run(): Promise<void> {
    const client = this.#client;
    const { roles, bindings, actions, number } = this.#operation;
    for (const role of roles) {
      const { name, jig, requires, workMs, retry, isDestructive } = role;
      const script = `work ${NODEROLE_OPERATION}${name} ${workMs} 0`;
      const flags = isDestructive ? ['destructive'] : [];
      const params = { name, jig, requires, retry, flags, timeout: 60, ...(jig === 'script' && { script }) };
      // One that exists was created by a request whose answer was lost.
      await client.insist({ route: 'CreateRole', params });
    }
    await client.insist({ route: 'CreateDeployment', params: { name: `d${number}` } });
    const listed = await client.insist({ route: 'ListDeployments', params: { name: `d${number}` } });
    this.#uuid = (listed.body.deployments as { uuid: string }[])[0]?.uuid ?? '';
    for (const { role, agents, fails } of bindings) await this.#bind(role, agents, fails);
    await this.#commit();
    for (const { afterMs, how, role, agent } of actions) {
      await client.sleep(afterMs);
      await this.#act(how, role, agent);
      await this.#commit();
    }
  }

  async #act(how: DeploymentAction, role: string, agent: number): Promise<void> {
    if (how === 'bind') return this.#bind(role, [agent], false);
    const all = await this.#list();
    const wanted = how === 'retry' || how === 'repair' ? all.filter(({ state }) => state === 'error') : all;
    // What runs is the most interesting.
    const running = wanted.filter(({ state }) => state === 'transition' || state === 'todo');
    const among = running.length > 0 && this.#client.random.chance(0.6) ? running : wanted;
    if (among.length === 0) return;
    const { uuid, role: ofRole } = this.#client.random.pick(among);
    if (how === 'data' || how === 'repair') {
      const data = this.#data(ofRole, how === 'data' && this.#client.random.chance(0.15));
      await this.#client.insist({ route: 'UpdateNoderole', params: { uuid, data } });
    } else await this.#client.insist({ route: ROUTES[how], params: { uuid } });
  }

  /** Repeated while a server is not known yet. */
  async #bind(role: string, agents: readonly number[], fails: boolean): Promise<void> {
    const servers = agents.flatMap((number) => this.#world.agents[number]?.uuid ?? []);
    const params = { uuid: this.#uuid, role, servers, data: this.#data(role, fails) };
    for (let tries = 0; tries < MAX_TRIES; tries += 1) {
      const { status } = await this.#client.insist({ route: 'BindRole', params });
      if (status === 200) return;
      await this.#client.sleep(this.#client.random.between(200, 1_500));
    }
  }

  async #commit(): Promise<void> {
    await this.#client.insist({ route: 'CommitDeployment', params: { uuid: this.#uuid } });
  }

  async #list(): Promise<Listed[]> {
    const { body } = await this.#client.insist({ route: 'ListNoderoles', params: { deployment: this.#uuid } });
    return body.noderoles as Listed[];
  }

  #data(role: string, fails: boolean): Record<string, unknown> {
    this.#versions += 1;
    return { [role]: { version: this.#versions, fails } };
  }
}

const ROUTES = { retry: 'RetryNoderole', propose: 'ProposeNoderole', delete: 'DeleteNoderole' } as const;
