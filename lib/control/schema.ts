/**
 * The migrations of all subsystems, in the order in which they are applied; for tools and tests,
 * without an instance.
 */
import type { Migration } from '../platform/postgres/migrations.ts';
import { subsystems } from './subsystems.ts';

export const migrations: readonly Migration[] = subsystems.flatMap(({ migrations = [] }) => migrations);
