/**
 * Returns the folder that holds `bin`, `lib` and `share` of this platform's Postgres, as installed
 * under `from` (a file URL).
 */
export function postgresDirectory(from?: string): string;
/** Creates the links between its libraries that its install script would create. Idempotent. */
export function linkPostgres(directory: string): void;
