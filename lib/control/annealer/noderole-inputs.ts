/**
 * Which data the run of a noderole sees. Pure. From the weakest to the strongest (Crowbar 2.0, "how
 * we determine what information is visible"):
 *
 *     other active noderoles of the server
 *     < ancestors, the most distant first
 *     < the noderole itself
 *
 * The attributes that the role wants are all that is visible of an ancestor on another server. So
 * no data leaks from one server to another by accident.
 */
import type { JsonObject } from '../../protocol/json/bounded-json.ts';
import { deepMerge, objectWith, valueAt } from './merge.ts';

/** The committed data of a noderole. */
export interface NoderoleData {
  /** What the role says. */
  template: JsonObject;
  /** The difference between what its last run returned and what it was sent. */
  wall: JsonObject;
  /** What a user has committed for the noderole. */
  user: JsonObject;
}

export interface Ancestor {
  /** Edges of the shortest way to it. */
  distance: number;
  isSameServer: boolean;
  /** Orders ancestors of the same distance; the later one wins. */
  order: number;
  data: NoderoleData;
}

interface VisibleData {
  own: Omit<NoderoleData, 'wall'>;
  ancestors: readonly Ancestor[];
  /** The other active noderoles of the server, in the order of their cohorts. */
  others: readonly NoderoleData[];
  /** Paths such as `db/port` that the role wants from other servers. */
  wants: readonly string[];
}

/** What others see of a noderole. The user's data is stronger than that of the last run. */
export const dataOf = ({ template, wall, user }: NoderoleData): JsonObject => deepMerge(template, wall, user);

export interface RunInputs {
  /** What the run gets. */
  sent: JsonObject;
  /**
   * What its wall is compared with: the same without the other noderoles of the server, so that it
   * does not depend on them what is in the wall.
   */
  compared: JsonObject;
}

/**
 * The noderole's own wall is not among its inputs: a run that returns the same as the last one has
 * the same wall.
 */
export function inputsOf({ own, ancestors, others, wants }: VisibleData): RunInputs {
  const nearestLast = ancestors.toSorted((one, other) => other.distance - one.distance || one.order - other.order);
  const seen = nearestLast.map((ancestor) => visibleOf(ancestor, wants));
  const compared = deepMerge(...seen, own.template, own.user);
  return { sent: deepMerge(...others.map(dataOf), compared), compared };
}

function visibleOf({ isSameServer, data }: Ancestor, wants: readonly string[]): JsonObject {
  const whole = dataOf(data);
  if (isSameServer) return whole;
  const wanted = wants.map((path) => ({ path, value: valueAt(whole, path) }));
  return deepMerge(
    ...wanted.filter(({ value }) => value !== undefined).map(({ path, value }) => objectWith(path, value)),
  );
}
