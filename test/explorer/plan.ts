/** A world to be walked, whatever its state is made of; and one with something wrong in it, which has to be found. */
import { type Exploration, explore, type World } from './explorer.ts';

export interface Plan {
  name: string;
  bounds: string;
  explore(): Exploration;
}

export interface BrokenWorld {
  /** What is wrong. */
  defect: string;
  run(): Exploration;
  /** What has to be said of it. */
  complaint: RegExp;
}

/** @throws WorldTooLargeError from `explore` */
export function planOf<State>(world: World<State>, maxStates: number): Plan {
  return { name: world.name, bounds: world.bounds, explore: () => explore(world, maxStates) };
}
