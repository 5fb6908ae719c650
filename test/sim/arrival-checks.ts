/**
 * Law 11: connected agents do not lose their sessions to arriving ones. Checked each second, in
 * worlds where many agents arrive.
 */
import type { SimAgent } from './sim-agent.ts';
import type { World } from './world.ts';

/** The share of the sessions that existed before. */
const LOST_SHARE = 0.01;
/** The time until an agent has noticed that its instance is gone. */
const NOTICED_MS = 15_000;

export class ArrivalChecks {
  readonly #world: World;
  /** Agents that have a session, by the instance's name. */
  readonly #connected = new Map<SimAgent, string>();
  /** Agents that lost their session although nothing happened to their instance. */
  readonly #lost = new Set<SimAgent>();

  constructor(world: World) {
    this.#world = world;
  }

  tick(): void {
    for (const agent of this.#world.agents) {
      const instance = this.#instanceOf(agent);
      const former = this.#connected.get(agent);
      if (instance !== undefined) this.#connected.set(agent, instance);
      else if (former !== undefined) this.#noteLoss(agent, former);
    }
    const most = LOST_SHARE * this.#connected.size;
    if (this.#lost.size > most)
      this.#world.violated(
        'I1',
        `${this.#lost.size} of ${this.#connected.size} agents with a session lost it to arriving ones`,
      );
  }

  #noteLoss(agent: SimAgent, instance: string): void {
    this.#connected.delete(agent);
    const isExcused =
      this.#world.calmForMs(`agents:${agent.name}`, `instances:${instance}`, `drains:${instance}`, 'network') <
      NOTICED_MS;
    if (isExcused) return;
    this.#world.story.tell(agent.name, `lost its session at ${instance}`);
    this.#lost.add(agent);
  }

  #instanceOf({ agent }: SimAgent): string | undefined {
    const uuid = agent?.link.isLive === true ? agent.link.state.session?.cnapiUuid : undefined;
    return this.#world.instances.find((instance) => instance.uuid === uuid)?.name;
  }
}
