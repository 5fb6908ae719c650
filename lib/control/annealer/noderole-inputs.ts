/**
 * Which data the run of a noderole sees. Pure. From the weakest to the strongest (Crowbar 2.0, "how
 * we determine what information is visible"):
 *
 *     other active noderoles of the server
 *     < ancestors, the most distant first
 *     < the noderole itself
 *
 * Of an ancestor on another server, only the attributes that the role wants are visible. So no data
 * leaks from one server to another by accident.
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
  own: NoderoleData;
  ancestors: readonly Ancestor[];
  /** The other active noderoles of the server, in the order of their cohorts. */
  others: readonly NoderoleData[];
  /** Paths such as `db/port` that the role wants from other servers. */
  wants: readonly string[];
}

/** The user's data is stronger than that of the last run. */
export const dataOf = ({ template, wall, user }: NoderoleData): JsonObject => deepMerge(template, wall, user);

/** What is sent to the jig. */
export function inputsOf({ own, ancestors, others, wants }: VisibleData): JsonObject {
  const nearestLast = ancestors.toSorted((one, other) => other.distance - one.distance || one.order - other.order);
  return deepMerge(...others.map(dataOf), ...nearestLast.map((ancestor) => visibleOf(ancestor, wants)), dataOf(own));
}

function visibleOf({ isSameServer, data }: Ancestor, wants: readonly string[]): JsonObject {
  const whole = dataOf(data);
  if (isSameServer) return whole;
  const wanted = wants.map((path) => ({ path, value: valueAt(whole, path) }));
  return deepMerge(
    ...wanted.filter(({ value }) => value !== undefined).map(({ path, value }) => objectWith(path, value)),
  );
}
