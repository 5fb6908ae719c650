/**
 * Temporary faults of database, network and bus. Faults of one kind can overlap; the worst of the
 * current ones applies.
 */
import type { Fault, FaultKind } from './plan.ts';
import type { World } from './world.ts';

type LongRequestKind<Kind extends FaultKind> = Extract<Fault, { kind: Kind }>;

export class Conditions {
  readonly #world: World;
  /** The process that each affects, if it is only one. */
  readonly #active = new Map<Fault, string | undefined>();

  constructor(world: World) {
    this.#world = world;
  }

  begin(fault: Fault, whom: string | undefined): void {
    this.#active.set(fault, whom);
    if (fault.kind === 'bus-killed') this.#world.hub.hub.kill();
    else if (fault.kind === 'bus-frozen') this.#world.hub.hub.freeze();
    this.#apply();
  }

  end(fault: Fault): void {
    this.#active.delete(fault);
    this.#apply();
  }

  #apply(): void {
    const { postgres, network, hub, instances } = this.#world;
    const isDown = this.#of('database-down').length > 0;
    const isFrozen = this.#of('database-frozen').length > 0;
    postgres.set({
      state: isDown ? 'down' : isFrozen ? 'frozen' : 'up',
      slowMs: most(this.#of('database-slow').map(({ extraMs }) => extraMs)),
      failing: most(this.#of('database-failing').map(({ share }) => share)),
      losingAnswers: most(this.#of('database-losing-answers').map(({ share }) => share)),
    });
    network.set({
      slowMs: most(this.#of('network-slow').map(({ extraMs }) => extraMs)),
      loss: most(this.#of('network-losing').map(({ loss }) => loss)),
      repeats: most(this.#of('frames-repeated').map(({ share }) => share)),
    });
    hub.loss = most(this.#of('bus-losing').map(({ loss }) => loss));
    if (this.#of('bus-killed').length + this.#of('bus-frozen').length === 0) hub.hub.restore();
    for (const { name } of instances) {
      postgres.cutOff(name, this.#concerned('instance-without-database').includes(name));
      hub.cutOff(name, this.#concerned('instance-without-bus').includes(name));
    }
  }

  #concerned(kind: FaultKind): (string | undefined)[] {
    return this.#of(kind).map((fault) => this.#active.get(fault));
  }

  #of<Kind extends FaultKind>(kind: Kind): LongRequestKind<Kind>[] {
    return [...this.#active.keys()].filter((fault): fault is LongRequestKind<Kind> => fault.kind === kind);
  }
}

const most = (values: readonly number[]) => Math.max(0, ...values);
