/** The migrations of some subsystems, for tests of stores that need no others. */
import { migrations } from '../../lib/control/subsystem-list.ts';
import type { Migration } from '../../lib/platform/postgres/migrations.ts';

/**
 * The migrations of these subsystems and of events, because triggers call the functions of events.
 * @throws Error for a subsystem that has none
 */
export function migrationsOf(...names: readonly string[]): readonly Migration[] {
  const subsystems = [...names, 'events'];
  const unknown = subsystems.find((name) => !migrations.some(({ subsystem }) => subsystem === name));
  if (unknown !== undefined) throw new Error(`${unknown} has no migrations`);
  return migrations.filter(({ subsystem }) => subsystems.includes(subsystem));
}
