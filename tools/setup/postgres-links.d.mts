/** The folder that holds `bin`, `lib` and `share` of this platform's Postgres, as installed under `from` (a file URL). */
export function postgresDirectory(from?: string): string;
/** Makes the links between its libraries that its install script would make. Idempotent. */
export function linkPostgres(directory: string): void;
