/**
 * A world to be explored, whatever its type of state; and one with a deliberate defect, which has
 * to be found.
 */
import { type Exploration, explore, type World } from './explorer.ts';

export interface Plan {
  name: string;
  bounds: string;
  explore(): Exploration;
}

export interface BrokenWorld {
  /** The deliberate defect. */
  defect: string;
  run(): Exploration;
  /** The expected complaint. */
  complaint: RegExp;
}

/** @throws WorldTooLargeError from `explore` */
export function planOf<State>(world: World<State>, maxStates: number): Plan {
  return { name: world.name, bounds: world.bounds, explore: () => explore(world, maxStates) };
}
