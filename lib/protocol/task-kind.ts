/** What callers may know of a task before they create it. */
export interface TaskKind {
  /** Running the task again after an unknown outcome has the same effect as running it once. */
  idempotent: boolean;
  /** Describes its parameters for callers, by name. */
  params: Readonly<Record<string, string>>;
}
